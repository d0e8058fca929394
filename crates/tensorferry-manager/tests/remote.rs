//! Objects of other machines, which are this one: what goes there goes through a connection.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use tensorferry_manager::{
    AnswerError, CallErrorKind, Dict, Manager, Proxy, ReachError, RemoteCaller, RemoteHandle, accept,
};
use tensorferry_queue::Queue;
use tensorferry_remote::{ConnectError, Key, Listener};
use tensorferry_tensor::{Tensor, TensorMut};

/// The thread that answers.
const ANSWERS: &str = "answers";
/// The thread of an object: of the one that is called, and of the one that stands for it.
const OBJECT: &str = "tf-object";

const SHORT: Duration = Duration::from_millis(50);

fn key() -> Key {
    Key::new("a secret that is long enough").unwrap()
}

fn listen() -> (Listener, SocketAddr) {
    let listener = Listener::bind("127.0.0.1:0", &key()).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// The connection of `there` to an object, before anybody is answered.
fn connected<H: RemoteHandle>(object: &H, there: &Manager) -> (H, RemoteCaller) {
    let (listener, address) = listen();
    thread::scope(|scope| {
        let accepting = scope.spawn(|| accept(&listener, object).unwrap());
        (there.connect(address, &key()).unwrap(), accepting.join().unwrap())
    })
}

fn answer(caller: RemoteCaller) -> JoinHandle<Result<(), AnswerError>> {
    thread::Builder::new().name(ANSWERS.to_owned()).spawn(|| caller.answer()).unwrap()
}

/// A handle of `there` on an object.
fn reached<H: RemoteHandle>(object: &H, there: &Manager) -> (H, JoinHandle<Result<(), AnswerError>>) {
    let (handle, caller) = connected(object, there);
    assert!(caller.peer_addr().unwrap().ip().is_loopback());
    (handle, answer(caller))
}

fn managers() -> (Manager, Manager) {
    (Manager::new().unwrap(), Manager::new().unwrap())
}

/// A way for one connection, which can be cut.
struct Middle {
    address: SocketAddr,
    is_last: Arc<AtomicBool>,
    caller: mpsc::Receiver<TcpStream>,
}

impl Middle {
    fn to(address: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own_address = listener.local_addr().unwrap();
        let (tell, caller) = mpsc::channel();
        let is_last = Arc::new(AtomicBool::new(false));
        let cuts = Arc::clone(&is_last);
        thread::spawn(move || {
            let (caller, object) = (listener.accept().unwrap().0, TcpStream::connect(address).unwrap());
            tell.send(caller.try_clone().unwrap()).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| io::copy(&mut &object, &mut &caller));
                let mut buffer = [0; 1 << 16];
                while let Ok(len @ 1..) = (&caller).read(&mut buffer) {
                    let is_last = cuts.load(Ordering::SeqCst);
                    (&object).write_all(&buffer[..len]).unwrap();
                    if is_last {
                        break;
                    }
                }
                // What was on its way arrives.
                [&object, &caller].iter().for_each(|stream| stream.shutdown(Shutdown::Write).unwrap());
            });
        });
        Self { address: own_address, is_last, caller }
    }

    /// Lets one more message through to the object, and then nothing.
    fn cut_after_the_next(&self) {
        self.is_last.store(true, Ordering::SeqCst);
    }

    /// Ends what the caller's machine hears, and waits until it could know.
    fn cut(&self) {
        let caller = self.caller.recv().unwrap();
        let address = caller.peer_addr().unwrap();
        caller.shutdown(Shutdown::Write).unwrap();
        // As proc_pid_net(5) has it: the address, that of the other side, and the state `CLOSE_WAIT`.
        let end = Instant::now() + Duration::from_secs(60);
        let port = format!(":{:04X}", address.port());
        let is_told = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            words[1].ends_with(&port) && words[3] == "08"
        };
        while !std::fs::read_to_string("/proc/net/tcp").unwrap().lines().any(is_told) {
            assert!(Instant::now() < end, "the caller's machine is not told");
            thread::yield_now();
        }
    }
}

