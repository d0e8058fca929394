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
    carries: PhantomData<fn(Q) -> R>,
}

impl<Q, R> Requests<Q, R> {
    /// The end that puts, and the one that takes.
    pub(crate) fn create(heap: &Heap) -> Result<(Self, Arc<Ring>), StorageError> {
        let both = Ring::create(heap, CAPACITY_ITEMS, type_hash::<Q, R>())?;
        let (sender, receiver) = (both.with_role(Role::SENDER)?, both.with_role(Role::RECEIVER)?);
        Ok((Self { ring: Arc::new(sender), carries: PhantomData }, Arc::new(receiver)))
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
                .map_err(|error| Refused(CallErrorKind::of_put(error)))
        });
        sent.map_err(|Refused(kind)| kind)
    }
}

impl<Q, R> Clone for Requests<Q, R> {
    fn clone(&self) -> Self {
        Self { ring: Arc::clone(&self.ring), carries: PhantomData }
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
        index.serialize(serializer)
    }
}

impl<'de, Q, R> Deserialize<'de> for Requests<Q, R> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let attachment = tensorferry_reduce::take_ring(HandleIndex::deserialize(deserializer)?);
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
        Ok(Self { ring: Arc::new(ring), carries: PhantomData })
    }
}

/// Tells objects with other requests or answers, and queues, between processes of one program.
fn type_hash<Q, R>() -> u64 {
    let mut hasher = DefaultHasher::new();
    ("an object", type_name::<Q>(), type_name::<R>()).hash(&mut hasher);
    hasher.finish()
}
