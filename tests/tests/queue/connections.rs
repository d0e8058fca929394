//! Pipes between processes.

use tensorferry::queue::{GetError, PutErrorKind, pipe_in};
use tensorferry::reduce::bytes_copied;
use tensorferry_kit::tasks::Partner;
use tensorferry_kit::{Item, with_family};

#[test]
fn two_processes_talk_and_nothing_is_copied() {
    with_family(|family| {
        let (mut here, there) = pipe_in(family.heap(), 2).unwrap();
        let child = family.start(Partner { connection: there });
        let copied = bytes_copied();
        for sequence in 0..200 {
            let sent = Item::new(family.heap(), 7, sequence, &[100, 0, 3]);
            let id = sent.tensors[0].storage_id();
            here.send(sent).unwrap();
            let came = here.recv().unwrap();
            came.check();
            assert_eq!((came.sequence, came.tensors[0].storage_id()), (sequence, id));
        }
        assert_eq!(bytes_copied(), copied);
        // What was sent before the end is still received.
        here.send(Item::new(family.heap(), 7, 200, &[1])).unwrap();
        let (_sender, receiver) = here.split();
        drop(_sender);
        child.expect("201 Disconnected");
        child.finish();
        drop(receiver);
    });
}

#[test]
fn the_end_of_a_killed_process_is_told_in_both_directions() {
    with_family(|family| {
        let (mut here, there) = pipe_in(family.heap(), 1).unwrap();
        let child = family.start(Partner { connection: there });
        child.stop();
        here.send(Item::new(family.heap(), 1, 0, &[10])).unwrap();
        assert!(here.try_recv().unwrap_err().is_empty());
        child.kill();
        assert!(matches!(here.recv(), Err(GetError::PeerDied)));
        let refused = here.send(Item::new(family.heap(), 1, 1, &[10])).unwrap_err();
        assert!(matches!(refused.kind, PutErrorKind::PeerDied), "{refused}");
        refused.into_value().check();
    });
}
