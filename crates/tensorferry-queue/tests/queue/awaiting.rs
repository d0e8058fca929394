//! Tasks that wait for queues, and descriptors that tell of them.

use std::future::Future as _;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use tensorferry_os::event::poll_readable;
use tensorferry_queue::{
    GetError, PutErrorKind, Queue, ReadyFd, Sender, channel_in, channel_with_leases_in, pipe_in, spsc_in,
    wait, wait_timeout,
};
use tokio::time::timeout;

use crate::heap;

const DEADLINE: Duration = Duration::from_secs(60);

/// Counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Bell {
    fn n(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

#[track_caller]
fn until(what: impl Fn() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < DEADLINE);
        std::thread::yield_now();
    }
}

fn run<R>(work: impl Future<Output = R>) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(DEADLINE, work).await.unwrap() })
}

#[test]
fn tasks_of_one_thread_wait_for_each_other() {
    let heap = heap();
    let (sender, receiver) = channel_in::<u32>(&heap, 1).unwrap();
    let (mut here, mut there) = pipe_in::<u32, u32>(&heap, 1).unwrap();
    let (mut first, mut last) = spsc_in::<u32>(&heap, 1).unwrap();
    run(async {
        let puts = async {
            for n in 0..1_000 {
                sender.put_async(n).await.unwrap();
            }
            drop(sender);
        };
        let passes = async {
            loop {
                match receiver.get_async().await {
                    Ok(n) => here.send_async(n).await.unwrap(),
                    Err(end) => break assert!(matches!(end, GetError::Disconnected)),
                }
            }
            drop(here);
        };
        let passes_on = async {
            while let Ok(n) = there.recv_async().await {
                first.put_async(n).await.unwrap();
            }
            drop(first);
        };
        let gets = async {
            for n in 0..1_000 {
                assert_eq!(last.get_async().await.unwrap(), n);
            }
            assert!(matches!(last.get_async().await, Err(GetError::Disconnected)));
        };
        tokio::join!(gets, passes_on, passes, puts);
    });
}

#[test]
fn each_message_goes_to_one_of_many_tasks_in_several_threads() {
    const N_TASKS: usize = 200;
    const N_EACH: usize = 50;
    let queue = Queue::<usize>::new_in(&heap(), 8).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let sum = runtime.block_on(async {
        let getting: Vec<_> = (0..N_TASKS)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move {
                    let mut sum = 0;
                    for _ in 0..N_EACH {
                        sum += queue.get_async().await.unwrap();
                    }
                    sum
                })
            })
            .collect();
        let putting: Vec<_> = (0..4)
            .map(|at| {
                let queue = queue.clone();
                tokio::spawn(async move {
                    for n in (at..N_TASKS * N_EACH).step_by(4) {
                        queue.put_async(n).await.unwrap();
                    }
                })
            })
            .collect();
        for task in putting {
            timeout(DEADLINE, task).await.unwrap().unwrap();
        }
        let mut sum = 0;
        for task in getting {
            sum += timeout(DEADLINE, task).await.unwrap().unwrap();
        }
        sum
    });
    let n = N_TASKS * N_EACH;
    assert_eq!(sum, n * (n - 1) / 2);
}

#[test]
fn more_queues_than_one_thread_can_wait_for() {
    let heap = heap();
    let channels: Vec<_> = (0..300).map(|_| channel_in::<usize>(&heap, 1).unwrap()).collect();
    run(async {
        let local = tokio::task::LocalSet::new();
        let getting: Vec<_> = channels
            .iter()
            .map(|(_, receiver)| {
                let receiver = receiver.clone();
                local.spawn_local(async move { receiver.get_async().await.unwrap() })
            })
            .collect();
        local
            .run_until(async {
                // All of them wait.
                tokio::task::yield_now().await;
                for (n, (sender, _)) in channels.iter().enumerate().rev() {
                    sender.put(n).unwrap();
                }
                for (n, task) in getting.into_iter().enumerate() {
                    assert_eq!(task.await.unwrap(), n);
                }
            })
            .await;
    });
}

#[test]
fn who_awaits_is_told_that_nothing_comes_any_more() {
    let heap = heap();
    let (sender, receiver) = channel_in::<u8>(&heap, 1).unwrap();
    run(async {
        let waits = async { receiver.get_async().await };
        let (end, ()) = tokio::join!(waits, async { drop(sender) });
        assert!(matches!(end, Err(GetError::Disconnected)));
    });
    let full = Queue::<u8>::new_in(&heap, 1).unwrap();
    full.put(1).unwrap();
    run(async {
        let waits = async { full.put_async(2).await };
        let (refused, ()) = tokio::join!(waits, async { full.close() });
        let refused = refused.unwrap_err();
        assert!(matches!(refused.kind, PutErrorKind::Closed));
        assert_eq!(refused.value, 2);
    });
    let (sender, receiver) = channel_in::<u8>(&heap, 1).unwrap();
    sender.put(1).unwrap();
    run(async {
        let waits = async { sender.put_async(2).await };
        let (refused, ()) = tokio::join!(waits, async { drop(receiver) });
        assert!(matches!(refused.unwrap_err().kind, PutErrorKind::Disconnected));
    });
}

