//! A value packed in shared memory, outside any queue.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_domain::Member;
use tensorferry_storage::{Heap, Parcel as RawParcel};

use crate::{DecodeError, EncodeError, decode, with_encoded};

/// A value that another member of the domain can open by a plain number. The arguments of a process that is
/// being started are one.
///
/// Keep the parcel until the other side has opened it or is gone, and no longer. An end of a queue in the
/// parcel counts as an end of that queue. While it exists, the queue does not report that its ends of this
/// kind are gone. [`Parcel::post`] and [`Parcel::leave`] leave this to the library.
#[derive(Debug)]
pub struct Parcel {
    raw: RawParcel,
}

impl Parcel {
    /// Packs a value. This moves the exclusive tensors in it into the parcel.
    ///
    /// # Errors
    /// [`EncodeError`]; the value is unchanged then.
    pub fn pack<T: Serialize + ?Sized>(heap: &Heap, value: &T) -> Result<Self, EncodeError> {
        with_encoded(heap, value, |payload, handles| {
            Ok(Self { raw: RawParcel::pack(heap, payload, std::mem::take(handles))? })
        })
    }

    pub(crate) fn over(raw: RawParcel) -> Self {
        Self { raw }
    }

    /// The number by which [`Parcel::open`] finds the parcel.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.raw.id()
    }

    /// Hands the parcel to its heap, which keeps it until `to` has opened it or is no longer a member.
    pub fn post(self, to: Member) {
        self.raw.post(to);
    }

    /// Hands the parcel to its heap, which keeps it until a process has opened it, or this one ends.
    pub fn leave(self) {
        self.raw.leave();
    }

    /// Whether a process has opened the parcel, or is about to.
    #[must_use]
    pub fn is_opened(&self) -> bool {
        self.raw.is_opened()
    }

    /// Gives the exclusive tensors in the parcel back to the value that was packed, unless the parcel was
    /// opened. Returns whether it was not.
    pub fn take_back(self) -> bool {
        self.raw.take_back()
    }

    /// Opens the parcel with this number, which is possible once.
    ///
    /// # Errors
    /// [`DecodeError`] when the number names no parcel, or the parcel holds no `T`.
    pub fn open<T: DeserializeOwned>(heap: &Heap, id: u64) -> Result<T, DecodeError> {
        decode(&mut RawParcel::open(heap, id)?)
    }
}
