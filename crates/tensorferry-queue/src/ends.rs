//! Ends with one role.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tensorferry_storage::{Deadline, Heap, Role, StorageError};

use crate::PutError;
use crate::typed::{Typed, within};

/// The putting end of a channel. Clonable and sendable; the channel has senders as long as one exists anywhere,
/// in a message on its way included.
pub struct Sender<T> {
    typed: Typed<T>,
}

/// The getting end of a channel. Clonable and sendable; each message goes to one receiver.
pub struct Receiver<T> {
    typed: Typed<T>,
}

/// A channel for at most `capacity_items` messages (at least one) in the default domain.
///
/// # Errors
/// [`StorageError`] when there is no memory for it.
pub fn channel<T>(capacity_items: usize) -> Result<(Sender<T>, Receiver<T>), StorageError> {
    channel_in(Heap::current()?, capacity_items)
}

/// As [`channel`], in the domain of `heap`.
///
/// # Errors
/// As [`channel`].
pub fn channel_in<T>(heap: &Heap, capacity_items: usize) -> Result<(Sender<T>, Receiver<T>), StorageError> {
    let both = Typed::create(heap, capacity_items)?;
    let sender = both.with_role(Role { sends: true, receives: false })?;
    let receiver = both.with_role(Role { sends: false, receives: true })?;
    Ok((Sender::over(sender), Receiver::over(receiver)))
}

impl<T> Sender<T> {
    pub(crate) fn over(typed: Typed<T>) -> Self {
        Self { typed }
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
    /// # Errors
    /// [`PutError`] with the value: closed, every receiver gone or dead, or the value cannot be sent.
    pub fn put(&self, value: T) -> Result<(), PutError<T>> {
        self.typed.put(value, Deadline::Never)
    }

    /// As [`Sender::put`], waiting for at most `timeout`.
    ///
    /// # Errors
    /// As [`Sender::put`], or the channel stayed full.
    pub fn put_timeout(&self, value: T, timeout: Duration) -> Result<(), PutError<T>> {
        self.typed.put(value, within(timeout))
    }

    /// As [`Sender::put`], without waiting.
    ///
    /// # Errors
    /// As [`Sender::put`], or the channel is full.
    pub fn put_nowait(&self, value: T) -> Result<(), PutError<T>> {
        self.typed.put(value, Deadline::Now)
    }
}

crate::getting::getting!(Receiver);

/// What both ends have in common.
macro_rules! end {
    ($end:ident, $role:expr) => {
        impl<T> Clone for $end<T> {
            fn clone(&self) -> Self {
                Self { typed: self.typed.clone() }
            }
        }

        impl<T> Serialize for $end<T> {
            /// Sends a handle on the channel. Works only inside a message.
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let index = tensorferry_reduce::give_ring(self.typed.ring().attachment());
                index.map_err(serde::ser::Error::custom)?.serialize(serializer)
            }
        }

        impl<'de, T> Deserialize<'de> for $end<T> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let attachment = tensorferry_reduce::take_ring(u32::deserialize(deserializer)?);
                let attachment = attachment.map_err(serde::de::Error::custom)?;
                Ok(Self { typed: Typed::open(attachment, $role).map_err(serde::de::Error::custom)? })
            }
        }
    };
}

crate::busy_poll::busy_poll!(Sender);
crate::busy_poll::busy_poll!(Receiver);
crate::status::status!(Sender);
crate::status::status!(Receiver);

end!(Sender, Role { sends: true, receives: false });
end!(Receiver, Role { sends: false, receives: true });
