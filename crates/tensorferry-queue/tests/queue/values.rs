//! What can be put, and what happens when it cannot.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use tensorferry_queue::{GetError, PutErrorKind, Queue};

use crate::heap;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Job {
    Text { words: Vec<String>, by_name: BTreeMap<String, (i64, f64)> },
    Stop,
}

#[test]
fn any_serde_type_travels() {
    let queue = Queue::new_in(&heap(), 4).unwrap();
    let by_name = [("a".to_owned(), (i64::MIN, 0.5))].into();
    let job = || Job::Text { words: vec![String::new(), "ü".repeat(2000)], by_name };
    let (sent, kept) = {
        let j = job;
        (j(), Job::Stop)
    };
    let expected = format!("{sent:?}");
    queue.put(sent).unwrap();
    queue.put(kept).unwrap();
    assert_eq!(format!("{:?}", queue.get().unwrap()), expected);
    assert_eq!(queue.get().unwrap(), Job::Stop);
}

/// Needs field names and a self-describing format: serde's attributes, and maps of any value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Request {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deadline_ms: Option<u64>,
    retries: Option<u8>,
    #[serde(flatten)]
    more: BTreeMap<String, serde_json::Value>,
    step: Step,
    answer: Answer,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
enum Step {
    Load { path: String },
    Run(Settings),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Settings {
    rate: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Answer {
    Number(i64),
    Text(String),
}

#[test]
fn what_serdes_attributes_make_of_a_type_arrives_as_it_was() {
    let queue = Queue::new_in(&heap(), 4).unwrap();
    let more = [("user".to_owned(), serde_json::json!({ "id": 7, "tags": ["a", null, 1.5] }))].into();
    let first = Request {
        deadline_ms: None,
        retries: Some(3),
        more,
        step: Step::Load { path: "x".to_owned() },
        answer: Answer::Number(-5),
    };
    let second = Request {
        deadline_ms: Some(9),
        retries: None,
        step: Step::Run(Settings { rate: 0.5 }),
        answer: Answer::Text("yes".to_owned()),
        ..first.clone()
    };
    for request in [first, second] {
        queue.put(request.clone()).unwrap();
        assert_eq!(queue.get().unwrap(), request);
    }
}

/// Can be serialised, but not deserialised.
#[derive(Debug, Serialize)]
struct OneWay;

impl<'de> Deserialize<'de> for OneWay {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom("there is no way back"))
    }
}

#[test]
fn a_value_that_refuses_to_come_back_says_why_and_the_queue_goes_on() {
    let queue = Queue::new_in(&heap(), 4).unwrap();
    queue.put(Ok(OneWay)).unwrap();
    queue.put(Err(3)).unwrap();
    let error: GetError = Queue::<Result<OneWay, u8>>::get(&queue).unwrap_err();
    assert!(
        matches!(error, GetError::Decode(_)) && error.to_string().ends_with("there is no way back"),
        "{error}"
    );
    assert_eq!(queue.get().unwrap().unwrap_err(), 3);
}

#[test]
fn an_iteration_that_failed_does_not_finish_well() {
    let queue = Queue::new_in(&heap(), 4).unwrap();
    queue.put(Err(1)).unwrap();
    queue.put(Ok(OneWay)).unwrap();
    queue.put(Err(2)).unwrap();
    queue.close();
    let mut values = queue.iter();
    let numbers: Vec<u8> = values.by_ref().filter_map(Result::err).collect();
    assert_eq!(numbers, [1]);
    assert!(matches!(values.finish(), Err(GetError::Decode(_))));
    let mut rest = queue.iter();
    assert_eq!(rest.next().unwrap().unwrap_err(), 2);
    queue.iter().finish().unwrap();
    assert!(rest.next().is_none());
    rest.finish().unwrap();
}

#[test]
fn sizes_are_told_and_kept() {
    let queue = Queue::new_in(&heap(), 3).unwrap();
    assert!(queue.is_empty() && !queue.is_full());
    for i in 0..3 {
        queue.put_nowait(i).unwrap();
    }
    assert_eq!((queue.len(), queue.capacity_items(), queue.is_full()), (3, 3, true));
    let refused = queue.put_timeout(3, Duration::from_millis(1)).unwrap_err();
    assert!(refused.is_full());
    assert_eq!(refused.into_value(), 3);
    assert_eq!(queue.get_timeout(Duration::from_secs(5)).unwrap(), 0);
}

