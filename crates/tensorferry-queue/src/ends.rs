//! Ends with one role.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_storage::{Deadline, Heap, Role, StorageError};

use crate::PutError;
use crate::typed::Typed;

/// The sending end of a channel.
///
/// It can be cloned and sent. The channel has a sender as long as one exists in any process, or in a message
/// that is on its way.
///
/// A sender in the receiver's own process is no promise of more. When all other processes have let go of
/// theirs, a receiver is told so once ([`GetError::Disconnected`](crate::GetError::Disconnected) or
/// [`PeerDied`](crate::GetError::PeerDied)), and an iteration ends. The next get waits again. So a process
/// that keeps a sender for workers still to come goes on after that error, and starts a new iteration.
pub struct Sender<T> {
    typed: Typed<T>,
}

/// The receiving end of a channel.
///
/// It can be cloned and sent. Each message goes to one receiver.
pub struct Receiver<T> {
    typed: Typed<T>,
}

/// Makes a channel for at most `capacity_items` messages (at least one) in the default domain.
///
/// # Errors
/// As [`Queue::new`](crate::Queue::new).
pub fn channel<T>(capacity_items: usize) -> Result<(Sender<T>, Receiver<T>), StorageError> {
    channel_in(Heap::current()?, capacity_items)
}

/// As [`channel`], in the domain of `heap`.
///
/// # Errors
/// As [`channel`].
pub fn channel_in<T>(heap: &Heap, capacity_items: usize) -> Result<(Sender<T>, Receiver<T>), StorageError> {
    ends_of(&Typed::create(heap, capacity_items)?)
}

/// As [`channel`], with room for `max_leases` values that are leased at the same time: what
/// [`Queue::with_leases`](crate::Queue::with_leases) is for a queue.
///
/// ```
/// use tensorferry_queue::channel_with_leases;
///
/// let (jobs, worker) = channel_with_leases(16, 4)?;
/// jobs.put(7)?;
/// drop(worker.get_leased()?); // a worker that is killed does the same
/// let job = worker.get_leased()?;
/// assert_eq!((*job, job.deliveries()), (7, 2));
/// job.ack()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`Queue::with_leases`](crate::Queue::with_leases).
pub fn channel_with_leases<T>(
    capacity_items: usize,
    max_leases: usize,
) -> Result<(Sender<T>, Receiver<T>), StorageError> {
    channel_with_leases_in(Heap::current()?, capacity_items, max_leases)
}

/// As [`channel_with_leases`], in the domain of `heap`.
///
/// # Errors
/// As [`channel_with_leases`].
pub fn channel_with_leases_in<T>(
    heap: &Heap,
    capacity_items: usize,
    max_leases: usize,
) -> Result<(Sender<T>, Receiver<T>), StorageError> {
    ends_of(&Typed::with_leases(heap, capacity_items, max_leases)?)
}

fn ends_of<T>(both: &Typed<T>) -> Result<(Sender<T>, Receiver<T>), StorageError> {
    let sender = both.with_role(Role::SENDER)?;
    let receiver = both.with_role(Role::RECEIVER)?;
    Ok((Sender::over(sender), Receiver::over(receiver)))
}

impl<T> Sender<T> {
    pub(crate) fn over(typed: Typed<T>) -> Self {
        Self { typed }
    }

    /// Whether nobody can receive any more, in any process, so that every later put is refused. A receiver
    /// that was killed counts for a moment.
    #[must_use]
    pub fn is_disconnected(&self) -> bool {
        !self.typed.ring().has_receivers()
    }
}

impl<T> Receiver<T> {
    pub(crate) fn over(typed: Typed<T>) -> Self {
        Self { typed }
    }
}

