//! Ends with one role.

use std::fmt;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tensorferry_storage::{Heap, Patience, Role};

use crate::typed::{Typed, within};
use crate::{OpenError, PutError};

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
/// [`OpenError::Storage`] when there is no memory for it.
pub fn channel<T>(capacity_items: usize) -> Result<(Sender<T>, Receiver<T>), OpenError> {
    channel_in(Heap::current()?, capacity_items)
}

/// As [`channel`], in the domain of `heap`.
///
/// # Errors
/// As [`channel`].
pub fn channel_in<T>(heap: &Heap, capacity_items: usize) -> Result<(Sender<T>, Receiver<T>), OpenError> {
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
        self.typed.put(value, Patience::Forever)
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
        self.typed.put(value, Patience::None)
    }
}

crate::getting::getting!(Receiver);

/// What both ends have in common.
macro_rules! end {
    ($end:ident, $name:literal, $role:expr) => {
        impl<T> $end<T> {
            /// How many messages fit.
            #[must_use]
            pub fn capacity_items(&self) -> usize {
                self.typed.ring().capacity_items()
            }

            /// About how many messages are in the channel.
            #[must_use]
            pub fn len(&self) -> usize {
                self.typed.ring().len()
            }

            /// Whether the channel seems empty.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Refuses every further put, in every process; what is in the channel can still be got.
            pub fn close(&self) {
                self.typed.ring().close();
            }

            /// Whether the channel was closed.
            #[must_use]
            pub fn is_closed(&self) -> bool {
                self.typed.ring().is_closed()
            }
        }

        impl<T> Clone for $end<T> {
            fn clone(&self) -> Self {
                Self { typed: self.typed.clone() }
            }
        }

        impl<T> fmt::Debug for $end<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct($name).field("len", &self.len()).finish_non_exhaustive()
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

end!(Sender, "Sender", Role { sends: true, receives: false });
end!(Receiver, "Receiver", Role { sends: false, receives: true });
