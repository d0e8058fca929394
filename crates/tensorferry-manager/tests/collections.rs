//! Dictionaries and lists.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use serde::{Deserialize, Serialize, Serializer, ser};
use tensorferry_manager::{CallErrorKind, Dict, List, Manager};

#[test]
fn a_dictionary_does_what_a_map_does() {
    let manager = Manager::new().unwrap();
    let dict: Dict<String, u32> = manager.dict_of([("one".to_owned(), 1)]).unwrap();
    let key = |name: &str| name.to_owned();
    assert_eq!(dict.insert(key("two"), 2).unwrap(), None);
    assert_eq!(dict.insert(key("one"), 11).unwrap(), Some(1));
    assert_eq!((dict.get(&key("one")).unwrap(), dict.get(&key("ten")).unwrap()), (Some(11), None));
    assert_eq!(dict.get_or_insert(key("two"), 22).unwrap(), 2);
    assert_eq!(dict.get_or_insert(key("three"), 3).unwrap(), 3);
    assert!(dict.contains_key(&key("three")).unwrap() && !dict.contains_key(&key("four")).unwrap());
    dict.extend([(key("four"), 4), (key("two"), 222)]).unwrap();
    let items = [("four", 4), ("one", 11), ("three", 3), ("two", 222)];
    assert_eq!(dict.items().unwrap(), items.map(|(name, value)| (key(name), value)));
    assert_eq!(dict.keys().unwrap(), ["four", "one", "three", "two"]);
    assert_eq!(dict.values().unwrap(), [4, 11, 3, 222]);
    assert_eq!((dict.remove(&key("one")).unwrap(), dict.remove(&key("one")).unwrap()), (Some(11), None));
    assert_eq!((dict.len().unwrap(), dict.is_empty().unwrap()), (3, false));
    dict.clear().unwrap();
    assert!(dict.is_empty().unwrap());
}

#[test]
fn a_list_does_what_a_vector_does_and_gives_back_what_does_not_fit() {
    let manager = Manager::new().unwrap();
    let list: List<String> = manager.list_of(["a".to_owned()]).unwrap();
    let text = |text: &str| text.to_owned();
    list.push(text("c")).unwrap();
    list.insert(1, text("b")).unwrap();
    list.insert(3, text("d")).unwrap();
    list.extend([text("e"), text("f")]).unwrap();
    assert_eq!(list.to_vec().unwrap().concat(), "abcdef");
    let refused = list.insert(7, text("h")).unwrap_err();
    assert!(matches!(refused.kind, CallErrorKind::OutOfRange { index: 7, len: 6 }), "{refused}");
    assert_eq!(refused.request.unwrap(), "h");
    assert_eq!(list.set(0, text("A")).unwrap(), "a");
    assert_eq!(list.set(6, text("g")).unwrap_err().request.unwrap(), "g");
    assert_eq!((list.get(0).unwrap(), list.get(6).unwrap()), (Some(text("A")), None));
    assert_eq!((list.remove(1).unwrap(), list.remove(5).unwrap()), (Some(text("b")), None));
    assert_eq!((list.pop().unwrap(), list.len().unwrap()), (Some(text("f")), 4));
    list.clear().unwrap();
    assert_eq!((list.pop().unwrap(), list.is_empty().unwrap()), (None, true));
}