impl<T: Serialize + DeserializeOwned> Sender<T> {
    /// Puts a value; waits while the channel is full.
    ///
    /// ```
    /// use tensorferry_queue::{PutErrorKind, channel};
    ///
    /// let (sender, receiver) = channel(1)?;
    /// sender.put(1)?;
    /// drop(receiver);
    /// let refused = sender.put(2).unwrap_err();
    /// assert!(matches!(refused.kind, PutErrorKind::Disconnected));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// As [`Queue::put`](crate::Queue::put). The end or death of the last receiver wakes the call.
    ///
    /// # Errors
    /// As [`Queue::put`](crate::Queue::put). [`Disconnected`](crate::PutErrorKind::Disconnected) and
    /// [`PeerDied`](crate::PutErrorKind::PeerDied) are returned when no receiver is left.
    #[doc(alias = "send")]
    pub fn put(&self, value: T) -> Result<(), PutError<T>> {
        self.typed.put(value, Deadline::Never)
    }

    /// As [`Sender::put`], waiting for at most `timeout`.
    ///
    /// # Blocking
    /// As [`Sender::put`], for at most `timeout`.
    ///
    /// # Errors
    /// As [`Sender::put`], and [`Full`](crate::PutErrorKind::Full) when the channel stayed full.
    pub fn put_timeout(&self, value: T, timeout: Duration) -> Result<(), PutError<T>> {
        self.typed.put(value, Deadline::within(timeout))
    }

    /// As [`Sender::put`], asking `goes_on` after each `pause` in which there was no room. The value is
    /// encoded once, and what is exclusive in it stays out of reach meanwhile. For a caller that has
    /// something else to look at while it waits: signals, say.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let (sender, _receiver) = tensorferry_queue::channel(1)?;
    /// sender.put(1)?;
    /// let mut tries = 0;
    /// let refused = sender.put_while(2, Duration::from_millis(1), || {
    ///     tries += 1;
    ///     tries < 3
    /// });
    /// assert!(refused.unwrap_err().is_full() && tries == 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// As [`Sender::put`], until `goes_on` is false.
    ///
    /// # Errors
    /// As [`Sender::put_timeout`].
    pub fn put_while(
        &self,
        value: T,
        pause: Duration,
        goes_on: impl FnMut() -> bool,
    ) -> Result<(), PutError<T>> {
        self.typed.put_while(value, pause, goes_on)
    }

    /// As [`Sender::put`], without waiting.
    ///
    /// # Blocking
    /// Never waits for room in the channel.
    ///
    /// # Errors
    /// As [`Sender::put`], and [`Full`](crate::PutErrorKind::Full) when the channel is full.
    #[doc(alias = "try_put")]
    #[doc(alias = "try_send")]
    pub fn put_nowait(&self, value: T) -> Result<(), PutError<T>> {
        self.typed.put(value, Deadline::Now)
    }
}

/// Cloning and sending, for a handle whose only field is `typed`.
macro_rules! end {
    ($end:ident, $role:expr) => {
        impl<T> Clone for $end<T> {
            fn clone(&self) -> Self {
                Self { typed: self.typed.clone() }
            }
        }

        impl<T> serde::Serialize for $end<T> {
            /// Sends another handle with the same role. Works only inside a message.
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let index = tensorferry_reduce::give_ring(self.typed.ring().attachment());
                index.map_err(serde::ser::Error::custom)?.serialize(serializer)
            }
        }

        impl<'de, T> serde::Deserialize<'de> for $end<T> {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let attachment = tensorferry_reduce::take_ring(tensorferry_reduce::HandleIndex::deserialize(
                    deserializer,
                )?);
                let attachment = attachment.map_err(serde::de::Error::custom)?;
                let typed = crate::typed::Typed::open(attachment, $role).map_err(serde::de::Error::custom)?;
                Ok(Self { typed })
            }
        }
    };
}

pub(crate) use end;

crate::awaiting::getting_async!(Receiver);
crate::awaiting::putting_async!(Sender);
crate::getting::getting!(Receiver);
crate::join::joining!(Sender);
crate::busy_poll::busy_poll!(Sender);
crate::busy_poll::busy_poll!(Receiver);
crate::status::status!(Sender);
crate::status::status!(Receiver);
end!(Sender, Role::SENDER);
end!(Receiver, Role::RECEIVER);
