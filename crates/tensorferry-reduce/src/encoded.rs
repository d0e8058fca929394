//! A value that is encoded once, for any number of receivers.

use std::fmt;

use serde::Serialize;
use tensorferry_storage::{Heap, OutgoingHandle, OutgoingHandles, Parcel as RawParcel};

use crate::{EncodeError, Parcel, TransitError, with_encoded};

/// A value as it was when it was encoded, of which any number of [`Parcel`]s can be made.
///
/// It holds what the value holds. Tensors of other domains were copied once, and what `Serialize` does is
/// not done again. An end of a queue in it counts as an end of that queue for as long as it exists.
pub struct Encoded {
    heap: Heap,
    payload: Box<[u8]>,
    handles: OutgoingHandles,
}

impl Encoded {
    /// Encodes a value for members of the domain of `heap`.
    ///
    /// # Errors
    /// [`EncodeError`]; [`TransitError::NotRepeatable`] when it holds something that only one receiver can
    /// have, which the value then has still.
    pub fn new<T: Serialize + ?Sized>(heap: &Heap, value: &T) -> Result<Self, EncodeError> {
        let encoded = with_encoded(heap, value, |payload, handles| {
            // What is left in `handles` is taken back.
            if handles.iter().any(OutgoingHandle::is_exclusive) {
                return Err(EncodeError::Transit(TransitError::NotRepeatable));
            }
            Ok(Self { heap: heap.clone(), payload: payload.into(), handles: std::mem::take(handles) })
        })?;
        // One that is too large for a parcel is an error here, and not when somebody waits for it.
        encoded.pack().map(|_| encoded)
    }

    /// Packs the value once more.
    ///
    /// # Errors
    /// [`EncodeError::Storage`] when there is no memory for it.
    pub fn pack(&self) -> Result<Parcel, EncodeError> {
        let again = self.handles.iter().map(OutgoingHandle::try_clone).collect::<Option<_>>();
        let handles = again.ok_or(TransitError::NotRepeatable)?;
        Ok(Parcel::over(RawParcel::pack(&self.heap, &self.payload, handles)?))
    }
}

impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoded")
            .field("payload_len_bytes", &self.payload.len())
            .field("n_handles", &self.handles.len())
            .finish_non_exhaustive()
    }
}
