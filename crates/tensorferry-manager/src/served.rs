//! Serving an object: the side that owns it.

use std::fmt;
use std::thread::{self, JoinHandle};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_storage::Heap;

use crate::error::{PanickedError, ServeError};
use crate::link::fresh_number;
use crate::owner::Owner;
use crate::proxy::{Proxy, note_served};
use crate::requests::Requests;

/// An object that this process serves, on a thread of its own. Dropping it ends the object: requests that
/// were sent before are still answered, and its state is dropped then.
pub struct Served<S, Q, R> {
    closing: Closing<Q, R>,
    thread: JoinHandle<Result<S, PanickedError<S>>>,
}

/// Refuses every later call when it is dropped.
struct Closing<Q, R>(Proxy<Q, R>);

impl<Q, R> Drop for Closing<Q, R> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Serves an object in the default domain: `state`, and what a request does to it. The requests of all
/// callers come one after another.
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
    let (requests, ring) = Requests::<Q, R>::create(heap)?;
    let object = fresh_number(heap);
    let serve = move || {
        note_served(object);
        Owner::new(ring, state, handler).run::<Q>()
    };
    let named = thread::Builder::new().name("tf-object".to_owned());
    let thread = named.spawn(serve).map_err(|error| ServeError::NoThread { error })?;
    Ok(Served { closing: Closing(Proxy::new(requests, object)), thread })
}

impl<S, Q, R> Served<S, Q, R> {
    /// A handle on the object, to clone and to send.
    #[must_use]
    pub const fn proxy(&self) -> &Proxy<Q, R> {
        &self.closing.0
    }

    /// Ends the object and returns its state. Requests that were sent before are answered first; every later
    /// call is refused ([`CallErrorKind::Ended`](crate::CallErrorKind::Ended)).
    ///
    /// # Blocking
    /// Until they are answered.
    ///
    /// # Errors
    /// [`PanickedError`] when a handler has panicked. It has the state as that has left it.
    ///
    /// # Panics
    /// With the panic of a request or an answer, if reading or dropping one has panicked.
    pub fn into_state(self) -> Result<S, PanickedError<S>> {
        let Self { closing, thread } = self;
        drop(closing);
        thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))
    }
}

impl<S, Q, R> fmt::Debug for Served<S, Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").field("proxy", self.proxy()).finish_non_exhaustive()
    }
}
