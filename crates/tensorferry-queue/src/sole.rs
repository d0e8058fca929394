//! Ends that cannot be cloned: the only sender or the only receiver of a channel.
//!
//! There is never a second one: the ends are not `Clone`, every call takes `&mut self`, and sending an end to another
//! process turns this one off for good, even where it can still be reached through an alias. A sole receiver saves a
//! claim on each message. Nothing unsound rests on being alone: whoever forges a second end finds that each message
//! still goes to one of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tensorferry_domain::Member;
use tensorferry_storage::{Consumers, Deadline, Heap, Role, StorageError};

use crate::typed::{Typed, within};
use crate::{GetError, Iter, PutError, PutErrorKind, Receiver, Sender};

/// The only sender of a channel.
pub struct SoleSender<T> {
    typed: Typed<T>,
    moved: Arc<AtomicBool>,
    /// Whose it is. In a process that was forked it is still the parent's.
    member: Member,
}

/// The only receiver of a channel.
pub struct SoleReceiver<T> {
    typed: Typed<T>,
    moved: Arc<AtomicBool>,
    /// Whose it is. In a process that was forked it is still the parent's.
    member: Member,
}

const SENDS: Role = Role { sends: true, receives: false };
const RECEIVES: Role = Role { sends: false, receives: true };

/// A channel with one sender and one receiver, for at most `capacity_items` messages, in the default domain.
///
/// # Errors
/// [`StorageError`] when there is no memory for it.
pub fn spsc<T>(capacity_items: usize) -> Result<(SoleSender<T>, SoleReceiver<T>), StorageError> {
    spsc_in(Heap::current()?, capacity_items)
}

/// As [`spsc`], in the domain of `heap`.
///
/// # Errors
/// As [`spsc`].
pub fn spsc_in<T>(
    heap: &Heap,
    capacity_items: usize,
) -> Result<(SoleSender<T>, SoleReceiver<T>), StorageError> {
    let both = Typed::create(heap, capacity_items)?;
    Ok((SoleSender::over(both.with_role(SENDS)?), SoleReceiver::over(both.with_role(RECEIVES)?)))
}

/// A channel with many senders and one receiver, for at most `capacity_items` messages, in the default domain.
///
/// # Errors
/// As [`spsc`].
pub fn mpsc<T>(capacity_items: usize) -> Result<(Sender<T>, SoleReceiver<T>), StorageError> {
    mpsc_in(Heap::current()?, capacity_items)
}

/// As [`mpsc`], in the domain of `heap`.
///
/// # Errors
/// As [`spsc`].
pub fn mpsc_in<T>(heap: &Heap, capacity_items: usize) -> Result<(Sender<T>, SoleReceiver<T>), StorageError> {
    let both = Typed::create(heap, capacity_items)?;
    Ok((Sender::over(both.with_role(SENDS)?), SoleReceiver::over(both.with_role(RECEIVES)?)))
}

/// A channel with one sender and many receivers, for at most `capacity_items` messages, in the default domain.
///
/// # Errors
/// As [`spsc`].
pub fn spmc<T>(capacity_items: usize) -> Result<(SoleSender<T>, Receiver<T>), StorageError> {
    spmc_in(Heap::current()?, capacity_items)
}

/// As [`spmc`], in the domain of `heap`.
///
/// # Errors
/// As [`spsc`].
pub fn spmc_in<T>(heap: &Heap, capacity_items: usize) -> Result<(SoleSender<T>, Receiver<T>), StorageError> {
    let both = Typed::create(heap, capacity_items)?;
    Ok((SoleSender::over(both.with_role(SENDS)?), Receiver::over(both.with_role(RECEIVES)?)))
}

impl<T: Serialize + DeserializeOwned> SoleSender<T> {
    /// Puts a value; waits while the channel is full.
    ///
    /// # Errors
    /// [`PutError`] with the value: closed, the receivers gone or dead, this end moved away, or the value cannot be
    /// sent.
    pub fn put(&mut self, value: T) -> Result<(), PutError<T>> {
        self.put_with(value, Deadline::Never)
    }