/// As `reached`, through a way that can be cut, and before anybody is answered.
fn connected_through_middle<H: RemoteHandle>(object: &H, there: &Manager) -> (H, RemoteCaller, Middle) {
    let (listener, address) = listen();
    let middle = Middle::to(address);
    thread::scope(|scope| {
        let accepting = scope.spawn(|| accept(&listener, object).unwrap());
        (there.connect(middle.address, &key()).unwrap(), accepting.join().unwrap(), middle)
    })
}

#[test]
fn collections_of_another_machine_do_what_those_of_this_one_do() {
    let (here, there) = managers();
    let (tensors, list) = (here.dict::<String, Tensor<f32>>().unwrap(), here.list::<String>().unwrap());
    let (remote_tensors, answers) = reached(&tensors, &there);
    let (remote_list, list_answers) = reached(&list, &there);
    let tensor = |value| TensorMut::full([3, 5], value).unwrap().freeze();
    assert!(remote_tensors.insert("a".to_owned(), tensor(1.0)).unwrap().is_none());
    assert_eq!(remote_tensors.insert("a".to_owned(), tensor(2.0)).unwrap().unwrap().to_vec(), vec![1.0; 15]);
    tensors.insert("b".to_owned(), tensor(3.0)).unwrap();
    for tensors in [&tensors, &remote_tensors] {
        let got = tensors.get("a").unwrap().unwrap();
        assert!(got.is_shared() && got.shape() == &[3, 5], "{got:?}");
        assert_eq!(got.to_vec(), vec![2.0; 15]);
        assert_eq!(tensors.keys().unwrap(), ["a", "b"]);
    }
    assert_eq!(remote_tensors.remove("b").unwrap().unwrap().to_vec(), vec![3.0; 15]);
    assert_eq!(tensors.len().unwrap(), 1);

    remote_list.extend(["x", "y"].map(str::to_owned)).unwrap();
    let refused = remote_list.set(2, "z".to_owned()).unwrap_err();
    assert!(matches!(refused.kind, CallErrorKind::OutOfRange { index: 2, len: 2 }), "{refused}");
    assert_eq!(refused.request.unwrap(), "z");
    assert_eq!(remote_list.pop().unwrap().unwrap(), "y");
    assert_eq!(list.to_vec().unwrap(), ["x"]);

    there.shutdown().unwrap();
    let ended = remote_list.len().unwrap_err();
    assert!(matches!(ended, CallErrorKind::Ended), "{ended}");
    [answers, list_answers].into_iter().for_each(|answers| answers.join().unwrap().unwrap());
    assert_eq!(list.to_vec().unwrap(), ["x"], "the object goes on");
}

#[test]
fn what_ends_the_object_is_told_in_full() {
    let (here, there) = managers();
    let divide = |state: &mut u32, by: u32| {
        assert!(by != 0, "the divisor is zero");
        *state / by
    };
    let quotients: Proxy<u32, u32> = here.serve(60, divide).unwrap();
    let (remote, answers) = reached(&quotients, &there);
    remote.tell(7).unwrap();
    assert_eq!(remote.call(12).unwrap(), 5);
    let here_says = quotients.call(0).unwrap_err().to_string();
    for by in [0, 1] {
        let error = remote.call(by).unwrap_err();
        assert!(error.request.is_none() && error.kind.is_final());
        let CallErrorKind::Panicked(panic) = &error.kind else { panic!("{error}") };
        assert_eq!(panic.message, "the divisor is zero");
        assert!(panic.location.as_ref().unwrap().file.ends_with("remote.rs"));
        assert_eq!(error.to_string(), here_says);
    }
    there.shutdown().unwrap();
    answers.join().unwrap().unwrap();

    let there = Manager::new().unwrap();
    let numbers = here.list::<u32>().unwrap();
    let (remote, answers) = reached(&numbers, &there);
    drop(here);
    let ended = remote.push(1).unwrap_err();
    assert!(matches!(ended.kind, CallErrorKind::Ended) && ended.request.is_none(), "{ended}");
    drop(there);
    answers.join().unwrap().unwrap();
}

/// A value that cannot be cloned while somebody holds this.
#[derive(Debug, Serialize, Deserialize)]
struct Held(u8);

