//! Pipes.

use std::time::Duration;

use tensorferry_queue::{Connection, GetError, PutErrorKind, Queue, WaitAnyError, pipe_in, wait};

use crate::heap;

const LONG: Duration = Duration::from_secs(30);

#[test]
fn each_end_receives_what_the_other_one_sends() {
    let (mut here, mut there) = pipe_in::<u32, String>(&heap(), 2).unwrap();
    here.send(1).unwrap();
    here.try_send(2).unwrap();
    assert!(here.try_send(3).unwrap_err().is_full());
    let late = here.send_timeout(3, Duration::from_millis(1)).unwrap_err();
    assert_eq!(late.into_value(), 3);
    there.send("one".to_owned()).unwrap();
    assert_eq!(format!("{here:?}"), "Connection { to_receive: 1, sent: 2, capacity_items: 2, .. }");
    assert_eq!((there.recv().unwrap(), there.try_recv().unwrap()), (1, 2));
    assert!(there.try_recv().unwrap_err().is_empty());
    assert!(there.recv_timeout(Duration::from_millis(1)).unwrap_err().is_empty());
    assert_eq!(here.recv().unwrap(), "one");
    here.send(7).unwrap();
    drop(here);
    let mut left = there.iter();
    assert_eq!(left.by_ref().collect::<Vec<_>>(), [7], "what was sent before the end arrives");
    left.finish().unwrap();
    assert!(matches!(there.recv(), Err(GetError::Disconnected)));
    // Whoever was told so cannot send either.
    assert!(matches!(there.send(String::new()).unwrap_err().kind, PutErrorKind::Disconnected));
}

#[test]
fn poll_and_wait_tell_of_values_and_of_the_end() {
    let heap = heap();
    let (mut here, there) = pipe_in::<u8, u8>(&heap, 1).unwrap();
    let (other, _other_there) = pipe_in::<u8, u8>(&heap, 1).unwrap();
    assert!(!there.poll(Duration::ZERO) && !there.poll(Duration::from_millis(1)));
    here.send(1).unwrap();
    assert!(there.poll(Duration::ZERO) && there.poll(LONG));
    let ready = wait(&[&other, &there]);
    if !matches!(ready, Err(WaitAnyError::Unsupported)) {
        assert_eq!(ready.unwrap(), [1]);
    }
    let (sender, mut receiver) = there.split();
    assert_eq!(receiver.get().unwrap(), 1);
    assert!(!here.poll(Duration::ZERO));
    drop((sender, receiver));
    assert!(here.poll(Duration::ZERO), "its end is news");
}

#[test]
fn an_end_moves_with_a_message_and_is_no_end_here_any_more() {
    let heap = heap();
    let (mut here, there) = pipe_in::<String, String>(&heap, 2).unwrap();
    let carrier = Queue::new_in(&heap, 1).unwrap();
    here.send("before".to_owned()).unwrap();
    carrier.put(there).unwrap();
    assert!(here.try_recv().unwrap_err().is_empty(), "an end on its way is an end");
    let mut there: Connection<String, String> = carrier.get().unwrap();
    assert_eq!(there.recv().unwrap(), "before");
    there.send("after".to_owned()).unwrap();
    assert_eq!(here.recv().unwrap(), "after");
    // Kept by whoever could not send it.
    carrier.close();
    let mut there = carrier.put(there).unwrap_err().into_value();
    there.send("still".to_owned()).unwrap();
    assert_eq!(here.recv().unwrap(), "still");
}
