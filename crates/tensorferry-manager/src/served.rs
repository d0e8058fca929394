//! Serving an object: the side that owns it.

use std::fmt;
use std::thread::{self, JoinHandle};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_storage::Heap;

use crate::error::{ServeError, StateError};
use crate::handler::Handler;
use crate::link::fresh_number;
use crate::owner::Owner;
use crate::panic::note_panics;
use crate::proxy::{Proxy, note_served};
use crate::requests::Requests;

/// An object that this process serves, on a thread of its own.
///
/// Dropping it ends the object: requests that were sent before are answered first, and the drop waits until
/// they are. (One that is dropped by its own handler does not wait.)
///
/// If the kernel does not let this process read a request, because it has no memory to map it with, say, that
/// is tried again, for 30 s. Then the object ends by itself, and at once if it was to end anyway: those who
/// wait are told that it is not served any more.
#[must_use = "the object ends when this is dropped"]
pub struct Served<S, Q, R> {
    proxy: Proxy<Q, R>,
    /// `None` once it was waited for.
    thread: Option<JoinHandle<Result<S, StateError<S>>>>,
}

/// Serves an object in the default domain: `state`, and what a request does to it. The requests of all
/// callers come one after another.
///
/// The first object of a process adds a panic hook, which notes where a handler panics
/// ([`HandlerPanic::location`](crate::HandlerPanic::location)) and calls the hook that was there before. A
/// program with a hook of its own sets it before that.
///
/// # Errors
/// [`ServeError`] when there is no memory or no thread for it.
pub fn serve<S, Q, R, F>(state: S, handler: F) -> Result<Served<S, Q, R>, ServeError>
where
    S: Send + 'static,
    Q: DeserializeOwned,
    R: Serialize + DeserializeOwned + 'static,
    F: FnMut(&mut S, Q) -> R + Send + 'static,
{
    serve_in(Heap::current()?, state, handler)
}

/// As [`serve`], in the domain of `heap`.
///
/// # Errors
/// As [`serve`].
pub fn serve_in<S, Q, R, F>(heap: &Heap, state: S, handler: F) -> Result<Served<S, Q, R>, ServeError>
where
    S: Send + 'static,
    Q: DeserializeOwned,
    R: Serialize + DeserializeOwned + 'static,
    F: FnMut(&mut S, Q) -> R + Send + 'static,
{
    serve_by(heap, state, handler)
}

/// Serves an object whose handler is of any kind.
pub(crate) fn serve_by<S, Q, R, H>(heap: &Heap, state: S, handler: H) -> Result<Served<S, Q, R>, ServeError>
where
    S: Send + 'static,
    Q: DeserializeOwned,
    R: Serialize + DeserializeOwned + 'static,
    H: Handler<S, Q, R> + Send + 'static,
{
    let (requests, ring) = Requests::<Q, R>::create(heap)?;
    let (domain, object) = (heap.domain().id(), fresh_number(heap));
    let serve = move || {
        note_served(domain, object);
        note_panics();
        Owner::new(ring, state, handler).run::<Q>()
    };
    let named = thread::Builder::new().name("tf-object".to_owned());
    let thread = named.spawn(serve).map_err(|error| ServeError::NoThread { error })?;
    Ok(Served { proxy: Proxy::new(requests, object), thread: Some(thread) })
}

impl<S, Q, R> Served<S, Q, R> {
    /// A handle on the object, to clone and to send.
    #[must_use]
    pub const fn proxy(&self) -> &Proxy<Q, R> {
        &self.proxy
    }

    /// Ends the object and returns its state. Requests that were sent before are answered first; every later
    /// call is refused ([`CallErrorKind::Ended`](crate::CallErrorKind::Ended)).
    ///
    /// # Blocking
    /// Until they are answered.
    ///
    /// # Errors
    /// [`StateError::Panicked`] when a handler has panicked; it has the state as that has left it.
    /// [`StateError::WithinItself`] when the object's own handler calls this, which cannot wait for itself,
    /// or a process that something else has forked from this one.
    pub fn into_state(mut self) -> Result<S, StateError<S>> {
        match self.end() {
            Some(Ok(state)) => state,
            // Its code catches what the code of others does.
            Some(Err(payload)) => std::panic::resume_unwind(payload),
            None => Err(StateError::WithinItself),
        }
    }

    /// Waits for the thread, unless this is it.
    fn end(&mut self) -> Option<thread::Result<Result<S, StateError<S>>>> {
        self.proxy.close();
        // In a process that something else has forked there is no such thread.
        let is_here = self.proxy.is_of_this_process();
        let is_other = |thread: &JoinHandle<_>| thread.thread().id() != thread::current().id();
        Some(self.thread.take().filter(|thread| is_here && is_other(thread))?.join())
    }
}

impl<S, Q, R> Drop for Served<S, Q, R> {
    fn drop(&mut self) {
        drop(self.end());
    }
}

impl<S, Q, R> fmt::Debug for Served<S, Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").field("proxy", &self.proxy).finish_non_exhaustive()
    }
}