static GUARD: Mutex<()> = Mutex::new(());

impl Clone for Held {
    fn clone(&self) -> Self {
        let _guard = GUARD.lock().unwrap();
        Self(self.0)
    }
}

#[test]
fn whoever_has_waited_too_long_is_told_and_the_next_one_has_its_own_answer() {
    let (here, there) = managers();
    let list = here.list_of([Held(1), Held(2)]).unwrap();
    let (remote, answers) = reached(&list, &there);
    let (of_limited, limited_answers) = reached(&list.with_timeout(SHORT), &there);
    let guard = GUARD.lock().unwrap();
    // The caller's time is over; then that of the handle on the object's machine.
    for timed_out in [remote.with_timeout(SHORT).get(0).unwrap_err(), of_limited.get(0).unwrap_err()] {
        assert!(matches!(timed_out, CallErrorKind::TimedOut), "{timed_out}");
    }
    drop(guard);
    assert_eq!(remote.get(1).unwrap().unwrap().0, 2, "and not the answer to the call before");
    there.shutdown().unwrap();
    [answers, limited_answers].into_iter().for_each(|answers| answers.join().unwrap().unwrap());
}

/// A value that does not pass a thread.
#[derive(Clone, Debug, PartialEq)]
struct Fussy {
    thread: String,
    fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum Fault {
    Unwritable,
    PanicsWriting,
    Unreadable,
    PanicsReading,
}

impl Fussy {
    fn new(thread: &str, fault: Fault) -> Self {
        Self { thread: thread.to_owned(), fault }
    }

    fn is_here(thread: &str) -> bool {
        thread::current().name() == Some(thread)
    }
}

impl Serialize for Fussy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.fault {
            Fault::Unwritable if Self::is_here(&self.thread) => Err(ser::Error::custom("not to be written")),
            Fault::PanicsWriting if Self::is_here(&self.thread) => panic!("not to be written"),
            fault => (&self.thread, fault).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Fussy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (thread, fault) = <(String, Fault)>::deserialize(deserializer)?;
        match fault {
            Fault::Unreadable if Self::is_here(&thread) => Err(de::Error::custom("not to be read")),
            Fault::PanicsReading if Self::is_here(&thread) => panic!("not to be read"),
            fault => Ok(Self { thread, fault }),
        }
    }
}

#[test]
fn what_cannot_travel_fails_by_itself() {
    use Fault::{PanicsReading, PanicsWriting, Unreadable, Unwritable};
    let (here, there) = managers();
    let echo: Proxy<(Option<Fussy>, u32), Option<Fussy>> =
        here.serve((), |(): &mut (), (fussy, _)| fussy).unwrap();
    let make: Proxy<(String, Fault), Fussy> =
        here.serve((), |(): &mut (), (thread, fault): (String, Fault)| Fussy::new(&thread, fault)).unwrap();
    let (echo, echo_answers) = reached(&echo, &there);
    let (make, make_answers) = reached(&make, &there);
    for (thread, fault, is_expected) in [
        (OBJECT, Unwritable, (|kind| matches!(kind, CallErrorKind::NotForwarded(_))) as fn(&_) -> bool),
        (OBJECT, PanicsWriting, |kind| matches!(kind, CallErrorKind::NotForwarded(_))),
        (OBJECT, Unreadable, |kind| matches!(kind, CallErrorKind::Unreadable(_))),
        (ANSWERS, Unwritable, |kind| matches!(kind, CallErrorKind::NotForwarded(_))),
        (ANSWERS, PanicsWriting, |kind| matches!(kind, CallErrorKind::AnswerLost(_))),
        (ANSWERS, Unreadable, |kind| matches!(kind, CallErrorKind::Unreadable(_))),
        (ANSWERS, PanicsReading, |kind| matches!(kind, CallErrorKind::Unreadable(_))),
    ] {
        let error = echo.call((Some(Fussy::new(thread, fault)), 1)).unwrap_err();
        assert!(error.to_string().contains("not to be") && is_expected(&error.kind), "{fault:?}: {error}");
        assert!(echo.call((None, 1)).unwrap().is_none());
    }
    for (thread, fault, is_expected) in [
        (ANSWERS, Unwritable, (|kind| matches!(kind, CallErrorKind::NoAnswer(_))) as fn(&_) -> bool),
        (ANSWERS, PanicsWriting, |kind| matches!(kind, CallErrorKind::NoAnswer(_))),
        (ANSWERS, Unreadable, |kind| matches!(kind, CallErrorKind::AnswerLost(_))),
        (ANSWERS, PanicsReading, |kind| matches!(kind, CallErrorKind::AnswerLost(_))),
        (OBJECT, Unreadable, |kind| matches!(kind, CallErrorKind::AnswerLost(_))),
        (OBJECT, PanicsReading, |kind| matches!(kind, CallErrorKind::AnswerLost(_))),
    ] {
        let error = make.call((thread.to_owned(), fault)).unwrap_err();
        assert!(error.to_string().contains("not to be") && is_expected(&error.kind), "{fault:?}: {error}");
        assert_eq!(make.call(("nobody".to_owned(), fault)).unwrap().fault, fault);
    }
    there.shutdown().unwrap();
    [echo_answers, make_answers].into_iter().for_each(|answers| answers.join().unwrap().unwrap());
}

