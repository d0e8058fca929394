//! Dictionaries and lists.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
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
