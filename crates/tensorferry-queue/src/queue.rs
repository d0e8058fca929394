//! The queue with one kind of handle, as Python has it.

use std::fmt;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tensorferry_storage::{Heap, Patience, Role};

use crate::typed::{Typed, within};
use crate::{OpenError, PutError, Receiver, Sender};

/// A bounded queue that any number of processes put to and get from.
///
/// Cloning a handle is cheap; sending it through a queue or as a spawn argument gives the other process a handle of
/// its own. Messages that one sender puts are got in that order.
pub struct Queue<T> {
    typed: Typed<T>,
}

impl<T> Queue<T> {
    /// A queue for at most `maxsize` messages in the default domain. From 1 to 1,048,576; 0 makes 1, because there is no
    /// queue without a bound. It takes 256 bytes for each message that it has room for.
    ///
    /// # Errors
    /// [`OpenError::Storage`] when there is no memory for it, or when it is too large.
    pub fn new(maxsize: usize) -> Result<Self, OpenError> {
        Self::new_in(Heap::current()?, maxsize)
    }

    /// As [`Queue::new`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`Queue::new`].
    pub fn new_in(heap: &Heap, maxsize: usize) -> Result<Self, OpenError> {
        Ok(Self { typed: Typed::create(heap, maxsize)? })
    }

    /// As [`Queue::new`], with room for `max_leases` values that are being worked on at a time (at most 65,536; 320 bytes
    /// each). See [`Queue::get_leased`].
    ///
    /// What may be delivered again cannot be exclusive: a value with a `TensorMut` or a sole end in it is refused by
    /// `put`; freeze the tensor, clone the sender.
    ///
    /// # Errors
    /// As [`Queue::new`].
    pub fn with_leases(maxsize: usize, max_leases: usize) -> Result<Self, OpenError> {
        Self::with_leases_in(Heap::current()?, maxsize, max_leases)
    }

    /// As [`Queue::with_leases`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`Queue::new`].
    pub fn with_leases_in(heap: &Heap, maxsize: usize, max_leases: usize) -> Result<Self, OpenError> {
        Ok(Self { typed: Typed::with_leases(heap, maxsize, max_leases)? })
    }

    /// An end that only puts. Its receivers learn when every sender is gone.
    ///
    /// # Errors
    /// [`OpenError::Storage`].
    pub fn sender(&self) -> Result<Sender<T>, OpenError> {
        Ok(Sender::over(self.typed.with_role(Role { sends: true, receives: false })?))
    }

    /// An end that only gets. Its senders learn when every receiver is gone.
    ///
    /// # Errors
    /// [`OpenError::Storage`].
    pub fn receiver(&self) -> Result<Receiver<T>, OpenError> {
        Ok(Receiver::over(self.typed.with_role(Role { sends: false, receives: true })?))
    }

    /// How many messages fit.
    #[must_use]
    pub fn maxsize(&self) -> usize {
        self.typed.ring().capacity_items()
    }

    /// About how many messages are in the queue; others may be putting and getting. Leased ones that came back count too, so that
    /// it may be more than [`Queue::maxsize`].
    #[must_use]
    pub fn qsize(&self) -> usize {
        self.typed.ring().len()
    }

    /// Whether the queue seems empty.
    #[must_use]
    pub fn empty(&self) -> bool {
        self.qsize() == 0
    }

    /// Whether the queue seems full: whether a put would wait. Leased messages take no room.
    #[must_use]
    pub fn full(&self) -> bool {
        self.typed.ring().is_full()
    }

    /// Refuses every further put, in every process. What is in the queue can still be got; after that `get` returns
    /// [`GetError::Closed`](crate::GetError::Closed), to every receiver: no sentinels are needed.
    pub fn close(&self) {
        self.typed.ring().close();
    }

    /// Whether the queue was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.typed.ring().is_closed()
    }
}

impl<T: Serialize + DeserializeOwned> Queue<T> {
    /// Puts a value; waits while the queue is full.
    ///
    /// # Errors
    /// [`PutError`] with the value: the queue is closed, the only other processes died, or the value cannot be sent.
    pub fn put(&self, value: T) -> Result<(), PutError<T>> {
        self.typed.put(value, Patience::Forever)
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
        self.typed.put(value, Patience::None)
    }
}

crate::getting::getting!(Queue);
crate::busy_poll::busy_poll!(Queue);

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self { typed: self.typed.clone() }
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("qsize", &self.qsize())
            .field("maxsize", &self.maxsize())
            .finish_non_exhaustive()
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
