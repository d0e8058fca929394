//! A ring that carries values of one type.

use std::any::type_name;
use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_reduce::{ANY_TYPE, decode, decode_as, type_hash, with_encoded};
use tensorferry_storage::{
    Attachment, Awaited, Consumers, Deadline, Heap, IncomingMessage, Ring, RingPutError, Role, StorageError,
};

use crate::error::OpenError;
use crate::ready::{Ready, ReadyFd};
use crate::{GetError, Lease, PutError, PutErrorKind};

/// The ring behind every kind of handle.
pub(crate) struct Typed<T> {
    ring: Arc<Ring>,
    carries: PhantomData<fn(T) -> T>,
}

impl<T> Typed<T> {
    pub(crate) fn create(heap: &Heap, capacity_items: usize) -> Result<Self, StorageError> {
        Self::with_leases(heap, capacity_items, 0)
    }

    pub(crate) fn with_leases(
        heap: &Heap,
        capacity_items: usize,
        max_leases: usize,
    ) -> Result<Self, StorageError> {
        let ring = Ring::create_with_leases(heap, capacity_items, max_leases, type_hash::<T>())?;
        Ok(Self { ring: Arc::new(ring), carries: PhantomData })
    }

    /// Attaches to a ring from a message, which must grant at least the wanted role.
    pub(crate) fn open(attachment: Attachment, wanted: Role) -> Result<Self, OpenError> {
        let opened = Self::open_untyped(attachment, wanted)?;
        if ![type_hash::<T>(), ANY_TYPE].contains(&opened.ring.type_hash()) {
            return Err(OpenError::WrongType(type_name::<T>()));
        }
        Ok(opened)
    }

    /// As [`Typed::open`], whatever the ring carries.
    pub(crate) fn open_untyped(attachment: Attachment, wanted: Role) -> Result<Self, OpenError> {
        let role = attachment.role();
        if (wanted.sends && !role.sends) || (wanted.receives && !role.receives) {
            return Err(OpenError::WrongRole);
        }
        // An end of a queue may be received as one that can do less.
        let attachment = if role == wanted { attachment } else { attachment.with_role(wanted) };
        Ok(Self { ring: Arc::new(Ring::attach(attachment)?), carries: PhantomData })
    }

    pub(crate) fn with_role(&self, role: Role) -> Result<Self, StorageError> {
        Ok(Self { ring: Arc::new(self.ring.with_role(role)?), carries: PhantomData })
    }

    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// For tasks: ready once there was what is awaited.
    pub(crate) fn ready(&self, awaited: Awaited) -> Ready<'_> {
        Ready::new(&self.ring, awaited)
    }

    pub(crate) fn ready_fd(&self, awaited: Awaited) -> io::Result<ReadyFd> {
        ReadyFd::new(&self.ring, awaited)
    }
}

impl<T: Serialize + DeserializeOwned> Typed<T> {
    pub(crate) fn put(&self, value: T, deadline: Deadline) -> Result<(), PutError<T>> {
        match self.put_borrowed(&value, deadline) {
            Ok(()) => Ok(()),
            Err(kind) => Err(PutError::new(value, kind)),
        }
    }

    /// As `put`, for a value that the caller keeps: to move it here would read what was just written.
    #[inline]
    pub(crate) fn put_borrowed(&self, value: &T, deadline: Deadline) -> Result<(), PutErrorKind> {
        self.ring.expect_put();
        with_encoded(self.ring.heap(), value, |payload, handles| {
            self.ring.put_from(payload, handles, deadline).map_err(PutErrorKind::of)
        })
    }

    /// As `put`, asking `goes_on` each `pause` while the ring is full. The value is encoded once.
    pub(crate) fn put_while(
        &self,
        value: T,
        pause: Duration,
        mut goes_on: impl FnMut() -> bool,
    ) -> Result<(), PutError<T>> {
        let sent = with_encoded(self.ring.heap(), &value, |payload, handles| {
            loop {
                match self.ring.put_from(payload, handles, Deadline::within(pause)) {
                    Err(RingPutError::Full) if goes_on() => {}
                    outcome => return outcome.map_err(PutErrorKind::of),
                }
            }
        });
        sent.map_err(|kind| PutError::new(value, kind))
    }

    pub(crate) fn get(&self, consumers: Consumers, deadline: Deadline) -> Result<T, GetError> {
        let mut message = IncomingMessage::default();
        self.ring.take_into(&mut message, consumers, deadline).map_err(GetError::of)?;
        decode_as(&message.payload, message.handles)
    }

    pub(crate) fn get_leased(&self, deadline: Deadline) -> Result<Lease<T>, GetError> {
        let (mut message, raw) = self.ring.take_leased(deadline).map_err(GetError::of)?;
        match catch_unwind(AssertUnwindSafe(|| decode(&mut message))) {
            Ok(Ok(value)) => Ok(Lease::new(value, raw)),
            Ok(Err(error)) => {
                if !error.is_for_now() {
                    // The next receiver could not decode it either.
                    let _ = raw.ack();
                }
                Err(error.into())
            }
            Err(panic) => {
                // Whoever gets it next would panic too, and nobody would get what is behind it.
                if raw.deliveries() >= MOST_PANICS {
                    let _ = raw.ack();
                }
                resume_unwind(panic)
            }
        }
    }
}

impl<T> Clone for Typed<T> {
    fn clone(&self) -> Self {
        Self { ring: Arc::clone(&self.ring), carries: PhantomData }
    }
}

/// How often a leased message is delivered whose `Deserialize` panics.
const MOST_PANICS: u16 = 3;
