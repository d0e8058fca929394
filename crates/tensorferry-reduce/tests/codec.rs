//! Payloads that are not exactly as expected.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use tensorferry_domain::Domain;
use tensorferry_reduce::{DecodeError, decode, with_encoded};
use tensorferry_storage::{Consumers, Deadline, Heap, Ring};

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

#[derive(Debug, thiserror::Error)]
enum NotSent {
    #[error(transparent)]
    Encode(#[from] tensorferry_reduce::EncodeError),
    #[error(transparent)]
    Put(#[from] tensorferry_storage::RingPutError),
}
