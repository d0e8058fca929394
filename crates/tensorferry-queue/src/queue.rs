//! The queue with one kind of handle, as Python has it.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tensorferry_storage::{Deadline, Heap, Role, StorageError};

use crate::typed::{Typed, within};
use crate::{PutError, Receiver, Sender};

/// A bounded queue that any number of processes put to and get from.
///
/// Cloning a handle is cheap; sending it through a queue or as a spawn argument gives the other process a handle of
/// its own. Messages that one sender puts are got in that order.
pub struct Queue<T> {
    typed: Typed<T>,
}

impl<T> Queue<T> {
    /// A queue for at most `capacity_items` messages in the default domain. From 1 to 1,048,576; 0 makes 1, because there is no
    /// queue without a bound. It takes 256 bytes for each message that it has room for.
    ///
    /// # Errors
    /// [`StorageError`] when there is no memory for it, or when it is too large.
    pub fn new(capacity_items: usize) -> Result<Self, StorageError> {
        Self::new_in(Heap::current()?, capacity_items)
    }

    /// As [`Queue::new`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`Queue::new`].
    pub fn new_in(heap: &Heap, capacity_items: usize) -> Result<Self, StorageError> {
        Ok(Self { typed: Typed::create(heap, capacity_items)? })
    }

    /// As [`Queue::new`], with room for `max_leases` values that are being worked on at a time (at most 65,536; 320 bytes
    /// each). See [`Queue::get_leased`].
    ///
    /// What may be delivered again cannot be exclusive: a value with a `TensorMut` or a sole end in it is refused by
    /// `put`; freeze the tensor, clone the sender.
    ///
    /// # Errors
    /// As [`Queue::new`].
    pub fn with_leases(capacity_items: usize, max_leases: usize) -> Result<Self, StorageError> {
        Self::with_leases_in(Heap::current()?, capacity_items, max_leases)
    }

    /// As [`Queue::with_leases`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`Queue::new`].
    pub fn with_leases_in(
        heap: &Heap,
        capacity_items: usize,
        max_leases: usize,
    ) -> Result<Self, StorageError> {
        Ok(Self { typed: Typed::with_leases(heap, capacity_items, max_leases)? })
    }

    /// An end that only puts. Its receivers learn when every sender is gone.
    ///
    /// # Errors
    /// [`StorageError`].
    pub fn sender(&self) -> Result<Sender<T>, StorageError> {
        Ok(Sender::over(self.typed.with_role(Role { sends: true, receives: false })?))
    }

    /// An end that only gets. Its senders learn when every receiver is gone.
    ///
    /// # Errors
    /// [`StorageError`].
    pub fn receiver(&self) -> Result<Receiver<T>, StorageError> {
        Ok(Receiver::over(self.typed.with_role(Role { sends: false, receives: true })?))
    }
}

impl<T: Serialize + DeserializeOwned> Queue<T> {
    /// Puts a value; waits while the queue is full.
    ///
    /// # Errors
    /// [`PutError`] with the value: the queue is closed, the only other processes died, or the value cannot be sent.
    pub fn put(&self, value: T) -> Result<(), PutError<T>> {
        self.typed.put(value, Deadline::Never)
    }

    /// As [`Queue::put`], waiting for at most `timeout`.
    ///
    /// # Errors
    /// As [`Queue::put`], or the queue stayed full.
    pub fn put_timeout(&self, value: T, timeout: Duration) -> Result<(), PutError<T>> {
        self.typed.put(value, within(timeout))
    }

    /// As [`Queue::put`], without waiting.
    ///
    /// # Errors
    /// As [`Queue::put`], or the queue is full.
    pub fn put_nowait(&self, value: T) -> Result<(), PutError<T>> {
        self.typed.put(value, Deadline::Now)
    }
}

crate::getting::getting!(Queue);
crate::busy_poll::busy_poll!(Queue);
crate::status::status!(Queue);

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self { typed: self.typed.clone() }
    }
}

impl<T> Serialize for Queue<T> {
    /// Sends a handle on the queue. Works only inside a message.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let index = tensorferry_reduce::give_ring(self.typed.ring().attachment());
        index.map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de, T> Deserialize<'de> for Queue<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let attachment = tensorferry_reduce::take_ring(u32::deserialize(deserializer)?);
        let typed = attachment.map_err(serde::de::Error::custom).and_then(|attachment| {
            Typed::open(attachment, Role { sends: true, receives: true }).map_err(serde::de::Error::custom)
        })?;
        Ok(Self { typed })
    }
}
