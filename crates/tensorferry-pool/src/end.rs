//! The rings between a pool and its workers, and how a worker gets its ends of them.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use tensorferry_storage::{Heap, Ring, Role, StorageError};

/// What every ring of a pool says that it carries.
const TYPE_HASH: u64 = u64::from_le_bytes(*b"TFPOOL\x01\0");

/// An end of a ring. Serialised inside a message, it gives the receiver an end in the same role.
pub(crate) struct End {
    ring: Arc<Ring>,
}

impl End {
    /// A ring for at most `capacity_items` messages, of which `max_leases` can be leased at a time. This end
    /// puts and takes.
    pub(crate) fn create(
        heap: &Heap,
        capacity_items: usize,
        max_leases: usize,
    ) -> Result<Self, StorageError> {
        let ring = Ring::create_with_leases(heap, capacity_items, max_leases, TYPE_HASH)?;
        Ok(Self { ring: Arc::new(ring) })
    }

    pub(crate) fn sender(&self) -> Result<Self, StorageError> {
        self.with_role(Role::SENDER)
    }

    pub(crate) fn receiver(&self) -> Result<Self, StorageError> {
        self.with_role(Role::RECEIVER)
    }

    fn with_role(&self, role: Role) -> Result<Self, StorageError> {
        Ok(Self { ring: Arc::new(self.ring.with_role(role)?) })
    }

    pub(crate) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("End").field("role", &self.ring.attachment().role()).finish_non_exhaustive()
    }
}

impl Serialize for End {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let index = tensorferry_reduce::give_ring(self.ring.attachment()).map_err(ser::Error::custom)?;
        index.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for End {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let attachment =
            tensorferry_reduce::take_ring(tensorferry_reduce::HandleIndex::deserialize(deserializer)?);
        let ring = Ring::attach(attachment.map_err(de::Error::custom)?).map_err(de::Error::custom)?;
        if ring.type_hash() != TYPE_HASH {
            return Err(de::Error::custom("the queue is none of a pool"));
        }
        Ok(Self { ring: Arc::new(ring) })
    }
}
