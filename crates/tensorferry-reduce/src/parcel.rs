//! A value packed in shared memory, outside of any queue.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_domain::Member;
use tensorferry_storage::{Heap, Parcel as RawParcel};

use crate::{DecodeError, EncodeError, decode, with_encoded};

/// A value that another member of the domain can open by a plain number: the arguments of a process that is being
/// started, for example. Keep it until the other side has opened it or is gone, and no longer: an end of a queue in it counts as
/// an end, so that nobody is told that the other side is gone. [`Parcel::post`] leaves that to the library.
#[derive(Debug)]
pub struct Parcel {
    raw: RawParcel,
}

impl Parcel {
    /// Packs a value. Exclusive tensors in it are given away.
    ///
    /// # Errors
    /// [`EncodeError`]; the value is whole then.
    pub fn pack<T: Serialize + ?Sized>(heap: &Heap, value: &T) -> Result<Self, EncodeError> {
        with_encoded(heap, value, |payload, handles| {
            Ok(Self { raw: RawParcel::pack(heap, payload, std::mem::take(handles))? })
        })
    }

    /// The number by which [`Parcel::open`] finds it.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.raw.id()
    }

    /// Leaves the parcel to its heap, which keeps it until `to` has opened it or is no member any more.
    pub fn post(self, to: Member) {
        self.raw.post(to);
    }

    /// Gives exclusive tensors in it back to where they came from, unless it was opened.
    pub fn take_back(self) {
        self.raw.take_back();
    }

    /// Opens the parcel with this number. A parcel can be opened once.
    ///
    /// # Errors
    /// [`DecodeError`] when the number names no parcel, or the parcel holds no `T`.
    pub fn open<T: DeserializeOwned>(heap: &Heap, id: u64) -> Result<T, DecodeError> {
        decode(&mut RawParcel::open(heap, id)?)
    }
}
