//! Objects of types of one's own.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tensorferry_domain::Domain;
use tensorferry_manager::{CallErrorKind, Manager, Proxy, Served, StateError, serve, serve_in};
use tensorferry_queue::Queue;
use tensorferry_reduce::Parcel;
use tensorferry_storage::Heap;

/// Adds numbers, and answers their sum so far.
fn sum(total: &mut u64, number: u64) -> u64 {
    *total += number;
    *total
}

#[test]
fn calls_of_many_threads_are_made_one_after_another() {
    let served = serve(0_u64, sum).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let proxy = served.proxy().clone();
            scope.spawn(move || {
                let mut last = 0;
                for _ in 0..500 {
                    let now = proxy.call(1).unwrap();
                    assert!(now > last, "{now} after {last}");
                    last = now;
                }
            });
        }
    });
    assert_eq!(served.into_state().unwrap(), 8 * 500);
}

#[test]
fn what_is_told_is_done_before_what_the_same_thread_asks_then() {
    let served = serve(Vec::new(), |heard: &mut Vec<u32>, number: u32| {
        heard.push(number);
        heard.len()
    })
    .unwrap();
    (0..200).for_each(|number| served.proxy().tell(number).unwrap());
    assert_eq!(served.proxy().call(200).unwrap(), 201);
    served.proxy().tell(201).unwrap();
    assert_eq!(served.into_state().unwrap(), (0..202).collect::<Vec<_>>(), "the last one too");
}

#[test]
fn a_handler_that_panics_ends_the_object_and_its_state_is_there() {
    let line = line!() + 3;
    let served = serve(0_u64, |total: &mut u64, number: u64| {
        *total += number;
        assert!(number < 10, "{number} is too much");
        *total
    })
    .unwrap();
    let proxy = served.proxy();
    assert_eq!(proxy.call(1).unwrap(), 1);
    for number in [10, 1] {
        let error = proxy.call(number).unwrap_err();
        assert!(error.request.is_none() && error.kind.is_final());
        let CallErrorKind::Panicked(panic) = &error.kind else { panic!("{error}") };
        assert_eq!((panic.pid, &*panic.message), (std::process::id(), "10 is too much"));
        let location = panic.location.as_ref().unwrap();
        assert_eq!((&*location.file, location.line), (file!(), line));
        assert_eq!(error.to_string(), panic.to_string());
    }
    proxy.tell(5).unwrap();
    let StateError::Panicked { state, panic } = served.into_state().unwrap_err() else { panic!() };
    assert_eq!((state, &*panic.message), (11, "10 is too much"));
    assert_eq!(panic.location.unwrap().line, line);
}

#[test]
fn an_object_that_calls_itself_is_told_so() {
    let (tell, told) = mpsc::channel::<Proxy<u32, String>>();
    let mut own = None;
    let served = serve((), move |(): &mut (), _: u32| {
        let own = own.get_or_insert_with(|| told.recv().unwrap());
        for error in [own.call(1).unwrap_err(), own.tell(1).unwrap_err()] {
            assert!(matches!(error.kind, CallErrorKind::WithinItself) && error.request == Some(1));
        }
        own.call_timeout(1, Duration::from_secs(60)).unwrap_err().to_string()
    })
    .unwrap();
    tell.send(served.proxy().clone()).unwrap();
    let answer = served.proxy().call(0).unwrap();
    assert!(answer.contains("own handler"), "{answer}");
}

#[test]
fn one_object_can_call_another() {
    let total = serve(0_u64, sum).unwrap();
    let proxy = total.proxy().clone();
    let twice = serve((), move |(): &mut (), number: u64| proxy.call(2 * number).unwrap()).unwrap();
    assert_eq!(twice.proxy().call(4).unwrap(), 8);
}

#[test]
fn objects_that_call_each_other_in_a_circle_go_on_when_the_time_of_a_call_is_over() {
    let (tell, told) = mpsc::channel::<Proxy<u32, String>>();
    let mut other = None;
    // It asks the other one, which asks it.
    let first = serve((), move |(): &mut (), time: u32| {
        if time == 0 {
            return "no question".to_owned();
        }
        let other = other.get_or_insert_with(|| told.recv().unwrap());
        match other.call_timeout(time, Duration::from_millis(time.into())) {
            Ok(answer) => answer,
            Err(error) => error.to_string(),
        }
    })
    .unwrap();
    let back = first.proxy().clone();
    let second = serve((), move |(): &mut (), _: u32| back.call(0).unwrap()).unwrap();
    tell.send(second.proxy().clone()).unwrap();
    assert_eq!(first.proxy().call(20).unwrap(), CallErrorKind::TimedOut.to_string());
    // The question that came back in the circle was answered after that.
    assert_eq!(second.proxy().call(1).unwrap(), "no question");
}