#[test]
fn what_was_to_be_put_comes_back_when_nobody_is_there() {
    let manager = Manager::new().unwrap();
    let (dict, list) = (manager.dict::<u8, String>().unwrap(), manager.list::<String>().unwrap());
    dict.insert(1, "kept".to_owned()).unwrap();
    manager.shutdown().unwrap();
    let refused = dict.insert(2, "value".to_owned()).unwrap_err();
    assert!(matches!(refused.kind, CallErrorKind::Ended), "{refused}");
    assert_eq!(refused.request.unwrap(), (2, "value".to_owned()));
    assert_eq!(dict.extend([(3, String::new())]).unwrap_err().request.unwrap().len(), 1);
    assert_eq!(list.push("value".to_owned()).unwrap_err().request.unwrap(), "value");
    assert_eq!(list.extend(["a".to_owned()]).unwrap_err().request.unwrap(), ["a"]);
    assert!(matches!(dict.get(&1), Err(CallErrorKind::Ended)));
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u8, u32),
    Remove(u8),
    Get(u8),
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..8_u8, any::<u32>()).prop_map(|(key, value)| Step::Insert(key, value)),
        2 => (0..8_u8).prop_map(Step::Remove),
        3 => (0..8_u8).prop_map(Step::Get),
        1 => Just(Step::Clear),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_steps_leave_what_they_leave_in_a_map(steps in prop::collection::vec(step(), 1..40)) {
        let manager = Manager::new().unwrap();
        let (dict, mut map) = (manager.dict().unwrap(), BTreeMap::new());
        for step in steps {
            match step {
                Step::Insert(key, value) => {
                    prop_assert_eq!(dict.insert(key, value).unwrap(), map.insert(key, value));
                }
                Step::Remove(key) => prop_assert_eq!(dict.remove(&key).unwrap(), map.remove(&key)),
                Step::Get(key) => prop_assert_eq!(dict.get(&key).unwrap(), map.get(&key).copied()),
                Step::Clear => {
                    dict.clear().unwrap();
                    map.clear();
                }
            }
        }
        prop_assert_eq!(dict.items().unwrap(), map.into_iter().collect::<Vec<_>>());
        manager.shutdown().unwrap();
    }
}

#[test]
fn a_handle_with_a_timeout_waits_no_longer_and_finds_what_it_asks_by_a_borrowed_key() {
    let manager = Manager::new().unwrap();
    let dict = manager.dict_of([("a".to_owned(), 1)]).unwrap().with_timeout(Duration::ZERO);
    let list = manager.list::<u8>().unwrap().with_timeout(Duration::ZERO);
    // There is no time for an answer.
    while !matches!(dict.get("a"), Err(CallErrorKind::TimedOut)) {}
    while !matches!(list.len(), Err(CallErrorKind::TimedOut)) {}
    let patient = dict.with_timeout(Duration::from_secs(60));
    assert_eq!((patient.get("a").unwrap(), patient.contains_key("b").unwrap()), (Some(1), false));
    assert_eq!(patient.remove("a").unwrap(), Some(1));
}

/// A value with something out of the ordinary.
#[derive(Debug, PartialEq, Deserialize)]
enum Value {
    Plain(u32),
    /// Cannot be written.
    Unwritable,
    /// Cannot be copied before its gate opens.
    #[serde(skip)]
    Slow(Gate),
}

#[derive(Debug, Default)]
struct Gate(Arc<Mutex<()>>);

impl PartialEq for Gate {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        match self {
            Self::Plain(number) => Self::Plain(*number),
            Self::Unwritable => Self::Unwritable,
            Self::Slow(gate) => {
                let _opened = gate.0.lock();
                Self::Plain(0)
            }
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Plain(number) => serializer.serialize_newtype_variant("Value", 0, "Plain", number),
            Self::Unwritable | Self::Slow(_) => Err(ser::Error::custom("not to be written")),
        }
    }
}

