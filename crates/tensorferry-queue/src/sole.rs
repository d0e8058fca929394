//! Ends that cannot be cloned: the only sender or the only receiver of a channel.
//!
//! There is never a second one. The ends are not `Clone`, and every call takes `&mut self`. Sending an end to
//! another process disables this one for good, even where it can still be reached through an alias. A sole
//! receiver saves a claim on each message. Soundness does not depend on being the only one: if a program
//! forges a second receiver, each message still goes to one of the two.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tensorferry_domain::Member;
use tensorferry_storage::{Awaited, Consumers, Deadline, Heap, Role, StorageError};

use crate::typed::Typed;
use crate::wait::sealed::{Sealed, WaitsFor};
use crate::{GetError, Iter, PutError, PutErrorKind, ReadyFd, Receiver, Room, Sender};

/// The only sender of a channel.
pub struct SoleSender<T> {
    typed: Typed<T>,
    moved: Arc<AtomicBool>,
    /// The owner of the end. In a forked process this is still the parent.
    member: Member,
}

/// The only receiver of a channel.
pub struct SoleReceiver<T> {
    typed: Typed<T>,
    moved: Arc<AtomicBool>,
    /// The owner of the end. In a forked process this is still the parent.
    member: Member,
}

/// Makes a channel with one sender and one receiver, for at most `capacity_items` messages, in the default
/// domain.
///
/// # Errors
/// As [`Queue::new`](crate::Queue::new).
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
    Ok((SoleSender::over(both.with_role(Role::SENDER)?), SoleReceiver::over(both.with_role(Role::RECEIVER)?)))
}

/// Makes a channel with many senders and one receiver, for at most `capacity_items` messages, in the default
/// domain.
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
    Ok((Sender::over(both.with_role(Role::SENDER)?), SoleReceiver::over(both.with_role(Role::RECEIVER)?)))
}

/// Makes a channel with one sender and many receivers, for at most `capacity_items` messages, in the default
/// domain.
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
    Ok((SoleSender::over(both.with_role(Role::SENDER)?), Receiver::over(both.with_role(Role::RECEIVER)?)))
}

impl<T> SoleSender<T> {
    /// As [`Sender::is_disconnected`].
    #[must_use]
    pub fn is_disconnected(&self) -> bool {
        !self.typed.ring().has_receivers()
    }

    /// As [`Sender::room`].
    #[must_use]
    pub fn room(&self) -> Room<'_> {
        Room(self.typed.ring())
    }
}

impl<T: Serialize + DeserializeOwned> SoleSender<T> {
    /// Puts a value; waits while the channel is full.
    ///
    /// # Blocking
    /// As [`Sender::put`].
    ///
    /// # Errors
    /// As [`Sender::put`], and [`PutErrorKind::Moved`] when this end was sent to another process.
    #[doc(alias = "send")]
    pub fn put(&mut self, value: T) -> Result<(), PutError<T>> {
        self.put_with(value, Deadline::Never)
    }

    /// As [`SoleSender::put`], waiting for at most `timeout`.
    ///
    /// # Blocking
    /// As [`Sender::put`], for at most `timeout`.
    ///
    /// # Errors
    /// As [`SoleSender::put`], and [`PutErrorKind::Full`] when the channel stayed full.
    pub fn put_timeout(&mut self, value: T, timeout: Duration) -> Result<(), PutError<T>> {
        self.put_with(value, Deadline::within(timeout))
    }

    /// As [`SoleSender::put`], without waiting.
    ///
    /// # Blocking
    /// Never waits for room in the channel.
    ///
    /// # Errors
    /// As [`SoleSender::put`], and [`PutErrorKind::Full`] when the channel is full.
    #[doc(alias = "try_put")]
    #[doc(alias = "try_send")]
    pub fn put_nowait(&mut self, value: T) -> Result<(), PutError<T>> {
        self.put_with(value, Deadline::Now)
    }

    /// As [`Sender::put_async`].
    ///
    /// # Errors
    /// As [`SoleSender::put`], and [`PutErrorKind::NoThread`].
    pub async fn put_async(&mut self, value: T) -> Result<(), PutError<T>> {
        let mut value = value;
        loop {
            if let Err(error) = self.typed.ready(Awaited::Room).await {
                return Err(PutError::new(value, PutErrorKind::NoThread(error)));
            }
            match self.put_nowait(value) {
                Err(refused) if refused.is_full() => value = refused.value,
                outcome => return outcome,
            }
        }
    }

    /// As [`Sender::room_ready_fd`].
    ///
    /// # Errors
    /// As there.
    pub fn room_ready_fd(&self) -> io::Result<ReadyFd> {
        self.typed.ready_fd(Awaited::Room)
    }