#[test]
fn a_lease_that_comes_back_is_what_a_task_waits_for() {
    let (sender, receiver) = channel_with_leases_in::<u8>(&heap(), 4, 2).unwrap();
    sender.put(7).unwrap();
    run(async {
        let lease = receiver.get_leased_async().await.unwrap();
        let waits = async { receiver.get_leased_async().await.unwrap() };
        let (again, ()) = tokio::join!(waits, async { drop(lease) });
        assert_eq!((*again, again.deliveries()), (7, 2));
        again.ack().unwrap();
    });
    let plain = Queue::<u8>::new_in(&heap(), 1).unwrap();
    assert!(matches!(run(plain.get_leased_async()), Err(GetError::NoLeases)));
}

#[test]
fn a_future_that_is_dropped_has_taken_nothing_and_holds_nothing() {
    let (sender, receiver) = channel_in::<u8>(&heap(), 1).unwrap();
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    {
        let mut waits = pin!(receiver.get_async());
        assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    sender.put(1).unwrap();
    assert_eq!(receiver.get_nowait().unwrap(), 1);
    {
        let mut waits = pin!(receiver.get_async());
        assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    drop(receiver);
    until(|| sender.is_disconnected());
    assert_eq!(bell.n(), 0);
}

#[test]
fn the_last_waker_is_the_one_that_is_woken() {
    let (sender, receiver) = channel_in::<u8>(&heap(), 1).unwrap();
    let bells = [Arc::new(Bell::default()), Arc::new(Bell::default())];
    let mut waits = pin!(receiver.get_async());
    for bell in &bells {
        let waker = Waker::from(Arc::clone(bell));
        assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    sender.put(1).unwrap();
    until(|| bells[1].n() == 1);
    assert_eq!(bells[0].n(), 0);
    let ready = waits.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(ready, Poll::Ready(Ok(1))));
}

/// Panics when it is woken, and what it panics with when that is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("when it is dropped");
    }
}

struct Fuse;

impl Wake for Fuse {
    fn wake(self: Arc<Self>) {
        std::panic::panic_any(Bomb);
    }
}

#[test]
fn a_waker_that_panics_costs_the_other_tasks_nothing() {
    let (sender, receiver) = channel_in::<u8>(&heap(), 4).unwrap();
    let mut panics = pin!(receiver.get_async());
    let waker = Waker::from(Arc::new(Fuse));
    assert!(panics.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    for number in 0..3 {
        let bell = Arc::new(Bell::default());
        let mut waits = pin!(receiver.get_async());
        let waker = Waker::from(Arc::clone(&bell));
        assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        sender.put(number).unwrap();
        until(|| bell.n() == 1);
        let ready = waits.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(ready, Poll::Ready(Ok(got)) if got == number));
    }
}

#[test]
fn a_descriptor_is_readable_when_there_is_something_to_get() {
    let (sender, receiver) = channel_in::<u8>(&heap(), 4).unwrap();
    let ready = receiver.ready_fd().unwrap();
    let is_readable = |wait| poll_readable(&[ready.as_fd()], Some(wait)).unwrap()[0];
    assert!(!is_readable(Duration::ZERO));
    sender.put(1).unwrap();
    assert!(is_readable(DEADLINE));
    assert_eq!(receiver.get().unwrap(), 1);
    assert!(is_readable(Duration::ZERO), "until it is told");
    ready.rearm().unwrap();
    assert!(!is_readable(Duration::ZERO));
    // What is there already when it is told makes it readable too, and so does the end.
    sender.put(2).unwrap();
    assert!(is_readable(DEADLINE));
    ready.rearm().unwrap();
    assert!(is_readable(DEADLINE));
    assert_eq!(receiver.get().unwrap(), 2);
    ready.rearm().unwrap();
    assert!(!is_readable(Duration::ZERO));
    drop(sender);
    assert!(is_readable(DEADLINE));
    assert!(matches!(receiver.get_nowait(), Err(GetError::Disconnected)));

    let (sender, receiver) = channel_in::<u8>(&heap(), 4).unwrap();
    let ready = receiver.ready_fd().unwrap();
    drop(receiver);
    assert!(!sender.is_disconnected(), "it counts as a receiver");
    drop(ready);
    until(|| sender.is_disconnected());
}