#[test]
fn what_is_taken_out_and_cannot_be_sent_is_put_back_into_its_place() {
    let manager = Manager::new().unwrap();
    let (plain, unwritable) = (|number| Value::Plain(number), Value::Unwritable);
    let dict = manager.dict_of([(1, plain(1)), (2, unwritable.clone())]).unwrap();
    let list = manager.list_of([plain(1), unwritable.clone(), plain(3), unwritable]).unwrap();
    for _ in 0..3 {
        let errors = [dict.remove(&2), list.remove(1), list.pop()].map(Result::unwrap_err);
        for error in errors {
            assert!(matches!(&error, CallErrorKind::NoAnswer(why) if why.contains("not to be written")));
        }
    }
    assert_eq!(dict.keys().unwrap(), [1, 2]);
    assert_eq!((list.get(0).unwrap(), list.get(2).unwrap()), (Some(plain(1)), Some(plain(3))));
    assert_eq!(list.remove(2).unwrap(), Some(plain(3)));
    assert_eq!(list.len().unwrap(), 3);
    // Reading takes nothing out, and what was put stays.
    assert!(matches!(list.get(1), Err(CallErrorKind::NoAnswer(_))));
    assert!(matches!(list.set(1, plain(2)).unwrap_err().kind, CallErrorKind::NoAnswer(_)));
    assert!(matches!(dict.insert(2, plain(2)).unwrap_err().kind, CallErrorKind::NoAnswer(_)));
    assert_eq!((list.remove(1).unwrap(), dict.remove(&2).unwrap()), (Some(plain(2)), Some(plain(2))));
    manager.shutdown().unwrap();
}

#[test]
fn what_is_taken_out_for_a_caller_that_has_given_up_is_put_back() {
    let manager = Manager::new().unwrap();
    let gate = Arc::new(Mutex::new(()));
    let slow = || Value::Slow(Gate(Arc::clone(&gate)));
    let dict = manager.dict_of([(1, Value::Plain(1)), (2, slow())]).unwrap();
    let list = manager.list_of([Value::Plain(1), Value::Plain(2), slow()]).unwrap();
    let short = Duration::from_millis(20);
    let closed = gate.lock().unwrap();
    // They are copying the slow value, and come to the others after that.
    assert!(matches!(dict.with_timeout(short).get(&2), Err(CallErrorKind::TimedOut)));
    assert!(matches!(list.with_timeout(short).get(2), Err(CallErrorKind::TimedOut)));
    assert!(matches!(dict.with_timeout(short).remove(&1), Err(CallErrorKind::TimedOut)));
    assert!(matches!(list.with_timeout(short).remove(0), Err(CallErrorKind::TimedOut)));
    drop(closed);
    assert_eq!(dict.remove(&1).unwrap(), Some(Value::Plain(1)));
    assert_eq!(
        (list.remove(0).unwrap(), list.remove(0).unwrap()),
        (Some(Value::Plain(1)), Some(Value::Plain(2)))
    );
    manager.shutdown().unwrap();
}

#[test]
fn callers_that_give_up_at_any_moment_lose_nothing() {
    let manager = Manager::new().unwrap();
    let list = manager.list_of(0..3000_u32).unwrap();
    let mut popped = Vec::new();
    for round in 0..6000_u32 {
        let hasty = list.with_timeout(Duration::from_nanos(u64::from(round % 100) * 200));
        match hasty.pop() {
            Ok(value) => popped.extend(value),
            Err(error) => assert!(matches!(error, CallErrorKind::TimedOut), "{error}"),
        }
    }
    popped.extend(list.to_vec().unwrap());
    popped.sort_unstable();
    assert!(popped.iter().copied().eq(0..3000), "{} of 3000", popped.len());
    manager.shutdown().unwrap();
}

/// A key whose drop panics, unless it has travelled.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Key(u8, #[serde(skip)] bool);

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Drop for Key {
    fn drop(&mut self) {
        assert!(!self.1, "a key that breaks");
    }
}

#[test]
fn a_key_whose_drop_panics_ends_no_dictionary_when_its_value_is_taken_out() {
    let manager = Manager::new().unwrap();
    let dict = manager.dict_of([(Key(1, true), 10), (Key(2, false), 20)]).unwrap();
    assert_eq!(dict.remove(&Key(1, false)).unwrap(), Some(10));
    assert_eq!(dict.remove(&Key(2, false)).unwrap(), Some(20));
    manager.shutdown().unwrap();
}
