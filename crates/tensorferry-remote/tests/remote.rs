//! Two sides of a connection, in one process.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tensorferry_domain::Domain;
use tensorferry_queue::{Queue, Receiver, channel, channel_with_leases};
use tensorferry_remote::{
    ConnectError, Connection, ConnectionError, FeedError, ForwardError, Kept, Key, Listener, RecvError,
    SendErrorKind, connect, connect_in, feed, forward,
};
use tensorferry_state::Bundle;
use tensorferry_storage::Heap;
use tensorferry_tensor::{SharedTensor, Tensor, TensorMut};

fn key() -> Key {
    Key::new("a secret that is long enough").unwrap()
}

/// Both sides of a connection.
fn pair<S, R>() -> (Connection<S, R>, Connection<R, S>)
where
    S: Send + 'static,
    R: Send + 'static,
{
    let listener = Listener::bind("127.0.0.1:0", &key()).unwrap();
    let address = listener.local_addr().unwrap();
    let there = thread::spawn(move || connect(address, &key()).unwrap());
    (listener.accept().unwrap(), there.join().unwrap())
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Batch {
    pixels: Tensor<f32>,
    row: Tensor<f32>,
    none: Tensor<u8>,
    name: Option<String>,
    weights: Vec<(u32, Tensor<i64>)>,
}

fn batch(n_rows: usize) -> Batch {
    let elements: Vec<_> = (0..n_rows * 100).map(|n| n as f32).collect();
    let mut pixels = TensorMut::zeros([n_rows, 100]).unwrap();
    pixels.as_mut_slice().copy_from_slice(&elements);
    let pixels = pixels.freeze();
    let row = pixels.select(0, n_rows / 2).unwrap();
    let weight = |n: i64| Tensor::from_vec(vec![n, -n, 3], [3]).unwrap();
    let weights = (0..5).map(|n| (n, weight(n.into()))).collect();
    let none = Tensor::from_vec(Vec::new(), [0, 4]).unwrap();
    Batch { pixels, row, none, name: Some("seven".to_owned()), weights }
}

#[test]
fn tensors_anywhere_in_a_value_arrive_in_shared_memory_and_views_as_views() {
    let (mut here, mut there) = pair::<Batch, Batch>();
    // Of less than a frame, of some, and of many.
    for n_rows in [1, 7, 200, 3_000] {
        let sender = thread::spawn(move || {
            here.send(batch(n_rows)).unwrap();
            here
        });
        let arrived = there.recv().unwrap();
        assert_eq!(arrived, batch(n_rows));
        assert!(arrived.pixels.is_shared());
        assert!(arrived.pixels.storage_id() == arrived.row.storage_id(), "a view of the same storage");
        here = sender.join().unwrap();
        // And back again, of what has arrived.
        let sender = thread::spawn(move || {
            there.send(arrived).unwrap();
            there
        });
        assert_eq!(here.recv().unwrap(), batch(n_rows));
        there = sender.join().unwrap();
    }
}

#[test]
fn an_exclusive_tensor_is_moved_and_stays_where_it_cannot_be_sent() {
    type Both = (TensorMut<u32>, Option<Queue<u8>>);
    let (mut here, mut there) = pair::<Both, ()>();
    let mut tensor = TensorMut::full([3], 7_u32).unwrap();
    let queue = Queue::new(1).unwrap();
    let error = here.send((tensor, Some(queue))).unwrap_err();
    assert!(matches!(error.kind, SendErrorKind::Local(_)), "{error}");
    assert!(error.to_string().starts_with("a queue, or what is like one, cannot be sent"), "{error}");
    (tensor, _) = error.into_inner();
    assert_eq!(tensor.as_slice(), [7, 7, 7], "it is whole again");
    here.send((tensor, None)).unwrap();
    let (mut tensor, _) = there.recv().unwrap();
    tensor.as_mut_slice()[1] = 8;
    assert_eq!(tensor.freeze().to_vec(), [7, 8, 7]);
}

#[test]
fn what_several_processes_write_is_refused_and_the_connection_goes_on() {
    let (mut here, mut there) = pair::<(Option<SharedTensor<f32>>, u8), ()>();
    let error = here.send((Some(SharedTensor::zeros([4]).unwrap()), 1)).unwrap_err();
    assert!(matches!(error.kind, SendErrorKind::Local(_)), "{error}");
    here.send((None, 2)).unwrap();
    assert_eq!(there.recv().unwrap().1, 2);
}

#[test]
fn a_bundle_arrives_as_a_bundle() {
    let (mut here, mut there) = pair::<(u8, Bundle), ()>();
    let tensors = (0..50_u32).map(|n| {
        let tensor = TensorMut::full([n as usize + 1], n).unwrap().freeze();
        (format!("layer {n}"), tensor)
    });
    let bundle = Bundle::new(tensors).unwrap();
    here.send((3, bundle)).unwrap();
    let (number, bundle) = there.recv().unwrap();
    assert_eq!((number, bundle.len()), (3, 50));
    for n in 0..50 {
        let tensor = bundle.tensor::<u32>(&format!("layer {n}")).unwrap();
        assert_eq!(tensor.to_vec(), vec![n; n as usize + 1]);
    }
}

#[test]
fn who_has_another_key_is_told_and_lets_others_in() {
    let listener = Listener::bind("127.0.0.1:0", &key()).unwrap();
    let address = listener.local_addr().unwrap();
    let stranger = thread::spawn(move || {
        let other = Key::new("another secret of that length").unwrap();
        connect::<u8, u8>(address, &other).unwrap_err()
    });
    assert!(matches!(listener.accept::<u8, u8>().unwrap_err(), ConnectError::Key));
    let error = stranger.join().unwrap();
    assert!(matches!(error, ConnectError::Key), "{error}");
    let friend = thread::spawn(move || connect::<u8, u8>(address, &key()).unwrap().send(7).unwrap());
    assert_eq!(listener.accept::<u8, u8>().unwrap().recv().unwrap(), 7);
    friend.join().unwrap();
}

#[test]
fn who_means_something_else_is_told_what() {
    let listener = Listener::bind("127.0.0.1:0", &key()).unwrap();
    let address = listener.local_addr().unwrap();
    let there = thread::spawn(move || connect::<u8, String>(address, &key()).unwrap_err());
    for error in [listener.accept::<String, i64>().unwrap_err(), there.join().unwrap()] {
        assert_eq!(error.to_string(), "one side sends `u8`, and the other one receives `i64`");
        assert!(matches!(error, ConnectError::Type { .. }));
    }
}

#[test]
fn who_says_nonsense_or_nothing_more_is_not_let_in() {
    let listener = Listener::bind("127.0.0.1:0", &key()).unwrap();
    let address = listener.local_addr().unwrap();
    for says in [&b""[..], b"\0", b"\0\x20", b"GET / HTTP/1.1\r\n\r\n", &[0xFF; 70_000]] {
        let stranger = thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            // The listener may be gone before all is said.
            let _ = stream.write_all(says);
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let error = listener.accept::<u8, u8>().unwrap_err();
        assert!(matches!(error, ConnectError::Key | ConnectError::Io(_)), "{error}");
        stranger.join().unwrap();
    }
}

/// What somebody between the two does to what the one that connects says. The third number is of the byte.
type Meddles = fn(usize, u8) -> Option<u8>;

/// Somebody between a listener and those who connect. Returns the address to connect to.
fn between(listener: &Listener, meddles: Meddles) -> std::net::SocketAddr {
    let middle = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, there) = (middle.local_addr().unwrap(), listener.local_addr().unwrap());
    thread::spawn(move || {
        let (from, _) = middle.accept().unwrap();
        let mut to = TcpStream::connect(there).unwrap();
        let (mut back, mut again) = (to.try_clone().unwrap(), from.try_clone().unwrap());
        thread::spawn(move || {
            let _ = std::io::copy(&mut back, &mut again);
            let _ = again.shutdown(Shutdown::Both);
        });
        for (nth, byte) in BufReader::new(from).bytes().enumerate() {
            let Some(byte) = byte.ok().and_then(|byte| meddles(nth, byte)) else { break };
            if to.write_all(&[byte]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
    address
}

/// Where the messages begin that follow the introduction of one who sends numbers.
const BEHIND_HELLO: usize = 2 + 48 + 2 + 4 + 4 + 3 + 16;

#[test]
fn what_is_changed_on_the_way_is_noticed_wherever_it_is() {
    for meddles in [
        // In the exchange of keys, in the introduction, in a message.
        (|nth, byte| Some(if nth == 20 { byte ^ 1 } else { byte })) as Meddles,
        |nth, byte| Some(if nth == 60 { byte ^ 1 } else { byte }),
        |nth, byte| Some(if nth == BEHIND_HELLO + 9 { byte ^ 1 } else { byte }),
    ] {
        let listener = Listener::bind("127.0.0.1:0", &key()).unwrap();
        let address = between(&listener, meddles);
        let there = thread::spawn(move || {
            let mut connection = connect::<u32, u8>(address, &key())?;
            let _ = connection.send(77);
            // Until the listener has seen it.
            let _ = connection.recv();
            Ok::<_, ConnectError>(())
        });
        match listener.accept::<u8, u32>() {
            Err(error) => assert!(matches!(error, ConnectError::Key), "{error}"),
            Ok(mut connection) => {
                let error = connection.recv().unwrap_err();
                assert!(matches!(error, RecvError::Connection(ConnectionError::Forged)), "{error}");
                let error = connection.recv().unwrap_err();
                assert!(matches!(error, RecvError::Connection(ConnectionError::Broken)), "{error}");
            }
        }
        drop(there.join().unwrap());
    }
}

#[test]
fn a_connection_that_is_cut_in_the_middle_is_lost_and_not_ended() {
    for cut in [0, 1, 2, 20] {
        let listener = Listener::bind("127.0.0.1:0", &key()).unwrap();
        let meddles: [Meddles; 4] = [
            |nth, byte| (nth < BEHIND_HELLO).then_some(byte),
            |nth, byte| (nth < BEHIND_HELLO + 1).then_some(byte),
            |nth, byte| (nth < BEHIND_HELLO + 2).then_some(byte),
            |nth, byte| (nth < BEHIND_HELLO + 20).then_some(byte),
        ];
        let meddles = meddles[[0, 1, 2, 20].iter().position(|at| *at == cut).unwrap()];
        let address = between(&listener, meddles);
        let there = thread::spawn(move || {
            let mut connection = connect::<u32, u8>(address, &key()).unwrap();
            let _ = connection.send(77);
            let _ = connection.recv();
        });
        let mut connection = listener.accept::<u8, u32>().unwrap();
        let error = connection.recv().unwrap_err();
        assert!(matches!(error, RecvError::Connection(ConnectionError::Lost)), "{cut}: {error}");
        there.join().unwrap();
    }
}

#[test]
fn a_recording_lets_nobody_in() {
    let listener = Listener::bind("127.0.0.1:0", &key()).unwrap();
    // What a friend has said.
    let spy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = spy.local_addr().unwrap();
    let friend = thread::spawn(move || drop(connect::<u8, u8>(address, &key())));
    let mut said = vec![0; 50];
    let (mut stream, _) = spy.accept().unwrap();
    stream.read_exact(&mut said).unwrap();
    drop(stream);
    friend.join().unwrap();
    let address = listener.local_addr().unwrap();
    let stranger = thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&said).unwrap();
        // It is answered, and cannot say what it should.
        let mut answer = [0; 50];
        stream.read_exact(&mut answer).unwrap();
        stream.write_all(&[&[0, 30][..], &[7; 30]].concat()).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let error = listener.accept::<u8, u8>().unwrap_err();
    assert!(matches!(error, ConnectError::Key), "{error}");
    stranger.join().unwrap();
}

#[test]
fn a_side_that_is_dropped_has_ended_and_what_it_sent_still_comes() {
    let (mut here, mut there) = pair::<u8, u8>();
    here.send(1).unwrap();
    drop(here);
    assert_eq!(there.recv().unwrap(), 1);
    for _ in 0..2 {
        assert!(matches!(there.recv().unwrap_err(), RecvError::Disconnected));
    }
    // Half of it, too.
    let (here, mut there) = pair::<u8, u8>();
    let (sender, mut receiver) = here.split();
    sender.close().unwrap();
    assert!(matches!(there.recv().unwrap_err(), RecvError::Disconnected));
    there.send(5).unwrap();
    assert_eq!(receiver.recv().unwrap(), 5);
}

#[test]
fn what_does_not_come_in_time_comes_later() {
    let (mut here, mut there) = pair::<u8, u8>();
    for timeout in [Duration::ZERO, Duration::from_millis(20)] {
        assert!(matches!(there.recv_timeout(timeout).unwrap_err(), RecvError::TimedOut));
    }
    here.send(1).unwrap();
    assert_eq!(there.recv_timeout(Duration::MAX).unwrap(), 1);
    assert!(matches!(there.recv_timeout(Duration::ZERO).unwrap_err(), RecvError::TimedOut));
}

#[test]
fn what_there_is_no_memory_for_is_received_once_there_is() {
    let listener = Listener::bind("127.0.0.1:0", &key()).unwrap();
    let address = listener.local_addr().unwrap();
    let small = Heap::create(Domain::builder().limit_bytes(4 << 20)).unwrap();
    let sender = thread::spawn(move || {
        let mut connection = listener.accept::<(u8, Tensor<u8>), ()>().unwrap();
        for n in 0..3 {
            connection.send((n, TensorMut::full([3 << 19], n).unwrap().freeze())).unwrap();
        }
    });
    let mut connection = connect_in::<(), (u8, Tensor<u8>)>(&small, address, &key()).unwrap();
    let mut kept = vec![connection.recv().unwrap(), connection.recv().unwrap()];
    for _ in 0..2 {
        let error = connection.recv().unwrap_err();
        assert!(matches!(error, RecvError::Memory(_)), "{error}");
    }
    kept.remove(0);
    let (n, tensor) = connection.recv().unwrap();
    assert_eq!((n, tensor.to_vec()), (2, vec![2; 3 << 19]));
    assert_eq!(kept[0].1.to_vec(), vec![1; 3 << 19]);
    sender.join().unwrap();
}

#[test]
fn a_message_that_is_too_long_is_not_begun() {
    let (mut here, mut there) = pair::<Tensor<u8>, ()>();
    there.set_max_message_bytes(1_000);
    here.send(TensorMut::full([100], 1).unwrap().freeze()).unwrap();
    assert_eq!(there.recv().unwrap().n_elements(), 100);
    here.send(TensorMut::full([5_000], 1).unwrap().freeze()).unwrap();
    let error = there.recv().unwrap_err();
    let RecvError::Connection(ConnectionError::TooLong { len_bytes, max_bytes: 1_000 }) = error else {
        panic!("{error}")
    };
    assert!(len_bytes > 5_000);
}

/// What is read as something else than it was written as.
#[derive(Debug, Serialize, Deserialize)]
#[serde(try_from = "u32")]
#[serde(into = "u32")]
#[derive(Clone)]
struct Even(u32);

impl TryFrom<u32> for Even {
    type Error = String;

    fn try_from(number: u32) -> Result<Self, String> {
        if number.is_multiple_of(2) { Ok(Self(number)) } else { Err(format!("{number} is odd")) }
    }
}

impl From<Even> for u32 {
    fn from(even: Even) -> Self {
        even.0
    }
}

#[test]
fn what_cannot_be_read_is_lost_alone() {
    let (mut here, mut there) = pair::<Even, ()>();
    for number in [2, 3, 4] {
        here.send(Even(number)).unwrap();
    }
    assert_eq!(there.recv().unwrap().0, 2);
    let error = there.recv().unwrap_err();
    assert!(matches!(error, RecvError::Decode(_)) && error.to_string().contains("3 is odd"), "{error}");
    assert_eq!(there.recv().unwrap().0, 4);
}

/// Both sides of a connection that forwards.
fn forwarding<T>() -> (Connection<T, Kept>, Connection<Kept, T>)
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    pair()
}

#[test]
fn a_queue_goes_to_another_machine_in_order_until_it_is_closed() {
    let (sender, receiver) = channel_with_leases::<(usize, Tensor<u8>)>(4, 8).unwrap();
    let (mut here, mut there) = forwarding();
    let forwards = thread::spawn(move || forward(&receiver, &mut here).unwrap());
    let (theirs, values) = channel(2).unwrap();
    let feeds = thread::spawn(move || feed(&mut there, &theirs).unwrap());
    let puts = thread::spawn(move || {
        for n in 0..100 {
            sender.put((n, TensorMut::full([n * 1_000 + 1], 7).unwrap().freeze())).unwrap();
        }
    });
    for n in 0..100 {
        let (number, tensor) = values.get().unwrap();
        assert_eq!((number, tensor.n_elements()), (n, n * 1_000 + 1));
    }
    puts.join().unwrap();
    forwards.join().unwrap();
    feeds.join().unwrap();
    assert!(values.get().is_err(), "and then it is over");
}

#[test]
fn a_queue_without_leases_is_not_forwarded_and_one_that_is_gone_is_not_fed() {
    let (sender, receiver) = channel::<u8>(1).unwrap();
    sender.put(1).unwrap();
    let (mut here, _there) = forwarding();
    let error = forward(&receiver, &mut here).unwrap_err();
    assert!(
        matches!(error, ForwardError::Queue(_)) && error.to_string().contains("without leases"),
        "{error}"
    );

    let (mut here, mut there) = forwarding::<u8>();
    here.send(1).unwrap();
    let (theirs, values) = channel(1).unwrap();
    drop(values);
    let error = feed(&mut there, &theirs).unwrap_err();
    assert!(matches!(error, FeedError::Queue(_)), "{error}");
}

/// The numbers that are in a queue with leases, each with how often it has been delivered.
fn left_in<T>(queue: &Receiver<(u8, T)>) -> Vec<(u8, u16)>
where
    T: Serialize + DeserializeOwned,
{
    // All of them at once: one that is dropped is there again.
    let leases: Vec<_> = std::iter::from_fn(|| queue.get_leased_nowait().ok()).collect();
    leases.iter().map(|lease| (lease.0, lease.deliveries())).collect()
}

#[test]
fn what_cannot_be_forwarded_is_not_taken_for_the_end_by_the_other_side() {
    type Message = (u8, Option<Queue<u8>>);
    let (sender, receiver) = channel_with_leases::<Message>(4, 8).unwrap();
    (1..3).for_each(|n| sender.put((n, None)).unwrap());
    sender.put((3, Some(Queue::new(1).unwrap()))).unwrap();
    let (mut here, mut there) = forwarding::<Message>();
    let (theirs, values) = channel(4).unwrap();
    let feeds = thread::spawn(move || feed(&mut there, &theirs).unwrap_err());
    let error = forward(&receiver, &mut here).unwrap_err();
    assert!(matches!(error, ForwardError::Send(SendErrorKind::Local(_))), "{error}");
    drop(here);
    let error = feeds.join().unwrap();
    assert!(matches!(error, FeedError::Recv(RecvError::Connection(_))), "{error}");
    assert_eq!(left_in(&receiver), [(3, 2)], "the others were confirmed");
    assert_eq!(values.iter().map(|(n, _)| n).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn an_exclusive_tensor_is_whole_again_when_the_connection_fails_while_it_is_sent() {
    let (mut here, there) = pair::<TensorMut<u8>, ()>();
    let mut tensor = TensorMut::full([64 << 20], 7).unwrap();
    // More than the buffers hold, so the call waits until the other side is gone.
    let goes = thread::spawn(move || drop(there));
    let error = here.send(tensor).unwrap_err();
    goes.join().unwrap();
    assert!(matches!(error.kind, SendErrorKind::Connection(ConnectionError::Io(_))), "{error}");
    tensor = error.into_inner();
    assert!(tensor.as_slice().len() == 64 << 20 && tensor.as_slice().iter().all(|byte| *byte == 7));
    let error = here.send(tensor).unwrap_err();
    assert!(matches!(error.kind, SendErrorKind::Connection(ConnectionError::Broken)), "{error}");
    assert_eq!(error.into_inner().as_slice().len(), 64 << 20);
}
