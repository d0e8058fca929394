//! Ends of queues whose values have a type that is known at run time only.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use tensorferry_reduce::{ANY_TYPE, HandleIndex};
use tensorferry_storage::{Attachment, Heap, Ring, Role, StorageError};

use crate::error::OpenError;
use crate::typed::Typed;
use crate::{Queue, Receiver, Sender};

/// A [`Queue`], [`Sender`], [`Receiver`] or sole end that was received, of whatever values.
///
/// A program that knows the type receives the end as what it is, and an end of a queue of other values is
/// refused. This is for a program that finds out the type in another way, and for other languages. The type
/// that it names is not checked: values that are none are an error of `get`, here or on the other side.
///
/// ```
/// use tensorferry_queue::{AnyEnd, Queue};
/// use tensorferry_reduce::Parcel;
/// # use tensorferry_storage::Heap;
///
/// let queue = Queue::<String>::new(4)?;
/// let parcel = Parcel::pack(Heap::current()?, &queue.sender()?)?;
/// let end: AnyEnd = Parcel::open(Heap::current()?, parcel.id())?;
/// assert!(end.sends() && !end.receives());
/// end.into_sender::<&str>()?; // or any other type that is written as a text
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AnyEnd {
    attachment: Attachment,
}

impl AnyEnd {
    /// Makes a queue for at most `capacity_items` messages (at least one) of any type in the default domain.
    /// A process that receives an end of it may take it for a queue of whatever it likes.
    ///
    /// # Errors
    /// As [`Queue::new`].
    pub fn create(capacity_items: usize) -> Result<Self, StorageError> {
        Self::create_in(Heap::current()?, capacity_items)
    }

    /// As [`AnyEnd::create`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`Queue::new`].
    pub fn create_in(heap: &Heap, capacity_items: usize) -> Result<Self, StorageError> {
        Self::create_with_leases_in(heap, capacity_items, 0)
    }

    /// As [`AnyEnd::create`], with room for `max_leases` values that are leased at the same time: what
    /// [`Queue::with_leases`] is for a queue.
    ///
    /// # Errors
    /// As [`Queue::with_leases`].
    pub fn create_with_leases(capacity_items: usize, max_leases: usize) -> Result<Self, StorageError> {
        Self::create_with_leases_in(Heap::current()?, capacity_items, max_leases)
    }

    /// As [`AnyEnd::create_with_leases`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`Queue::with_leases`].
    pub fn create_with_leases_in(
        heap: &Heap,
        capacity_items: usize,
        max_leases: usize,
    ) -> Result<Self, StorageError> {
        let ring = Ring::create_with_leases(heap, capacity_items, max_leases, ANY_TYPE)?;
        Ok(Self { attachment: ring.attachment().with_role(Role::BOTH) })
    }

    /// An end that only puts, of a queue or of a sender.
    ///
    /// # Errors
    /// [`OpenError::WrongRole`] when this end may not put.
    pub fn sender(&self) -> Result<Self, OpenError> {
        if self.sends() { Ok(self.with_role(Role::SENDER)) } else { Err(OpenError::WrongRole) }
    }

    /// An end that only gets, of a queue or of a receiver.
    ///
    /// # Errors
    /// [`OpenError::WrongRole`] when this end may not get.
    pub fn receiver(&self) -> Result<Self, OpenError> {
        if self.receives() { Ok(self.with_role(Role::RECEIVER)) } else { Err(OpenError::WrongRole) }
    }

    pub(crate) fn with_role(&self, role: Role) -> Self {
        Self { attachment: self.attachment.with_role(role) }
    }

    /// Whether it may put.
    #[must_use]
    pub fn sends(&self) -> bool {
        self.attachment.role().sends
    }

    /// Whether it may get.
    #[must_use]
    pub fn receives(&self) -> bool {
        self.attachment.role().receives
    }

    /// The end as a sender.
    ///
    /// # Errors
    /// [`OpenError::WrongRole`] when it may not put; [`OpenError::Storage`] when there is no memory to map
    /// the queue.
    pub fn into_sender<T>(self) -> Result<Sender<T>, OpenError> {
        Ok(Sender::over(Typed::open_untyped(self.attachment, Role::SENDER)?))
    }

    /// The end as a receiver.
    ///
    /// # Errors
    /// As [`AnyEnd::into_sender`], when it may not get.
    pub fn into_receiver<T>(self) -> Result<Receiver<T>, OpenError> {
        Ok(Receiver::over(Typed::open_untyped(self.attachment, Role::RECEIVER)?))
    }

    /// The end as a queue, which has both roles.
    ///
    /// # Errors
    /// As [`AnyEnd::into_sender`], when it does not have both.
    pub fn into_queue<T>(self) -> Result<Queue<T>, OpenError> {
        Ok(Queue::over(Typed::open_untyped(self.attachment, Role::BOTH)?))
    }
}

impl Clone for AnyEnd {
    fn clone(&self) -> Self {
        Self { attachment: self.attachment.with_role(self.attachment.role()) }
    }
}

impl Serialize for AnyEnd {
    /// Sends another handle with the same role. Works only inside a message.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let index = tensorferry_reduce::give_ring(&self.attachment);
        index.map_err(ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for AnyEnd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let attachment = tensorferry_reduce::take_ring(HandleIndex::deserialize(deserializer)?);
        Ok(Self { attachment: attachment.map_err(de::Error::custom)? })
    }
}

impl fmt::Debug for AnyEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyEnd").field("role", &self.attachment.role()).finish_non_exhaustive()
    }
}
