//! Connections to other machines, whose processes are killed. The other machine is this one.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod objects;

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use tensorferry::queue::channel_with_leases;
use tensorferry::remote::{
    Connection, ConnectionError, Key, Listener, RecvError, SendErrorKind, connect, feed, forward,
};
use tensorferry::sync::RawValue;
use tensorferry::{BoxedError, Process, Queue, Sender, Tensor, TensorMut, func};
use tensorferry_kit::{DEADLINE, leaving_nothing, lose_what_arrives, until};

fn key() -> Key {
    Key::new("a secret that is long enough").unwrap()
}

/// Sends tensors for ever.
#[func]
fn send(_rank: usize, address: SocketAddr, n_sent: RawValue<u64>) -> Result<(), BoxedError> {
    let mut connection = connect::<Tensor<u64>, u8>(address, &key())?;
    for n in 0.. {
        connection.send(TensorMut::full([100_000], n)?.freeze())?;
        n_sent.set(n + 1);
    }
    Ok(())
}

/// Feeds a queue of its parent with what comes.
#[func]
fn keep(_rank: usize, address: SocketAddr, into: Sender<u32>) -> Result<(), BoxedError> {
    Ok(feed(&mut connect(address, &key())?, &into)?)
}

#[test]
fn a_killed_sender_is_lost_and_what_arrived_whole_is_whole() {
    let test = || {
        let listener = Listener::bind("127.0.0.1:0", &key()).unwrap();
        let n_sent = RawValue::new(0).unwrap();
        let address = listener.local_addr().unwrap();
        let mut sender = Process::new(send, (address, n_sent.clone())).start().unwrap();
        let mut connection = listener.accept::<u8, Tensor<u64>>().unwrap();
        assert_eq!(connection.recv().unwrap().to_vec(), vec![0; 100_000]);
        // It is in the middle of the second one, or of one behind that: the kernel's buffers hold no more.
        until("another one is sent", || n_sent.get() > 0);
        sender.kill().unwrap();
        sender.join().unwrap_err();
        let mut n_received = 1;
        let error = loop {
            match connection.recv_timeout(DEADLINE) {
                Ok(tensor) => assert_eq!(tensor.to_vec(), vec![n_received; 100_000]),
                Err(error) => break error,
            }
            n_received += 1;
        };
        assert!(
            matches!(error, RecvError::Connection(ConnectionError::Lost | ConnectionError::Io(_))),
            "{error}"
        );
        assert!(n_received <= n_sent.get() + 1, "{n_received} {}", n_sent.get());
    };
    leaving_nothing(test, test);
}

#[test]
fn what_a_killed_process_had_not_put_into_its_queue_goes_to_the_next_one() {
    let test = || {
        let listener = Listener::bind("127.0.0.1:0", &key()).unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, receiver) = channel_with_leases::<u32>(1_000, 8).unwrap();
        (0..1_000).for_each(|n| sender.put(n).unwrap());
        drop(sender);
        // Room for some of them, so that whoever puts more waits.
        let got = Queue::<u32>::new(4).unwrap();
        let mut arrived = Vec::new();
        for n_before in [1, 50, 300] {
            let mut keeper = Process::new(keep, (address, got.sender().unwrap())).start().unwrap();
            let mut connection = listener.accept().unwrap();
            let forwarding = thread::spawn({
                let receiver = receiver.clone();
                move || forward(&receiver, &mut connection).unwrap_err()
            });
            arrived.extend((0..n_before).map(|_| got.get_timeout(DEADLINE).unwrap()));
            keeper.kill().unwrap();
            keeper.join().unwrap_err();
            drop(forwarding.join().unwrap());
        }
        let mut keeper = Process::new(keep, (address, got.sender().unwrap())).start().unwrap();
        let mut connection = listener.accept().unwrap();
        let forwarding = thread::spawn(move || forward(&receiver, &mut connection).unwrap());
        while !forwarding.is_finished() || !got.is_empty() {
            arrived.extend(got.get_timeout(Duration::from_millis(10)));
        }
        forwarding.join().unwrap();
        keeper.join().unwrap();
        let different: BTreeSet<_> = arrived.iter().copied().collect();
        assert_eq!(different, (0..1_000).collect(), "all have come");
        // Of what each of three had on the way when it was killed.
        assert!(arrived.len() <= 1_000 + 3 * 8, "{}", arrived.len());
    };
    leaving_nothing(test, test);
}

/// Passes on what two sides say to each other, until the first of them is cut off.
fn pass_on(from: &TcpStream, to: &TcpStream) {
    thread::scope(|scope| {
        for (mut from, mut to) in [(from, to), (to, from)] {
            scope.spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Both);
            });
        }
    });
}

#[test]
fn a_machine_that_is_off_is_given_up_although_something_is_under_way_to_it() {
    type Tensors = Connection<Tensor<u8>, u8>;
    // The kernel has all of it.
    let small: fn(&mut Tensors) = |connection| {
        connection.send(TensorMut::full([10], 2).unwrap().freeze()).unwrap();
        let error = connection.recv().unwrap_err();
        assert!(
            matches!(&error, RecvError::Connection(ConnectionError::Io(e)) if e.kind() == ErrorKind::TimedOut),
            "{error}"
        );
    };
    // The kernel has no room for all of it.
    let large: fn(&mut Tensors) = |connection| {
        let tensor = TensorMut::full([64 << 20], 2).unwrap().freeze();
        let error = connection.send(tensor).unwrap_err().kind;
        assert!(
            matches!(&error, SendErrorKind::Connection(ConnectionError::Io(e)) if e.kind() == ErrorKind::TimedOut),
            "{error}"
        );
    };
    let test = || {
        for work in [small, large] {
            let listener = Listener::bind("127.0.0.1:0", &key()).unwrap();
            let middle = TcpListener::bind("127.0.0.1:0").unwrap();
            thread::scope(|scope| {
                let ours = scope.spawn(|| connect::<Tensor<u8>, u8>(middle.local_addr().unwrap(), &key()));
                let (from, _) = middle.accept().unwrap();
                let to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                scope.spawn({
                    let from = from.try_clone().unwrap();
                    move || pass_on(&from, &to)
                });
                let mut theirs = listener.accept::<u8, Tensor<u8>>().unwrap();
                let mut ours = ours.join().unwrap().unwrap();
                ours.send(TensorMut::full([3], 1).unwrap().freeze()).unwrap();
                assert_eq!(theirs.recv().unwrap().to_vec(), [1; 3]);
                ours.set_peer_timeout(Duration::from_secs(1)).unwrap();
                lose_what_arrives(&from);
                work(&mut ours);
                from.shutdown(Shutdown::Both).unwrap();
            });
        }
    };
    leaving_nothing(test, test);
}
