//! Payloads that are not exactly as expected.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use tensorferry_domain::Domain;
use tensorferry_reduce::{
    DecodeError, HandleIndex, TransitError, decode, give_frozen, refuse, refuse_as, with_encoded,
};
use tensorferry_storage::{Consumers, Deadline, FrozenBlock, Heap, Ring};

fn ring() -> Ring {
    let heap = Heap::create(Domain::builder().limit_bytes(64 << 20)).unwrap();
    Ring::create(&heap, 4, 0).unwrap()
}

fn decoded<T: serde::de::DeserializeOwned>(ring: &Ring, payload: &[u8]) -> Result<T, DecodeError> {
    ring.put(payload, <_>::default(), Deadline::Now).unwrap();
    decode(&mut ring.take(Consumers::Multi, Deadline::Now).unwrap())
}

#[test]
fn what_follows_a_value_is_an_error() {
    let ring = ring();
    assert_eq!(decoded::<u8>(&ring, &[5]).unwrap(), 5);
    // One more number; a marker of bytes without a length; truncated bytes; lists and maps without the
    // entries that they announce; a boolean, nil, and a truncated extension.
    for rest in [&[6][..], &[0xc4], &[0xc4, 9, 1], &[0x91], &[0x81], &[0xdd], &[0xc3], &[0xc0], &[0xd4]] {
        let payload = [&[5], rest].concat();
        assert!(matches!(decoded::<u8>(&ring, &payload), Err(DecodeError::LeftOver)), "{rest:?}");
    }
    assert!(matches!(decoded::<u8>(&ring, &[]), Err(DecodeError::Deserialize(_))));
}

#[test]
fn long_bytes_and_long_strings_arrive_whole() {
    let ring = ring();
    for len_bytes in [0, 1, 231, 232, 233, 70_000, 1 << 20] {
        let sent = (serde_bytes::ByteBuf::from(vec![3; len_bytes]), "x".repeat(len_bytes));
        with_encoded::<_, _, NotSent>(ring.heap(), &sent, |payload, handles| {
            ring.put_from(payload, handles, Deadline::Now)?;
            Ok(())
        })
        .unwrap();
        let mut message = ring.take(Consumers::Multi, Deadline::Now).unwrap();
        assert_eq!(decode::<(serde_bytes::ByteBuf, String)>(&mut message).unwrap(), sent);
    }
}

/// A number that is refused if it is odd, and not to be had now if it is more than 100.
#[derive(Debug)]
struct Even;

impl<'de> Deserialize<'de> for Even {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u8::deserialize(deserializer)? {
            number if number > 100 => {
                refuse_as(TransitError::NotNow("too large for today".to_owned()));
                Err(de::Error::custom("too large for today"))
            }
            number if number % 2 == 1 => {
                refuse(format!("{number} is odd"));
                refuse(format!("it could not be read: {number} is odd"));
                Err(de::Error::custom(format!("it could not be read: {number} is odd")))
            }
            _ => Ok(Self),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum EvenOr<T> {
    Even(Even),
    Other(T),
}

#[test]
fn a_refusal_that_another_variant_made_good_is_not_the_reason_of_a_later_error() {
    let ring = ring();
    let refused = decoded::<Even>(&ring, &[5]).unwrap_err();
    assert!(matches!(&refused, DecodeError::Transit(TransitError::Refused(text)) if text == "5 is odd"));
    assert!(matches!(decoded::<EvenOr<u8>>(&ring, &[5]), Ok(EvenOr::Other(5))));

    // A list of the value and of a number where a text is wanted.
    let later = decoded::<(EvenOr<u8>, String)>(&ring, &[0x92, 5, 7]).unwrap_err();
    assert!(matches!(later, DecodeError::Deserialize(_)), "{later}");
    assert!(later.to_string().contains("integer `7`"), "{later}");
    // Of two refusals the later one is told.
    let later = decoded::<(EvenOr<u8>, Even)>(&ring, &[0x92, 5, 7]).unwrap_err();
    assert!(matches!(&later, DecodeError::Transit(TransitError::Refused(text)) if text == "7 is odd"));

    // No variant fits: the refusal may be why.
    let none = decoded::<EvenOr<String>>(&ring, &[5]).unwrap_err();
    let text = none.to_string();
    assert!(matches!(none, DecodeError::Deserialize(_)), "{text}");
    assert!(text.contains("did not match any variant") && text.contains("5 is odd"), "{text}");
    // What can be had later is tried again, whatever else was wrong.
    let later = decoded::<(EvenOr<u8>, EvenOr<String>)>(&ring, &[0x92, 0xcc, 200, 5]).unwrap_err();
    assert!(later.is_for_now(), "{later}");
}

/// Blocks, each given on its own.
struct Given<'a>(Vec<&'a FrozenBlock>);

impl Serialize for Given<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let index =
            |block: &&FrozenBlock| give_frozen(block).map_err(ser::Error::custom).map(HandleIndex::get);
        self.0.iter().map(index).collect::<Result<Vec<_>, _>>()?.serialize(serializer)
    }
}

#[test]
fn a_block_that_is_given_again_soon_keeps_its_index() {
    let ring = ring();
    let blocks: Vec<_> = (0..40).map(|_| ring.heap().allocate(8).unwrap().freeze()).collect();
    let given = |order: &[usize]| {
        let value = Given(order.iter().map(|at| &blocks[*at]).collect());
        let mut n_handles = 0;
        with_encoded::<_, _, NotSent>(ring.heap(), &value, |payload, handles| {
            n_handles = handles.len();
            Ok(ring.put_from(payload, handles, Deadline::Now)?)
        })
        .unwrap();
        let mut message = ring.take(Consumers::Multi, Deadline::Now).unwrap();
        (decode::<Vec<usize>>(&mut message).unwrap(), n_handles)
    };
    for n_blocks in [1, 2, 3, 8, 9, 17, 40] {
        let once: Vec<_> = (0..n_blocks).collect();
        // The last eight again, from the last to the first.
        let again = once.iter().rev().take(8);
        let order: Vec<_> = once.iter().chain(again).copied().collect();
        assert_eq!(given(&order), (order.clone(), n_blocks));
    }
    let mut order: Vec<_> = (0..9).collect();
    order.push(0);
    assert_eq!(given(&order), ((0..10).collect(), 10), "what is further back is not searched");
}

#[derive(Debug, thiserror::Error)]
enum NotSent {
    #[error(transparent)]
    Encode(#[from] tensorferry_reduce::EncodeError),
    #[error(transparent)]
    Put(#[from] tensorferry_storage::RingPutError),
}