#[test]
fn what_is_in_one_machine_only_stays_there() {
    let (here, there) = managers();
    let queues = here.dict::<u8, Queue<u8>>().unwrap();
    queues.insert(1, Queue::new(1).unwrap()).unwrap();
    let list = here.list_of([Queue::<u8>::new(1).unwrap()]).unwrap();
    let (remote, answers) = reached(&queues, &there);
    let (remote_list, list_answers) = reached(&list, &there);
    let error = remote.insert(2, Queue::new(1).unwrap()).unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::NotForwarded(_)), "{error}");
    for error in [
        remote.remove(&1).map(drop).unwrap_err(),
        remote_list.remove(0).map(drop).unwrap_err(),
        remote_list.pop().map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, CallErrorKind::NoAnswer(_)), "{error}");
        assert!(error.to_string().contains("cannot be sent to another machine"), "{error}");
    }
    assert_eq!(
        (remote.keys().unwrap(), remote_list.len().unwrap()),
        (vec![1], 1),
        "what is taken out is back"
    );
    there.shutdown().unwrap();
    [answers, list_answers].into_iter().for_each(|answers| answers.join().unwrap().unwrap());
}

#[test]
fn what_is_taken_out_for_a_caller_that_has_given_up_is_put_back() {
    let (here, there) = managers();
    let (dict, list) = (here.dict_of([(1, 10)]).unwrap(), here.list_of([20, 21, 22]).unwrap());
    let (remote, caller) = connected(&dict, &there);
    let (remote_list, list_caller) = connected(&list, &there);
    for error in [
        remote.with_timeout(SHORT).remove(&1).unwrap_err(),
        remote_list.with_timeout(SHORT).pop().unwrap_err(),
        remote_list.with_timeout(SHORT).remove(0).unwrap_err(),
    ] {
        assert!(matches!(error, CallErrorKind::TimedOut), "{error}");
    }
    // The calls are made now.
    let answers = [answer(caller), answer(list_caller)];
    assert_eq!((remote.get(&1).unwrap(), remote_list.to_vec().unwrap()), (Some(10), vec![20, 21, 22]));
    there.shutdown().unwrap();
    answers.into_iter().for_each(|answers| answers.join().unwrap().unwrap());
    assert_eq!((dict.len().unwrap(), list.len().unwrap()), (1, 3));
}

#[test]
fn what_is_taken_out_when_the_connection_is_gone_is_put_back() {
    let (here, there) = managers();
    let list = here.list_of([20, 21, 22]).unwrap();
    let (remote, caller, middle) = connected_through_middle(&list, &there);
    middle.cut_after_the_next();
    let lost = remote.remove(0).unwrap_err();
    assert!(matches!(lost, CallErrorKind::ConnectionLost(_)), "{lost}");
    // The request has arrived, and nobody waits for its answer.
    let gone = answer(caller).join().unwrap().unwrap_err();
    assert!(matches!(gone, AnswerError::Gone), "{gone}");
    assert_eq!(list.to_vec().unwrap(), [20, 21, 22]);
}

