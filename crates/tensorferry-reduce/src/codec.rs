//! From a value to a message and back.

use std::cell::RefCell;
use std::hint::cold_path;

use serde::de::DeserializeOwned;
use serde::{Deserialize as _, Deserializer, Serialize};
use tensorferry_storage::{Heap, IncomingHandles, IncomingMessage, OutgoingHandles};

use crate::buffer::Buffer;
use crate::transit::{Inbound, Outbound, Transit, during, during_to};
use crate::{DecodeError, EncodeError, TransitError};

/// Serialises `value` for the domain of `heap`, and calls `send` with the payload and the handles.
///
/// `send` takes the handles that it sends. The handles that it leaves are taken back, so that what they gave
/// away is whole again.
///
/// The value is serialised on the calling thread, so a value that cannot be sent is an error here. The
/// payload is MessagePack, in which structs have their field names. Every serde type can therefore travel,
/// with flattened, untagged and skipped fields, and so can `serde_json::Value`. The format has these limits:
///
/// - `Some(None)` and `Some(())` arrive as `None`, because a self-describing format cannot tell them apart.
/// - In an untagged enum, the first variant that reads an exclusive tensor takes it, even if that variant
///   then does not fit.
/// - To serde, a `Vec<u8>` is a sequence of numbers. The crate `serde_bytes` makes it bytes.
/// - The description of a tensor is bytes too, so in an untagged enum a variant of bytes must come after
///   those of tensors.
///
/// # Errors
/// [`EncodeError`] when the value cannot be serialised; then `send` is not called. Otherwise the error of
/// `send`.
#[inline]
pub fn with_encoded<T, R, E>(
    heap: &Heap,
    value: &T,
    send: impl FnOnce(&[u8], &mut OutgoingHandles) -> Result<R, E>,
) -> Result<R, E>
where
    T: Serialize + ?Sized,
    E: From<EncodeError>,
{
    with_encoded_behind(heap, &[], value, send)
}

/// As [`with_encoded`], with `head` before the value in the payload. A receiver can read the head without
/// knowing the type of the value, and [`decode_behind`] reads the value.
///
/// # Errors
/// As [`with_encoded`].
#[inline]
pub fn with_encoded_behind<T, R, E>(
    heap: &Heap,
    head: &[u8],
    value: &T,
    send: impl FnOnce(&[u8], &mut OutgoingHandles) -> Result<R, E>,
) -> Result<R, E>
where
    T: Serialize + ?Sized,
    E: From<EncodeError>,
{
    let mut buffer = Buffer::new();
    buffer.append(head);
    let mut transit = RefCell::new(Transit::Out(Outbound::new()));
    let encoded = during_to(heap, &transit, || {
        value.serialize(&mut rmp_serde::Serializer::new(&mut buffer).with_struct_map().with_human_readable())
    });
    let Transit::Out(outbound) = transit.get_mut() else {
        cold_path();
        return Err(EncodeError::from(TransitError::NotInTransit).into());
    };
    if let Err(error) = encoded {
        cold_path();
        // Dropping `outbound` takes back what was given away.
        let refusal = outbound.refusal.take();
        return Err(refusal
            .map_or_else(|| EncodeError::Serialize(error.into()), EncodeError::Transit)
            .into());
    }
    send(&buffer, &mut outbound.handles)
}

/// Deserialises a value from a message that was taken. Nothing in the payload is trusted.
///
/// # Errors
/// [`DecodeError`]; the handles of the message are dropped then.
#[inline]
pub fn decode<T: DeserializeOwned>(message: &mut IncomingMessage) -> Result<T, DecodeError> {
    decode_behind(0, message)
}

/// As [`decode`], with an error of the caller's: the value is then moved into one result, and not from one
/// into another. It takes the parts of a message, so that nothing of it is moved but the handles.
///
/// # Errors
/// As [`decode`].
#[inline]
pub fn decode_as<T, E>(payload: &[u8], handles: IncomingHandles) -> Result<T, E>
where
    T: DeserializeOwned,
    E: From<DecodeError>,
{
    let transit = RefCell::new(Transit::In(Inbound { handles, refusal: None }));
    // Bytes and strings are borrowed from the payload, so that they are copied once, into the value.
    let mut payload = rmp_serde::Deserializer::from_read_ref(payload).with_human_readable();
    match during(&transit, || T::deserialize(&mut payload)) {
        Ok(value) if is_at_end(&mut payload) => Ok(value),
        Ok(_) => {
            cold_path();
            Err(DecodeError::LeftOver.into())
        }
        Err(error) => {
            cold_path();
            let why = match transit.into_inner() {
                Transit::In(Inbound { refusal: Some(refusal), .. }) => refused(refusal, &error),
                _ => DecodeError::Deserialize(error.into()),
            };
            Err(why.into())
        }
    }
}

/// As [`decode`], for a value that comes after the first `head_len_bytes` bytes of the payload. A payload
/// that is shorter holds no value.
///
/// # Errors
/// As [`decode`].
#[inline]
pub fn decode_behind<T: DeserializeOwned>(
    head_len_bytes: usize,
    message: &mut IncomingMessage,
) -> Result<T, DecodeError> {
    let handles = std::mem::take(&mut message.handles);
    decode_as(message.payload.get(head_len_bytes..).unwrap_or_default(), handles)
}

/// Why a message was not decoded in which a reducer has refused something.
///
/// Its `Deserialize` may have gone on, as that of an untagged enum does, and failed for another reason. Serde
/// passes the text of a refusal on, so an error without that text is such another one. It is told with the
/// refusal, which may be the reason still: no variant was left. What only is not to be had now is to be tried
/// again in any case.
fn refused(refusal: TransitError, error: &rmp_serde::decode::Error) -> DecodeError {
    let (text, of_refusal) = (error.to_string(), refusal.to_string());
    if matches!(refusal, TransitError::NotNow(_)) || text.contains(&of_refusal) {
        return DecodeError::Transit(refusal);
    }
    DecodeError::Deserialize(format!("{text} (and before that: {of_refusal})").into())
}

/// Whether the payload ends where the value has ended.
///
/// A `bool` is one byte, and only the end of the payload is no byte.
#[inline]
fn is_at_end<'de, D>(rest: D) -> bool
where
    D: Deserializer<'de, Error = rmp_serde::decode::Error>,
{
    matches!(bool::deserialize(rest), Err(rmp_serde::decode::Error::InvalidMarkerRead(_)))
}
