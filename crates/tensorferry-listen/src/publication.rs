//! Values that other processes find by name.

use std::any::type_name;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::thread::JoinHandle;

use serde::Serialize;
use tensorferry_reduce::{EncodeError, Encoded};
use tensorferry_storage::Heap;

use crate::attach::ANY_TYPE;
use crate::service::{Service, Shared};
use crate::{AcceptError, ListenError, Listener, PublishError};

/// Publishes a value at an address, a path or a name after `@`: while the [`Publication`] exists, every
/// process of this user can [`attach`](crate::attach()) to it there, and has a clone of the value then.
///
/// What is published is the value as it is now. Memory in it is shared as in any message: a `Tensor` is the
/// same memory in all processes, and so is a `SharedTensor`, which they may write. An end of a queue in the
/// value counts as an end of that queue for as long as it is published, because somebody may still come and
/// use it.
///
/// ```
/// use tensorferry_listen::{attach, publish};
///
/// let address = format!("@doctest-publish-{}", std::process::id());
/// let published = publish(&address, &vec![1, 2, 3])?;
/// // In any other program of the same user:
/// let value: Vec<i32> = attach(&address)?;
/// assert_eq!(value, [1, 2, 3]);
/// drop(published); // the name is free again; whoever has attached keeps what it has
/// assert!(attach::<Vec<i32>>(&address).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A thread of its own lets the others in. So a process that publishes cannot start others by the method
/// *fork*. Each process that has attached has one of the 63 places of the domain until it ends, as one that
/// has [connected](crate::connect()).
///
/// `Clone` says that there can be several of the value: an exclusive tensor, or an end of which there is only
/// one, has no clones and cannot be published. `freeze` the tensor, or `share` it.
///
/// ```compile_fail,E0277
/// let (sender, _receiver) = tensorferry_queue::spsc::<u8>(1)?;
/// tensorferry_listen::publish("@only-one", &sender)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`PublishError::Listen`] when somebody listens or publishes at the address already, or the kernel refuses;
/// [`PublishError::Encode`] when the value cannot be sent, or a part of it can be sent only once after all;
/// others when there is no descriptor or no thread for it.
pub fn publish<T: Clone + Serialize>(
    address: impl AsRef<OsStr>,
    value: &T,
) -> Result<Publication<T>, PublishError> {
    publish_in(Heap::current().map_err(ListenError::from)?, address, value)
}

/// As [`publish`], in the domain of `heap`.
///
/// # Errors
/// As [`publish`].
pub fn publish_in<T: Clone + Serialize>(
    heap: &Heap,
    address: impl AsRef<OsStr>,
    value: &T,
) -> Result<Publication<T>, PublishError> {
    Publication::start(heap, address.as_ref(), type_name::<T>(), value)
}

/// As [`publish`], without the name of a type: whoever attaches may take the value for whatever it can be
/// read as. For types that have different names in the programs, and for other languages.
///
/// # Errors
/// As [`publish`].
pub fn publish_any<T: Serialize>(
    address: impl AsRef<OsStr>,
    value: &T,
) -> Result<Publication<T>, PublishError> {
    publish_any_in(Heap::current().map_err(ListenError::from)?, address, value)
}

pub(crate) fn publish_any_in<T: Serialize>(
    heap: &Heap,
    address: impl AsRef<OsStr>,
    value: &T,
) -> Result<Publication<T>, PublishError> {
    Publication::start(heap, address.as_ref(), ANY_TYPE, value)
}

/// A value that is [published](publish()).
///
/// Dropping it ends the publication: the name is free when the drop returns, a process that is just
/// attaching is told that the publisher is gone, and those that have attached keep what they have. The death
/// of this process does the same; of a path the file then stays, as that of a [`Listener`] does, and the next
/// one to publish or to listen there takes its place.
///
/// In a process that something else has forked it does nothing, but that process has a copy of the socket:
/// if this one is killed, the name is taken until the copy is closed, and nobody answers there.
///
/// # Blocking
/// The drop waits for the thread, which waits for nobody.
#[must_use = "the publication ends when this is dropped"]
pub struct Publication<T> {
    address: OsString,
    type_name: &'static str,
    shared: Arc<Shared>,
    /// `None` once it was waited for.
    thread: Option<JoinHandle<()>>,
    /// A process that was forked from the one that made it has no such thread.
    made_by: u32,
    carries: PhantomData<fn(T)>,
}

impl<T> Publication<T> {
    fn start(heap: &Heap, address: &OsStr, type_name: &'static str, value: &T) -> Result<Self, PublishError>
    where
        T: Serialize,
    {
        let encoded = Encoded::new(heap, &(type_name, value))?;
        let shared = Arc::new(Shared::new(heap, encoded)?);
        let service = Service::new(Listener::bind_in(heap, address)?, Arc::clone(&shared));
        let named = std::thread::Builder::new().name("tf-publish".to_owned());
        let thread = named
            .spawn(move || service.run())
            .map_err(|error| PublishError::NoThread { address: address.into(), error })?;
        Ok(Self {
            address: address.to_owned(),
            type_name,
            shared,
            thread: Some(thread),
            made_by: std::process::id(),
            carries: PhantomData,
        })
    }

    /// Publishes another value in the place of this one: a new checkpoint, say. Whoever attaches from now on
    /// has the new one, and who has attached before keeps what it has.
    ///
    /// # Errors
    /// [`EncodeError`] as of [`publish`]; the old value is still published then.
    pub fn replace(&self, value: &T) -> Result<(), EncodeError>
    where
        T: Serialize,
    {
        let encoded = Encoded::new(self.shared.heap(), &(self.type_name, value))?;
        self.shared.replace(encoded);
        Ok(())
    }

    /// How often a process has attached so far.
    #[must_use]
    pub fn n_attached(&self) -> u64 {
        self.shared.n_attached()
    }

    /// How often somebody was refused so far: a process that could not be let in, spoke another protocol, did
    /// not speak in time, or wanted a value of another type. Who is refused is told why.
    #[must_use]
    pub fn n_refused(&self) -> u64 {
        self.shared.n_refused()
    }

    /// Why nobody was let in the last time that this happened, which may be because this process had no
    /// descriptors left to accept anybody. The publication goes on, whatever it is.
    #[must_use]
    pub fn last_refusal(&self) -> Option<Arc<AcceptError>> {
        self.shared.last_refusal()
    }
}

impl<T> Drop for Publication<T> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take().filter(|_| self.made_by == std::process::id()) {
            self.shared.end();
            thread.thread().unpark();
            // It runs no code of others that could panic.
            let _ = thread.join();
        }
    }
}

impl<T> fmt::Debug for Publication<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publication")
            .field("address", &self.address)
            .field("type_name", &self.type_name)
            .field("n_attached", &self.n_attached())
            .field("n_refused", &self.n_refused())
            .finish_non_exhaustive()
    }
}