#[test]
fn of_a_call_whose_connection_is_lost_nobody_says_that_it_was_not_made() {
    let (here, there) = managers();
    let (begin, begun) = mpsc::channel();
    let (go_on, told) = mpsc::channel::<()>();
    let count: Proxy<u32, u32> = here
        .serve(0, move |n_calls, _| {
            *n_calls += 1;
            begin.send(()).unwrap();
            // No answer before the connection is lost, and from then on at once.
            told.recv().unwrap_err();
            *n_calls
        })
        .unwrap();
    let (remote, caller, middle) = connected_through_middle(&count, &there);
    middle.cut_after_the_next();
    let answers = answer(caller);
    let lost = remote.call(100).unwrap_err();
    assert!(matches!(lost.kind, CallErrorKind::ConnectionLost(_)) && lost.kind.is_final(), "{lost}");
    begun.recv().unwrap();
    drop(go_on);
    answers.join().unwrap().unwrap_err();
    for _ in 0..2 {
        let disconnected = remote.call(100).unwrap_err();
        assert!(matches!(disconnected.kind, CallErrorKind::Disconnected(_)), "{disconnected}");
        assert!(disconnected.kind.is_final());
    }
    assert_eq!(count.call(0).unwrap(), 2, "no call was repeated");
}

#[test]
fn of_a_connection_that_has_ended_before_a_call_it_is_said_that_it_was_not_made() {
    let (here, there) = managers();
    let numbers = here.list::<u8>().unwrap();
    let (remote, caller) = connected(&numbers, &there);
    drop(caller);
    let ended = remote.push(1).unwrap_err();
    assert!(matches!(ended.kind, CallErrorKind::Disconnected(_)), "{ended}");
    let (remote, _caller, middle) = connected_through_middle(&numbers, &there);
    middle.cut();
    let ended = remote.push(2).unwrap_err();
    assert!(matches!(ended.kind, CallErrorKind::Disconnected(_)), "{ended}");
    assert_eq!(numbers.len().unwrap(), 0);
}

#[test]
fn who_has_another_key_or_means_another_object_is_refused_and_others_are_not() {
    let (here, there) = managers();
    let numbers: Dict<u8, u32> = here.dict_of([(1, 11)]).unwrap();
    let (listener, address) = listen();
    let accepting = thread::spawn(move || {
        let refused = [(); 2].map(|()| accept(&listener, &numbers).unwrap_err());
        (refused, accept(&listener, &numbers).unwrap().answer())
    });
    let other_key = Key::new("another secret, long enough").unwrap();
    let stranger = there.connect::<Dict<u8, u32>>(address, &other_key).unwrap_err();
    assert!(matches!(stranger, ReachError::Connect(ConnectError::Key)), "{stranger}");
    let other = there.connect::<Dict<u8, i32>>(address, &key()).unwrap_err();
    assert!(matches!(other, ReachError::Connect(ConnectError::Type { .. })), "{other}");
    let remote: Dict<u8, u32> = there.connect(address, &key()).unwrap();
    assert_eq!(remote.get(&1).unwrap(), Some(11));
    there.shutdown().unwrap();
    let (refused, answered) = accepting.join().unwrap();
    answered.unwrap();
    let [stranger, other] = refused;
    assert!(matches!(stranger, ConnectError::Key), "{stranger}");
    assert!(matches!(other, ConnectError::Type { .. }), "{other}");
}

#[test]
fn an_object_is_passed_on_from_machine_to_machine() {
    let (here, between) = managers();
    let there = Manager::new().unwrap();
    let names = here.list::<String>().unwrap();
    let (names_between, answers) = reached(&names, &between);
    let (names_there, answers_between) = reached(&names_between, &there);
    names_there.push("a".to_owned()).unwrap();
    assert_eq!(names.to_vec().unwrap(), ["a"]);
    drop(between);
    let ended = names_there.push("b".to_owned()).unwrap_err();
    assert!(matches!(ended.kind, CallErrorKind::Ended), "{ended}");
    answers.join().unwrap().unwrap();
    drop(there);
    answers_between.join().unwrap().unwrap();
}
