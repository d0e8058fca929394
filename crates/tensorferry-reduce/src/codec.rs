//! From a value to a message and back.

use std::cell::RefCell;
use std::io::ErrorKind;

use serde::de::DeserializeOwned;
use serde::{Deserialize as _, Deserializer, Serialize};
use tensorferry_storage::{Heap, IncomingMessage, OutgoingHandles, Scratch};

use crate::transit::{Inbound, Outbound, Transit, during, during_to};
use crate::{DecodeError, EncodeError};

/// Serialises `value` for the domain of `heap` and hands payload and handles to `send`, which takes the handles that it
/// sends. What it leaves there, because it fails, is whole again.
///
/// The bytes are MessagePack, structs with their field names, so that every serde type travels: flattened, untagged and
/// skipped fields, `serde_json::Value`. (What no self-describing format can tell apart is lost: `Some(None)` and
/// `Some(())` arrive as `None`. In an untagged enum the first variant that reads an exclusive tensor takes it, also if
/// that variant then does not fit. A `Vec<u8>` is a sequence of numbers to serde; the crate `serde_bytes` makes it
/// bytes. Bytes are also what describes a tensor: in an untagged enum a variant of bytes has to stand behind those of
/// tensors.) `value` is serialised on the calling thread: what cannot be sent is an error here.
///
/// # Errors
/// [`EncodeError`] when the value cannot be serialised; then `send` is not called. Otherwise what `send` returns.
pub fn with_encoded<T, R, E>(
    heap: &Heap,
    value: &T,
    send: impl FnOnce(&[u8], &mut OutgoingHandles) -> Result<R, E>,
) -> Result<R, E>
where
    T: Serialize + ?Sized,
    E: From<EncodeError>,
{
    let mut buffer = Scratch::take();
    buffer.clear();
    let mut transit = RefCell::new(Transit::Out(Outbound::new()));
    let encoded = during_to(heap, &transit, || {
        value.serialize(&mut rmp_serde::Serializer::new(&mut *buffer).with_struct_map().with_human_readable())
    });
    let Transit::Out(outbound) = transit.get_mut() else {
        return Err(EncodeError::from(crate::TransitError::NotInTransit).into());
    };
    if let Err(error) = encoded {
        // What was given away comes back as `outbound` is dropped.
        let refusal = outbound.refusal.take();
        return Err(refusal
            .map_or_else(|| EncodeError::Serialize(error.into()), EncodeError::Transit)
            .into());
    }
    send(&buffer, &mut outbound.handles)
}

/// Makes a value of a message that was taken. Nothing in the payload is trusted.
///
/// # Errors
/// [`DecodeError`]; everything that the message held is let go of then, as far as the value has not taken it.
pub fn decode<T: DeserializeOwned>(message: &mut IncomingMessage) -> Result<T, DecodeError> {
    let inbound = Inbound { handles: std::mem::take(&mut message.handles), refusal: None };
    let transit = RefCell::new(Transit::In(inbound));
    // Bytes and strings are read where they lie, so that they are copied once, into the value.
    let mut payload = rmp_serde::Deserializer::from_read_ref(&*message.payload).with_human_readable();
    match during(&transit, || T::deserialize(&mut payload)) {
        Ok(value) if is_at_end(&mut payload) => Ok(value),
        Ok(_) => Err(DecodeError::LeftOver),
        Err(error) => Err(match transit.into_inner() {
            Transit::In(Inbound { refusal: Some(refusal), .. }) => DecodeError::Transit(refusal),
            _ => DecodeError::Deserialize(error.into()),
        }),
    }
}

/// Whether nothing begins where the value has ended. A `bool` does not look into what it finds, so that only an end here is
/// taken for one.
fn is_at_end<'de, D>(rest: D) -> bool
where
    D: Deserializer<'de, Error = rmp_serde::decode::Error>,
{
    matches!(
        bool::deserialize(rest),
        Err(rmp_serde::decode::Error::InvalidMarkerRead(error)) if error.kind() == ErrorKind::UnexpectedEof
    )
}