    /// As [`SoleSender::put`], waiting for at most `timeout`.
    ///
    /// # Errors
    /// As [`SoleSender::put`], or the channel stayed full.
    pub fn put_timeout(&mut self, value: T, timeout: Duration) -> Result<(), PutError<T>> {
        self.put_with(value, within(timeout))
    }

    /// As [`SoleSender::put`], without waiting.
    ///
    /// # Errors
    /// As [`SoleSender::put`], or the channel is full.
    pub fn put_nowait(&mut self, value: T) -> Result<(), PutError<T>> {
        self.put_with(value, Deadline::Now)
    }

    fn put_with(&mut self, value: T, deadline: Deadline) -> Result<(), PutError<T>> {
        if self.is_moved() {
            return Err(PutError { value, kind: PutErrorKind::Moved });
        }
        self.typed.put(value, deadline)
    }
}

impl<T: Serialize + DeserializeOwned> SoleReceiver<T> {
    /// Gets a value; waits while the channel is empty.
    ///
    /// # Errors
    /// [`GetError`]: closed or the senders gone, and drained; the last sender dead; this end moved away.
    pub fn get(&mut self) -> Result<T, GetError> {
        self.get_with(Deadline::Never)
    }

    /// As [`SoleReceiver::get`], waiting for at most `timeout`.
    ///
    /// # Errors
    /// As [`SoleReceiver::get`], or [`GetError::Empty`].
    pub fn get_timeout(&mut self, timeout: Duration) -> Result<T, GetError> {
        self.get_with(within(timeout))
    }

    /// As [`SoleReceiver::get`], without waiting.
    ///
    /// # Errors
    /// As [`SoleReceiver::get`], or [`GetError::Empty`].
    pub fn get_nowait(&mut self) -> Result<T, GetError> {
        self.get_with(Deadline::Now)
    }

    /// Gets values until nothing more can come. What ended it is in [`Iter::end`].
    #[must_use]
    pub fn iter(&mut self) -> Iter<'_, T> {
        Iter::sole(self)
    }

    fn get_with(&mut self, deadline: Deadline) -> Result<T, GetError> {
        if self.is_moved() {
            return Err(GetError::Moved);
        }
        self.typed.get(Consumers::Single, deadline)
    }
}

impl<'a, T: Serialize + DeserializeOwned> IntoIterator for &'a mut SoleReceiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// What both ends have in common.
macro_rules! sole_end {
    ($end:ident, $role:expr) => {
        impl<T> $end<T> {
            fn over(typed: Typed<T>) -> Self {
                let member = typed.ring().heap().domain().me();
                Self { typed, moved: Arc::default(), member }
            }

            /// Whether this is not the end any more: it was sent away, or this process was forked from the one that has it.
            fn is_moved(&self) -> bool {
                self.moved.load(Ordering::SeqCst) || self.typed.ring().heap().domain().me() != self.member
            }
        }

        impl<T> Serialize for $end<T> {
            /// Moves this end to the receiver of the message. Works only inside a message, and once.
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if self.is_moved() {
                    // Also where it was not this handle that was sent: the message is refused for one reason.
                    self.moved.store(true, Ordering::SeqCst);
                }
                let attachment = self.typed.ring().attachment();
                let index = tensorferry_reduce::give_sole_ring(attachment, &self.moved);
                index.map_err(serde::ser::Error::custom)?.serialize(serializer)
            }
        }

        impl<'de, T> Deserialize<'de> for $end<T> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let attachment = tensorferry_reduce::take_ring(u32::deserialize(deserializer)?);
                let attachment = attachment.map_err(serde::de::Error::custom)?;
                Ok(Self::over(Typed::open(attachment, $role).map_err(serde::de::Error::custom)?))
            }
        }
    };
}

crate::busy_poll::busy_poll!(SoleSender);
crate::busy_poll::busy_poll!(SoleReceiver);
crate::status::status!(SoleSender);
crate::status::status!(SoleReceiver);

sole_end!(SoleSender, SENDS);
sole_end!(SoleReceiver, RECEIVES);