#[test]
fn a_call_that_takes_too_long_is_given_up_and_the_next_one_has_its_own_answer() {
    let (go, wait) = mpsc::channel::<()>();
    let served = serve(wait, |wait: &mut mpsc::Receiver<()>, number: u32| {
        if number == 0 {
            wait.recv().unwrap();
        }
        number
    })
    .unwrap();
    let proxy = served.proxy();
    let error = proxy.call_timeout(0, Duration::from_millis(20)).unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::TimedOut) && error.request.is_none(), "{error}");
    // It is not even begun while the first one goes on; a request that finds no room was not made.
    let error = loop {
        let error = proxy.call_timeout(1, Duration::from_millis(1)).unwrap_err();
        assert!(matches!(error.kind, CallErrorKind::TimedOut), "{error}");
        if error.request.is_some() {
            break error;
        }
    };
    assert_eq!(error.request, Some(1));
    go.send(()).unwrap();
    assert_eq!(proxy.call(7).unwrap(), 7);
    assert!(served.into_state().is_ok());
}

/// Cannot be written, or cannot be read, as it says.
#[derive(Debug)]
enum Stubborn {
    Fine,
    Unwritable,
    Unreadable,
    PanicsWhenWritten,
    PanicsWhenRead,
}

impl Serialize for Stubborn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Fine => 0_u8.serialize(serializer),
            Self::Unwritable => Err(serde::ser::Error::custom("not to be written")),
            Self::Unreadable => 1_u8.serialize(serializer),
            Self::PanicsWhenWritten => panic!("a pen that breaks"),
            Self::PanicsWhenRead => 2_u8.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Stubborn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u8::deserialize(deserializer)? {
            0 => Ok(Self::Fine),
            2 => panic!("glasses that break"),
            _ => Err(serde::de::Error::custom("not to be read")),
        }
    }
}

#[test]
fn requests_and_answers_that_cannot_travel_are_errors_of_their_call_alone() {
    let served = serve((), |(): &mut (), (_, answer): (Stubborn, u8)| match answer {
        0 => Stubborn::Fine,
        1 => Stubborn::Unwritable,
        2 => Stubborn::Unreadable,
        _ => Stubborn::PanicsWhenWritten,
    })
    .unwrap();
    let call = |request, answer| served.proxy().call((request, answer)).map_err(|error| error.kind);
    for _ in 0..3 {
        let error = call(Stubborn::Unwritable, 0).unwrap_err();
        assert!(matches!(&error, CallErrorKind::Unsendable(_)), "{error}");
        let error = call(Stubborn::Unreadable, 0).unwrap_err();
        assert!(
            matches!(&error, CallErrorKind::Unreadable(why) if why.contains("not to be read")),
            "{error}"
        );
        let error = call(Stubborn::Fine, 1).unwrap_err();
        assert!(
            matches!(&error, CallErrorKind::NoAnswer(why) if why.contains("not to be written")),
            "{error}"
        );
        let error = call(Stubborn::Fine, 2).unwrap_err();
        assert!(matches!(&error, CallErrorKind::Answer(_)) && error.to_string().contains("not to be read"));
        let error = call(Stubborn::PanicsWhenRead, 0).unwrap_err();
        assert!(matches!(&error, CallErrorKind::Unreadable(why) if why.contains("glasses")), "{error}");
        let error = call(Stubborn::Fine, 3).unwrap_err();
        assert!(matches!(&error, CallErrorKind::NoAnswer(why) if why.contains("a pen")), "{error}");
        assert!(matches!(call(Stubborn::Fine, 0), Ok(Stubborn::Fine)));
    }
    served.into_state().unwrap();
}

#[test]
fn a_handle_for_other_requests_or_answers_is_refused() {
    let heap = Heap::current().unwrap();
    let served = serve(0_u64, sum).unwrap();
    let send = || Parcel::pack(heap, served.proxy()).unwrap();
    let parcel = send();
    let same: Proxy<u64, u64> = Parcel::open(heap, parcel.id()).unwrap();
    assert_eq!(same.call(3).unwrap(), 3);
    let parcel = send();
    assert!(Parcel::open::<Proxy<u64, u32>>(heap, parcel.id()).is_err());
    let parcel = send();
    let error = Parcel::open::<Proxy<String, u64>>(heap, parcel.id()).unwrap_err().to_string();
    assert!(error.contains("other requests than"), "{error}");
    assert!(serde_json::to_string(served.proxy()).is_err(), "outside of a message");
}

#[test]
fn many_callers_one_after_another_leave_nothing() {
    let heap = Heap::current().unwrap();
    let served = serve(0_u64, sum).unwrap();
    let call_as_another = || {
        let parcel = Parcel::pack(heap, served.proxy()).unwrap();
        let other: Proxy<u64, u64> = Parcel::open(heap, parcel.id()).unwrap();
        other.call(1).unwrap();
    };
    (0..300).for_each(|_| call_as_another());
    heap.collect();
    let n_blocks = heap.stats().own.live_blocks;
    assert!(n_blocks < 100 + 64, "{n_blocks} blocks after 300 callers");
}