    fn put_with(&mut self, value: T, deadline: Deadline) -> Result<(), PutError<T>> {
        let sent = if self.is_moved() {
            Err(PutErrorKind::Moved)
        } else {
            self.typed.put_borrowed(&value, deadline)
        };
        match sent {
            Ok(()) => Ok(()),
            Err(kind) => Err(PutError::new(value, kind)),
        }
    }
}

impl<T: Serialize + DeserializeOwned> SoleReceiver<T> {
    /// Gets a value; waits while the channel is empty.
    ///
    /// # Blocking
    /// As [`Receiver::get`].
    ///
    /// # Errors
    /// As [`Receiver::get`], and [`GetError::Moved`] when this end was sent to another process.
    #[doc(alias = "recv")]
    pub fn get(&mut self) -> Result<T, GetError> {
        self.get_with(Deadline::Never)
    }

    /// As [`SoleReceiver::get`], waiting for at most `timeout`.
    ///
    /// # Blocking
    /// As [`Receiver::get`], for at most `timeout`.
    ///
    /// # Errors
    /// As [`SoleReceiver::get`], and [`GetError::Empty`] when no value came in time.
    pub fn get_timeout(&mut self, timeout: Duration) -> Result<T, GetError> {
        self.get_with(Deadline::within(timeout))
    }

    /// As [`SoleReceiver::get`], without waiting.
    ///
    /// # Blocking
    /// Never waits for a value; reading the one that is there may block, as for [`Receiver::get`].
    ///
    /// # Errors
    /// As [`SoleReceiver::get`], and [`GetError::Empty`] when there is no value.
    #[doc(alias = "try_get")]
    #[doc(alias = "try_recv")]
    pub fn get_nowait(&mut self) -> Result<T, GetError> {
        self.get_with(Deadline::Now)
    }

    /// As [`Receiver::get_async`].
    ///
    /// # Errors
    /// As [`SoleReceiver::get`], and [`GetError::NoThread`].
    pub async fn get_async(&mut self) -> Result<T, GetError> {
        loop {
            match self.get_nowait() {
                Err(GetError::Empty) => {}
                outcome => return outcome,
            }
            self.typed.ready(Awaited::Message).await.map_err(GetError::NoThread)?;
        }
    }

    /// As [`Receiver::ready_fd`].
    ///
    /// # Errors
    /// As there.
    pub fn ready_fd(&self) -> io::Result<ReadyFd> {
        self.typed.ready_fd(Awaited::Message)
    }

    /// Gets values until the first error. [`Iter::finish`] tells a normal end from a failure, and
    /// [`Iter::end`] has the error itself.
    ///
    /// # Blocking
    /// Each step blocks as [`SoleReceiver::get`] does.
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

impl<T> Sealed for SoleReceiver<T> {
    fn waits_for(&self) -> WaitsFor<'_> {
        if self.is_moved() { WaitsFor::Nothing } else { WaitsFor::Ring(self.typed.ring(), Awaited::Message) }
    }
}

impl<'a, T: Serialize + DeserializeOwned> IntoIterator for &'a mut SoleReceiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// Moving and sending, for both ends.
macro_rules! sole_end {
    ($end:ident, $role:expr) => {
        impl<T> $end<T> {
            fn over(typed: Typed<T>) -> Self {
                let member = typed.ring().heap().domain().me();
                Self { typed, moved: Arc::default(), member }
            }

            /// Whether this handle is no longer the end: it was sent away, or this process is a fork of the
            /// one that has it.
            fn is_moved(&self) -> bool {
                self.moved.load(Ordering::SeqCst) || self.typed.ring().heap().domain().me() != self.member
            }
        }

        impl<T> Serialize for $end<T> {
            /// Moves this end to the receiver of the message. Works only inside a message, and once.
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if self.is_moved() {
                    // A forked process did not send the handle. Set the flag there too, so that the message
                    // is refused for the same reason.
                    self.moved.store(true, Ordering::SeqCst);
                }
                let attachment = self.typed.ring().attachment();
                let index = tensorferry_reduce::give_sole_ring(attachment, &self.moved);
                index.map_err(serde::ser::Error::custom)?.serialize(serializer)
            }
        }

        impl<'de, T> Deserialize<'de> for $end<T> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let attachment = tensorferry_reduce::take_ring(tensorferry_reduce::HandleIndex::deserialize(
                    deserializer,
                )?);
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

sole_end!(SoleSender, Role::SENDER);
sole_end!(SoleReceiver, Role::RECEIVER);
