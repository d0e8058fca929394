//! The ring through which all requests to an object go.

use std::any::type_name;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::marker::PhantomData;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use tensorferry_reduce::{HandleIndex, with_encoded_behind};
use tensorferry_storage::{Deadline, Heap, Ring, Role, StorageError};

use crate::error::CallErrorKind;
use crate::head::Head;

/// How many requests may wait.
const CAPACITY_ITEMS: usize = 64;

/// One end: that of the owner takes, those of callers put.
pub(crate) struct Requests<Q, R> {
    ring: Arc<Ring>,
    /// The process of the object.
    owner_pid: u32,
    carries: PhantomData<fn(Q) -> R>,
}

impl<Q, R> Requests<Q, R> {
    /// The end that puts, and the one that takes.
    pub(crate) fn create(heap: &Heap) -> Result<(Self, Arc<Ring>), StorageError> {
        let both = Ring::create(heap, CAPACITY_ITEMS, type_hash::<Q, R>())?;
        let (sender, receiver) = (both.with_role(Role::SENDER)?, both.with_role(Role::RECEIVER)?);
        let owner_pid = std::process::id();
        Ok((Self { ring: Arc::new(sender), owner_pid, carries: PhantomData }, Arc::new(receiver)))
    }

    /// The ID of the object's process, as that knows itself.
    pub(crate) const fn owner_pid(&self) -> u32 {
        self.owner_pid
    }

    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }
}

impl<Q, R> Requests<Q, R> {
    /// Sends what follows a head.
    pub(crate) fn put<T: Serialize>(
        &self,
        head: Head,
        value: &T,
        deadline: Deadline,
    ) -> Result<(), CallErrorKind> {
        /// Either error, on its way through the encoder.
        struct Refused(CallErrorKind);

        impl From<tensorferry_reduce::EncodeError> for Refused {
            fn from(error: tensorferry_reduce::EncodeError) -> Self {
                Self(CallErrorKind::Unsendable(error))
            }
        }

        let sent = with_encoded_behind(self.ring.heap(), &head.to_bytes(), value, |payload, handles| {
            self.ring
                .put_from(payload, handles, deadline)
                .map_err(|error| Refused(CallErrorKind::of_put(error, self.owner_pid)))
        });
        sent.map_err(|Refused(kind)| kind)
    }
}

impl<Q, R> Clone for Requests<Q, R> {
    fn clone(&self) -> Self {
        Self { ring: Arc::clone(&self.ring), ..*self }
    }
}

impl<Q, R> fmt::Debug for Requests<Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("len", &self.ring.len()).finish_non_exhaustive()
    }
}

impl<Q, R> Serialize for Requests<Q, R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let index = tensorferry_reduce::give_ring(self.ring.attachment()).map_err(ser::Error::custom)?;
        (index, self.owner_pid).serialize(serializer)
    }
}

impl<'de, Q, R> Deserialize<'de> for Requests<Q, R> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (index, owner_pid) = <(HandleIndex, u32)>::deserialize(deserializer)?;
        let attachment = tensorferry_reduce::take_ring(index);
        let attachment = attachment.map_err(de::Error::custom)?;
        if attachment.role() != Role::SENDER {
            return Err(de::Error::custom("the message does not grant calling an object"));
        }
        let ring = Ring::attach(attachment).map_err(de::Error::custom)?;
        if ring.type_hash() != type_hash::<Q, R>() {
            let (request, answer) = (type_name::<Q>(), type_name::<R>());
            return Err(de::Error::custom(format!(
                "the object has other requests than {request}, or other answers than {answer}"
            )));
        }
        Ok(Self { ring: Arc::new(ring), owner_pid, carries: PhantomData })
    }
}

/// Tells objects with other requests or answers, and queues, between processes of one program.
fn type_hash<Q, R>() -> u64 {
    let mut hasher = DefaultHasher::new();
    ("an object", type_name::<Q>(), type_name::<R>()).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use tensorferry_queue::channel_in;
    use tensorferry_reduce::Parcel;

    use super::*;

    /// What a receiver says of something that it is to take for the end of a caller.
    fn refusal(sent: &impl Serialize) -> String {
        let heap = Heap::current().unwrap();
        let parcel = Parcel::pack(heap, sent).unwrap();
        Parcel::open::<Requests<u8, u16>>(heap, parcel.id()).unwrap_err().to_string()
    }

    #[test]
    fn an_end_that_takes_is_none_of_a_caller() {
        let (_, ring) = Requests::<u8, u16>::create(Heap::current().unwrap()).unwrap();
        let both = ring.with_role(Role { sends: true, ..Role::RECEIVER }).unwrap();
        for ring in [ring, Arc::new(both)] {
            let forged = Requests::<u8, u16> { ring, owner_pid: 0, carries: PhantomData };
            let refusal = refusal(&forged);
            assert!(refusal.contains("does not grant calling an object"), "{refusal}");
        }
    }

    #[test]
    fn an_end_for_other_messages_is_none_of_a_caller() {
        let heap = Heap::current().unwrap();
        let other_requests = Requests::<i8, u16>::create(heap).unwrap().0;
        let other_answers = Requests::<u8, i16>::create(heap).unwrap().0;
        let (queue, _receiver) = channel_in::<(&str, &str, &str)>(heap, 1).unwrap();
        let refusals = [refusal(&other_requests), refusal(&other_answers), refusal(&(queue, 0_u32))];
        for refusal in refusals {
            assert!(refusal.contains("other requests than u8, or other answers than u16"), "{refusal}");
        }
    }
}