#[test]
fn dropping_waits_until_what_was_sent_is_done() {
    let (done, all) = mpsc::channel();
    let handler = move |(): &mut (), number: u32| {
        std::thread::yield_now();
        done.send(number).unwrap();
    };
    let served = serve((), handler.clone()).unwrap();
    (0..50).for_each(|number| served.proxy().tell(number).unwrap());
    drop(served);
    assert_eq!(all.try_iter().count(), 50);
    let manager = Manager::new().unwrap();
    let proxy = manager.serve((), handler).unwrap();
    (0..50).for_each(|number| proxy.tell(number).unwrap());
    drop(manager);
    assert_eq!(all.try_iter().count(), 50);
    assert!(matches!(proxy.call(1).unwrap_err().kind, CallErrorKind::Ended));
}

#[test]
fn a_manager_says_which_handlers_have_panicked_and_ends_all() {
    let manager = Manager::new().unwrap();
    let breaks = manager.serve((), |(): &mut (), text: String| -> u8 { panic!("{text}") }).unwrap();
    let counts = manager.serve(0_u64, sum).unwrap();
    breaks.tell("broken".to_owned()).unwrap();
    assert_eq!(counts.call(1).unwrap(), 1);
    let panicked = manager.shutdown().unwrap_err();
    let [panic] = &*panicked.panics else { panic!("{panicked}") };
    assert_eq!(panic.message, "broken");
    assert!(panic.location.as_ref().is_some_and(|location| location.file == file!()), "{panicked}");
    let text = format!("the handlers of 1 of the objects have panicked: {panic}");
    assert_eq!(panicked.to_string(), text);
    assert!(matches!(counts.call(1).unwrap_err().kind, CallErrorKind::Ended));
}

#[test]
fn an_object_that_ends_itself_is_told_that_it_cannot_wait() {
    let (tell, told) = mpsc::channel::<Served<(), u32, bool>>();
    let served = serve((), move |(): &mut (), how: u32| {
        let own = told.recv().unwrap();
        match how {
            0 => matches!(own.into_state(), Err(StateError::WithinItself)),
            _ => {
                drop(own);
                true
            }
        }
    });
    let served = served.unwrap();
    let proxy = served.proxy().clone();
    tell.send(served).unwrap();
    assert!(proxy.call(0).unwrap());
    assert!(proxy.call(0).unwrap_err().kind.is_final());
}

#[test]
fn what_is_sent_to_an_object_that_reads_nothing_any_more_is_let_go_of() {
    let heap = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
    let served =
        serve_in(&heap, (), |(): &mut (), _: Option<Queue<u8>>| -> u8 { panic!("no more") }).unwrap();
    served.proxy().call(None).unwrap_err();
    let n_blocks = || {
        heap.collect();
        heap.stats().own.live_blocks
    };
    let before = n_blocks();
    let queue = Queue::new_in(&heap, 1).unwrap();
    served.proxy().tell(Some(queue.clone())).unwrap();
    drop(queue);
    let begin = Instant::now();
    while n_blocks() > before {
        assert!(begin.elapsed() < Duration::from_secs(60), "the object keeps the last queue that it got");
        std::thread::yield_now();
    }
    drop(served);
}

#[test]
fn requests_that_cannot_be_sent_leave_nothing() {
    let heap = Heap::current().unwrap();
    let served = serve((), |(): &mut (), _: Stubborn| ()).unwrap();
    served.proxy().call(Stubborn::Fine).unwrap();
    heap.collect();
    let before = heap.stats().own.live_blocks;
    // Many more than what tests beside this one may have at a time: they share its heap.
    let many = 1000;
    for _ in 0..many {
        served.proxy().call(Stubborn::Unwritable).unwrap_err();
    }
    heap.collect();
    assert!(heap.stats().own.live_blocks < before + many);
}

/// Panics when the object drops it.
#[derive(Debug, Serialize, Deserialize)]
struct Loud(u32);

impl Drop for Loud {
    fn drop(&mut self) {
        assert!(std::thread::current().name() != Some("tf-object"), "drop of {}", self.0);
    }
}

#[test]
fn answers_whose_drop_panics_reach_their_own_calls() {
    let served = serve((), |(): &mut (), number: u32| Loud(number)).unwrap();
    for number in 0..50 {
        assert_eq!(served.proxy().call(number).unwrap().0, number);
        served.proxy().tell(number).unwrap();
    }
    // One whose caller has gone away.
    while served.proxy().call_timeout(7, Duration::ZERO).is_ok() {}
    assert_eq!(served.proxy().call(8).unwrap().0, 8);
    served.into_state().unwrap();
}
