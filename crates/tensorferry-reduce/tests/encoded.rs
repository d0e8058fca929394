//! Values that are encoded once, for several receivers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tensorferry_domain::Domain;
use tensorferry_reduce::{self as reduce, EncodeError, Encoded, HandleIndex, Parcel, TransitError};
use tensorferry_storage::{ExclusiveBlock, FrozenBlock, Heap};

struct Frozen(FrozenBlock);

impl Serialize for Frozen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        reduce::give_frozen(&self.0).unwrap().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Frozen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(reduce::take_frozen(HandleIndex::deserialize(deserializer)?).unwrap()))
    }
}

struct Exclusive<'a>(&'a ExclusiveBlock);

impl Serialize for Exclusive<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        reduce::give_exclusive(self.0).unwrap().serialize(serializer)
    }
}

fn heap() -> Heap {
    Heap::create(Domain::builder().limit_bytes(64 << 20)).unwrap()
}

fn block(heap: &Heap) -> ExclusiveBlock {
    let mut block = heap.allocate(100).unwrap();
    block.bytes_mut().fill(7);
    block
}

#[test]
fn each_receiver_has_the_same_memory_and_the_value_as_it_was() {
    let heap = heap();
    let frozen = Frozen(block(&heap).freeze());
    let id = frozen.0.id();
    let mut value = (frozen, vec![1, 2]);
    let encoded = Encoded::new(&heap, &value).unwrap();
    value.1.push(3);
    drop(value);
    for _ in 0..3 {
        let parcel = encoded.pack().unwrap();
        let (Frozen(block), numbers): (Frozen, Vec<u8>) = Parcel::open(&heap, parcel.id()).unwrap();
        assert_eq!((block.id(), block.bytes(), numbers), (id, &[7; 100][..], vec![1, 2]));
    }
    drop(encoded);
    heap.collect();
    assert_eq!(heap.stats().own.live_blocks, 0, "nothing is left of it");
}

#[test]
fn memory_of_another_domain_is_copied_once() {
    let (heap, other) = (heap(), heap());
    let copied = reduce::bytes_copied();
    let encoded = Encoded::new(&heap, &Frozen(block(&other).freeze())).unwrap();
    for _ in 0..3 {
        let parcel = encoded.pack().unwrap();
        assert_eq!(Parcel::open::<Frozen>(&heap, parcel.id()).unwrap().0.bytes(), [7; 100]);
    }
    assert_eq!(reduce::bytes_copied() - copied, 100);
}

#[test]
fn what_only_one_receiver_can_have_is_refused_and_given_back() {
    let heap = heap();
    let block = block(&heap);
    let refused = Encoded::new(&heap, &(Frozen(self::block(&heap).freeze()), Exclusive(&block)));
    let refused = refused.unwrap_err();
    assert!(matches!(refused, EncodeError::Transit(TransitError::NotRepeatable)), "{refused}");
    assert_eq!(block.freeze().bytes(), [7; 100]);
}
