//! Nothing that arrives is trusted: a false type, length or memory each gives an error of its own.

use proptest::prelude::*;
use serde::de::Error as _;
use serde::ser::{Error as _, SerializeTuple as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tensorferry_reduce::{DecodeError, HandleIndex};
use tensorferry_storage::{FrozenBlock, SharedBlock};
use tensorferry_sync::{Event, Lock, RawArray, RawValue, ScalarKind};

use crate::{heap, sent};

/// A payload like that of an array, with arbitrary claims.
struct Claim<'a> {
    kind: u32,
    n_elements: u64,
    index: Option<HandleIndex>,
    shared: Option<&'a SharedBlock>,
    frozen: Option<&'a FrozenBlock>,
}

impl Default for Claim<'_> {
    fn default() -> Self {
        Self {
            kind: ScalarKind::U64 as u32,
            n_elements: 2,
            index: Some(HandleIndex::new(0)),
            shared: None,
            frozen: None,
        }
    }
}

impl Serialize for Claim<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(block) = self.shared {
            tensorferry_reduce::give_shared(block).map_err(S::Error::custom)?;
        }
        if let Some(block) = self.frozen {
            tensorferry_reduce::give_frozen(block).map_err(S::Error::custom)?;
        }
        let mut tuple = serializer.serialize_tuple(3)?;
        tuple.serialize_element(&self.kind)?;
        tuple.serialize_element(&self.n_elements)?;
        tuple.serialize_element(&self.index)?;
        tuple.end()
    }
}

/// Why an array of u64 was refused.
fn refusal(claim: &Claim<'_>, heap: &tensorferry_storage::Heap) -> String {
    match sent::<_, RawArray<u64>>(heap, claim) {
        Ok(array) => format!("accepted: {array:?}"),
        Err(DecodeError::Deserialize(_)) => "undecodable".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn an_honest_claim_is_accepted() {
    let heap = heap();
    let block = heap.allocate_zeroed(16).unwrap().share();
    let claim = Claim { shared: Some(&block), ..Claim::default() };
    assert_eq!(refusal(&claim, &heap), "accepted: RawArray[0, 0]");
}

#[test]
fn every_lie_is_an_error_that_says_what() {
    let heap = heap();
    let block = heap.allocate_zeroed(16).unwrap().share();
    let odd = heap.allocate_zeroed(15).unwrap().share();
    let frozen = heap.allocate_zeroed(16).unwrap().freeze();
    let honest = || Claim { shared: Some(&block), ..Claim::default() };
    for (claim, expected) in [
        (
            Claim { kind: ScalarKind::F32 as u32, ..honest() },
            "a shared value of u64 was expected, but what arrived holds f32",
        ),
        (Claim { kind: 11, ..honest() }, "undecodable"),
        (Claim { n_elements: 3, ..honest() }, "a shared array of 3 elements arrived with memory of 16 bytes"),
        (Claim { n_elements: 1, ..honest() }, "a shared array of 1 elements arrived with memory of 16 bytes"),
        (Claim { n_elements: u64::MAX, ..honest() }, "arrived with memory of 16 bytes"),
        (Claim { n_elements: (1 << 61) + 2, ..honest() }, "arrived with memory of 16 bytes"),
        (Claim { n_elements: 0, ..honest() }, "a shared array of 0 elements arrived"),
        (Claim { index: None, ..honest() }, "arrived with memory of 0 bytes"),
        (
            Claim { index: Some(HandleIndex::new(1)), ..honest() },
            "handle 1 as shared memory, but the message has no such",
        ),
        (Claim { index: Some(HandleIndex::new(u32::MAX)), ..honest() }, "but the message has no such handle"),
        (Claim { shared: Some(&odd), ..Claim::default() }, "arrived with memory of 15 bytes"),
        (
            Claim { frozen: Some(&frozen), ..Claim::default() },
            "frozen memory arrived where shared memory is wanted",
        ),
    ] {
        let refusal = refusal(&claim, &heap);
        assert!(refusal.contains(expected), "expected {expected:?}, got {refusal:?}");
    }
}

#[test]
fn a_value_is_one_element_and_nothing_else() {
    let heap = heap();
    let two = RawArray::new_in(&heap, &[1_u64, 2]).unwrap();
    let error = sent::<_, RawValue<u64>>(&heap, &two).unwrap_err();
    assert!(error.to_string().contains("1 elements arrived with memory of 16 bytes"), "{error}");
    let one = RawArray::new_in(&heap, &[7_u64]).unwrap();
    assert_eq!(sent::<_, RawValue<u64>>(&heap, &one).unwrap().get(), 7);
    let none = RawArray::<u64>::new_in(&heap, &[]).unwrap();
    assert!(sent::<_, RawValue<u64>>(&heap, &none).is_err());
    let error = sent::<_, RawValue<i64>>(&heap, &one).unwrap_err();
    assert!(error.to_string().contains("of i64 was expected, but what arrived holds u64"), "{error}");
}

/// What a message holds, taken for plain shared memory.
struct Smuggled(SharedBlock);

impl<'de> Deserialize<'de> for Smuggled {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let index = HandleIndex::deserialize(deserializer)?;
        tensorferry_reduce::take_shared(index).map(Self).map_err(D::Error::custom)
    }
}

impl Serialize for Smuggled {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        tensorferry_reduce::give_shared(&self.0).map_err(S::Error::custom)?.serialize(serializer)
    }
}

/// Others write into the memory of a lock, as words of two sizes.
#[test]
fn nobody_has_the_memory_of_a_lock_nor_a_lock_in_memory_of_his_own() {
    let heap = heap();
    let event = Event::new_in(&heap).unwrap();
    let Err(error) = sent::<_, Smuggled>(&heap, &event) else { panic!("the memory of an event is lent") };
    assert!(
        error.to_string().contains("a lock or the like arrived where shared memory is wanted"),
        "{error}"
    );
    let plain = Smuggled(heap.allocate_zeroed(4096).unwrap().share());
    let error = sent::<_, Event>(&heap, &plain).unwrap_err();
    assert!(
        error.to_string().contains("shared memory arrived where a lock or the like is wanted"),
        "{error}"
    );
    let error = sent::<_, Lock>(&heap, &event).unwrap_err();
    assert!(error.to_string().contains("something else to wait for"), "{error}");
    assert!(sent::<_, Event>(&heap, &event).is_ok());
}

proptest! {
    #[test]
    fn any_claim_is_refused_unless_it_is_true(
        kind in 0_u32..13,
        n_elements in prop_oneof![0_u64..4, any::<u64>()],
        index in prop_oneof![Just(None), Just(Some(0)), any::<u32>().prop_map(Some)],
    ) {
        let heap = heap();
        let block = heap.allocate_zeroed(16).unwrap().share();
        let at = index.map(HandleIndex::new);
        let claim = Claim { kind, n_elements, index: at, shared: Some(&block), ..Claim::default() };
        let is_u64 = kind == ScalarKind::U64 as u32;
        let is_true = is_u64 && matches!((n_elements, index), (2, Some(0)) | (0, None));
        prop_assert_eq!(sent::<_, RawArray<u64>>(&heap, &claim).is_ok(), is_true);
    }
}