/// Refuses to be serialised.
#[derive(Debug, Deserialize)]
struct Stubborn(u32);

impl Serialize for Stubborn {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("not on Sundays"))
    }
}

#[test]
fn a_value_that_cannot_be_sent_is_an_error_at_once_and_comes_back() {
    let queue = Queue::new_in(&heap(), 4).unwrap();
    let refused = queue.put(Stubborn(7)).unwrap_err();
    assert!(matches!(refused.kind, PutErrorKind::Encode(_)), "{refused}");
    assert!(refused.to_string().ends_with("not on Sundays"), "its own words are kept: {refused}");
    assert_eq!(refused.into_value().0, 7);
    assert!(queue.is_empty(), "nothing was sent");
}

#[test]
fn a_queue_travels_through_a_queue() {
    let heap = heap();
    let outer: Queue<Queue<u8>> = Queue::new_in(&heap, 2).unwrap();
    let inner = Queue::new_in(&heap, 2).unwrap();
    outer.put(inner.clone()).unwrap();
    outer.get().unwrap().put(42).unwrap();
    assert_eq!(inner.get().unwrap(), 42);
}

#[test]
fn a_queue_of_another_type_is_refused() {
    let heap = heap();
    // Two queues whose messages look alike on the wire, so that only the rings tell them apart.
    #[derive(Serialize, Deserialize)]
    struct Carrier<T>(Queue<T>);
    let carrier = Carrier(Queue::<u8>::new_in(&heap, 2).unwrap());
    let parcel = || tensorferry_reduce::Parcel::pack(&heap, &carrier).unwrap();
    let (first, second) = (parcel(), parcel());
    assert!(tensorferry_reduce::Parcel::open::<Carrier<u16>>(&heap, first.id()).is_err());
    assert!(tensorferry_reduce::Parcel::open::<Carrier<u8>>(&heap, second.id()).is_ok());
    assert!(tensorferry_reduce::Parcel::open::<Carrier<u8>>(&heap, second.id()).is_err(), "it was opened");
}

#[test]
fn a_queue_outside_of_a_message_cannot_be_serialised() {
    let queue: Queue<u8> = Queue::new_in(&heap(), 2).unwrap();
    let error = serde_json::to_string(&queue).unwrap_err().to_string();
    assert!(error.contains("queue or as a spawn argument"), "{error}");
}

#[test]
fn sentinels_and_closing_both_end_a_loop() {
    let queue = Queue::new_in(&heap(), 8).unwrap();
    queue.put(Some(1)).unwrap();
    queue.put(None).unwrap();
    let mut seen = 0;
    while let Some(value) = queue.get().unwrap() {
        seen += value;
    }
    queue.put(Some(2)).unwrap();
    queue.close();
    let mut rest = queue.iter();
    assert_eq!(rest.by_ref().flatten().sum::<i32>(), 2);
    assert!(matches!(rest.end(), Some(GetError::Closed)));
    assert_eq!(seen, 1);
    assert!(queue.put(Some(3)).unwrap_err().is_final());
}

#[test]
fn a_queue_of_any_size_is_made_or_refused() {
    for too_large in [1_048_577, usize::MAX] {
        let error = Queue::<u8>::new_in(&heap(), too_large).unwrap_err().to_string();
        assert!(error.contains(&too_large.to_string()) && error.contains("at most 1048576"), "{error}");
    }
    assert_eq!(Queue::<u8>::new_in(&heap(), 0).unwrap().capacity_items(), 1);
}

/// Gives an exclusive block away, and panics before the message is complete.
#[derive(Debug)]
struct Panics(tensorferry_storage::ExclusiveBlock);

impl Serialize for Panics {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        tensorferry_reduce::give_exclusive(&self.0).unwrap();
        panic!("in the middle");
    }
}

impl<'de> Deserialize<'de> for Panics {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom("never sent"))
    }
}

#[test]
fn a_panic_while_serialising_gives_back_what_was_given_away() {
    let heap = heap();
    let queue: Queue<Arc<Panics>> = Queue::new_in(&heap, 2).unwrap();
    let value = Arc::new(Panics(heap.allocate(64).unwrap()));
    let put = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| queue.put(Arc::clone(&value))));
    assert!(put.is_err());
    let mut value = Arc::into_inner(value).unwrap();
    assert_eq!(value.0.bytes_mut().len(), 64);
}
