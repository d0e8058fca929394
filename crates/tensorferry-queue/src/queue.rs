//! The queue with one kind of handle, as in Python.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_storage::{Deadline, Heap, Role, StorageError};

use crate::typed::Typed;
use crate::{PutError, Receiver, Sender};

/// A bounded queue that any number of processes put to and get from.
///
/// Cloning a handle is cheap. Sending a handle through a queue or as a spawn argument gives the other process
/// a handle of its own. Receivers get the messages of one sender in the order in which it put them.
pub struct Queue<T> {
    typed: Typed<T>,
}

impl<T> Queue<T> {
    /// Makes a queue for at most `capacity_items` messages in the default domain.
    ///
    /// The capacity is from 1 to 1,048,576. 0 makes a queue for 1 message, because every queue is bounded.
    /// The queue takes 256 bytes for each message that it has room for.
    ///
    /// # Errors
    /// [`StorageError`] when there is no memory for the queue, or when the capacity is too large.
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

    /// As [`Queue::new`], with room for `max_leases` values that are leased at the same time (at most 65,536;
    /// 320 bytes each). See [`Queue::get_leased`].
    ///
    /// A message of such a queue may be delivered more than once, so nothing in it can be exclusive: `put`
    /// refuses a value that holds a `TensorMut` or a sole end. Freeze the tensor, or send a [`Sender`]
    /// instead.
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

    /// Makes an end that only puts. Receivers of the queue learn when every sender is gone.
    ///
    /// # Errors
    /// [`StorageError`].
    pub fn sender(&self) -> Result<Sender<T>, StorageError> {
        Ok(Sender::over(self.typed.with_role(Role::SENDER)?))
    }

    /// Makes an end that only gets. Senders of the queue learn when every receiver is gone.
    ///
    /// # Errors
    /// [`StorageError`].
    pub fn receiver(&self) -> Result<Receiver<T>, StorageError> {
        Ok(Receiver::over(self.typed.with_role(Role::RECEIVER)?))
    }
}

impl<T> Queue<T> {
    pub(crate) fn over(typed: Typed<T>) -> Self {
        Self { typed }
    }
}

impl<T: Serialize + DeserializeOwned> Queue<T> {
    /// Puts a value; waits while the queue is full.
    ///
    /// ```
    /// use tensorferry_queue::{PutErrorKind, Queue};
    ///
    /// let queue = Queue::new(2)?;
    /// queue.put("first".to_owned())?;
    /// queue.close();
    /// let refused = queue.put("second".to_owned()).unwrap_err();
    /// assert!(matches!(refused.kind, PutErrorKind::Closed));
    /// assert_eq!(refused.into_value(), "second"); // nothing was sent
    /// assert_eq!(queue.get()?, "first");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks while the queue is full. A receiver that takes a message wakes the call, and so do
    /// [`Queue::close`] and the end or death of the other processes that can receive. The call polls for a
    /// moment before it sleeps: see [`Queue::set_busy_poll`].
    ///
    /// # Errors
    /// A [`PutError`] holds the value. Its [`kind`](PutError::kind) is one of
    ///
    /// - [`Closed`](crate::PutErrorKind::Closed): the queue is closed.
    /// - [`Disconnected`](crate::PutErrorKind::Disconnected): every other process that could receive let go
    ///   of its end.
    /// - [`PeerDied`](crate::PutErrorKind::PeerDied): as `Disconnected`, and at least one of them died.
    /// - [`Encode`](crate::PutErrorKind::Encode): the value cannot be sent, or there is no memory for it.
    /// - [`NotRepeatable`](crate::PutErrorKind::NotRepeatable): the value holds something exclusive, and this
    ///   is a queue [with leases](Queue::with_leases).
    /// - [`TooManyHandles`](crate::PutErrorKind::TooManyHandles): the value holds more handles than a message
    ///   can carry.
    /// - [`DeclaredDead`](crate::PutErrorKind::DeclaredDead): another member of the domain declared this
    ///   process dead.
    /// - [`Other`](crate::PutErrorKind::Other): the ring failed in a way that this version of the crate does
    ///   not know.
    #[doc(alias = "send")]
    pub fn put(&self, value: T) -> Result<(), PutError<T>> {
        self.typed.put(value, Deadline::Never)
    }

    /// As [`Queue::put`], waiting for at most `timeout`.
    ///
    /// # Blocking
    /// As [`Queue::put`], for at most `timeout`.
    ///
    /// # Errors
    /// As [`Queue::put`], and [`Full`](crate::PutErrorKind::Full) when the queue stayed full.
    pub fn put_timeout(&self, value: T, timeout: Duration) -> Result<(), PutError<T>> {
        self.typed.put(value, Deadline::within(timeout))
    }

    /// As [`Queue::put`], without waiting.
    ///
    /// ```
    /// use tensorferry_queue::Queue;
    ///
    /// let queue = Queue::new(1)?;
    /// queue.put_nowait(1)?;
    /// let refused = queue.put_nowait(2).unwrap_err();
    /// assert!(refused.is_full());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Never waits for room in the queue.
    ///
    /// # Errors
    /// As [`Queue::put`], and [`Full`](crate::PutErrorKind::Full) when the queue is full.
    #[doc(alias = "try_put")]
    #[doc(alias = "try_send")]
    pub fn put_nowait(&self, value: T) -> Result<(), PutError<T>> {
        self.typed.put(value, Deadline::Now)
    }
}

crate::awaiting::getting_async!(Queue);
crate::awaiting::putting_async!(Queue);
crate::getting::getting!(Queue);
crate::join::joining!(Queue);
crate::busy_poll::busy_poll!(Queue);
crate::status::status!(Queue);
crate::ends::end!(Queue, Role::BOTH);