#[test]
fn a_descriptor_is_readable_when_a_value_can_be_leased_or_there_is_room() {
    let heap = heap();
    let (sender, receiver) = channel_with_leases_in::<u8>(&heap, 2, 1).unwrap();
    let (to_lease, to_put) = (receiver.leases_ready_fd().unwrap(), sender.room_ready_fd().unwrap());
    let is_readable = |ready: &ReadyFd| poll_readable(&[ready.as_fd()], Some(Duration::ZERO)).unwrap()[0];
    let becomes_readable = |ready: &ReadyFd| poll_readable(&[ready.as_fd()], Some(DEADLINE)).unwrap()[0];
    assert!(!is_readable(&to_lease) && becomes_readable(&to_put));
    sender.put(1).unwrap();
    sender.put(2).unwrap();
    to_put.rearm().unwrap();
    assert!(becomes_readable(&to_lease) && !is_readable(&to_put));
    let lease = receiver.get_leased().unwrap();
    assert!(becomes_readable(&to_put));
    // There is a value, and this process has all leases: that is an answer, too.
    to_lease.rearm().unwrap();
    assert!(becomes_readable(&to_lease));
    assert!(matches!(receiver.get_leased_nowait(), Err(GetError::AllLeased(1))));
    lease.ack().unwrap();
    let other = receiver.get_leased_nowait().unwrap();
    assert_eq!(*other, 2);
    other.ack().unwrap();
    to_lease.rearm().unwrap();
    assert!(!is_readable(&to_lease));
    assert_eq!(to_put.as_raw_fd(), to_put.as_fd().as_raw_fd());
    let (mut sole, _receiver) = spsc_in::<u8>(&heap, 1).unwrap();
    sole.put(1).unwrap();
    assert!(!is_readable(&sole.room_ready_fd().unwrap()));
}

#[test]
fn leases_are_iterated_over_until_the_first_error() {
    let (sender, receiver) = channel_with_leases_in::<u8>(&heap(), 4, 2).unwrap();
    (0..3).for_each(|number| sender.put(number).unwrap());
    drop(sender);
    let (mut todo, mut seen) = (receiver.iter_leased(), Vec::new());
    for lease in &mut todo {
        seen.push((*lease, lease.deliveries()));
        if lease.deliveries() > 1 || *lease != 1 {
            lease.ack().unwrap();
        }
    }
    assert_eq!(seen, [(0, 1), (1, 1), (1, 2), (2, 1)], "one was given back once");
    assert!(matches!(todo.end(), Some(GetError::Disconnected)) && todo.next().is_none());
    todo.finish().unwrap();
    let (_sender, receiver) = channel_in::<u8>(&heap(), 1).unwrap();
    let mut none = receiver.iter_leased();
    assert!(none.end().is_none() && none.next().is_none());
    assert!(matches!(none.finish(), Err(GetError::NoLeases)));
}

#[test]
fn room_in_one_of_several_queues_is_found() {
    let heap = heap();
    let channels = [(); 2].map(|()| channel_in::<u8>(&heap, 1).unwrap());
    let room = || channels.each_ref().map(|(sender, _)| sender.room());
    let find = |wait| {
        let [one, other] = room();
        wait_timeout(&[&one, &other], wait)
    };
    assert_eq!(find(DEADLINE).unwrap(), [0, 1]);
    channels.iter().for_each(|(sender, _)| sender.put(1).unwrap());
    assert!(find(Duration::from_millis(1)).is_err());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| find(DEADLINE).unwrap());
        channels[1].1.get().unwrap();
        assert_eq!(waits.join().unwrap(), [1]);
    });
    channels[1].0.put(2).unwrap();
    // An error is found as well.
    let [(full, receiver), (other, _still)] = channels;
    drop(receiver);
    assert_eq!(wait(&[&full.room(), &other.room()]).unwrap(), [0]);
    assert!(matches!(full.put_nowait(1).unwrap_err().kind, PutErrorKind::Disconnected));
    let (mut sole, _receiver) = spsc_in::<u8>(&heap, 1).unwrap();
    sole.put(1).unwrap();
    assert!(wait_timeout(&[&sole.room()], Duration::from_millis(1)).is_err());
}

#[test]
fn what_a_task_waits_for_is_sent_to_other_threads() {
    fn is_send<T: Send>(_: &T) {}
    let queue = Queue::<Vec<u8>>::new_in(&heap(), 1).unwrap();
    is_send(&queue.get_async());
    is_send(&queue.put_async(Vec::new()));
    let sender: Sender<Vec<u8>> = queue.sender().unwrap();
    is_send(&sender.put_async(Vec::new()));
}
