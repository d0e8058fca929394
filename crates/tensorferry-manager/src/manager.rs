//! A number of objects that live and end together.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_storage::{Heap, StorageError};

use crate::dict::{self, Dict};
use crate::error::{PanickedError, ServeError, StateError};
use crate::handler::Handler;
use crate::list::{self, List};
use crate::panic::HandlerPanic;
use crate::proxy::Proxy;
use crate::served::{Served, serve_by};

/// Objects of this process, which end with it, or with the process.
///
/// Dropping it ends them, and waits until they have answered what was sent to them before.
///
/// Python's `Manager` starts a process for them. Here they live in the process that makes it: usually the one
/// that starts the others, which outlives them. For a process of its own, start one whose function makes a
/// `Manager`, sends its handles back and waits.
pub struct Manager {
    heap: Heap,
    served: Mutex<Vec<Box<dyn Ending>>>,
}

/// An object, whatever it is.
trait Ending: Send {
    /// Refuses later calls.
    fn close(&self);

    /// Waits until it has answered what was sent before. Returns the panic, if a handler has panicked.
    fn end(self: Box<Self>) -> Option<HandlerPanic>;
}

impl<S: Send, Q, R> Ending for Served<S, Q, R> {
    fn close(&self) {
        self.proxy().close();
    }

    fn end(self: Box<Self>) -> Option<HandlerPanic> {
        match self.into_state() {
            Err(StateError::Panicked { panic, .. }) => Some(*panic),
            // What becomes of the state is up to its type.
            Ok(_) | Err(StateError::WithinItself) => None,
        }
    }
}

impl Manager {
    /// A manager of objects in the default domain.
    ///
    /// # Errors
    /// [`StorageError`] when there is no memory for the domain.
    pub fn new() -> Result<Self, StorageError> {
        Ok(Self::new_in(Heap::current()?))
    }

    /// As [`Manager::new`], in the domain of `heap`.
    #[must_use]
    pub fn new_in(heap: &Heap) -> Self {
        Self { heap: heap.clone(), served: Mutex::default() }
    }

    /// An empty dictionary.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn dict<K, V>(&self) -> Result<Dict<K, V>, ServeError>
    where
        K: Ord + Clone + Serialize + DeserializeOwned + Send + 'static,
        V: Clone + Serialize + DeserializeOwned + Send + 'static,
    {
        self.dict_of([])
    }

    /// A dictionary of these entries.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn dict_of<K, V>(&self, entries: impl IntoIterator<Item = (K, V)>) -> Result<Dict<K, V>, ServeError>
    where
        K: Ord + Clone + Serialize + DeserializeOwned + Send + 'static,
        V: Clone + Serialize + DeserializeOwned + Send + 'static,
    {
        let map: BTreeMap<K, V> = entries.into_iter().collect();
        Ok(Dict::over(self.serve_by(map, dict::Entries)?))
    }

    /// An empty list.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn list<V>(&self) -> Result<List<V>, ServeError>
    where
        V: Clone + Serialize + DeserializeOwned + Send + 'static,
    {
        self.list_of([])
    }

    /// A list of these items.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn list_of<V>(&self, items: impl IntoIterator<Item = V>) -> Result<List<V>, ServeError>
    where
        V: Clone + Serialize + DeserializeOwned + Send + 'static,
    {
        let items: Vec<V> = items.into_iter().collect();
        Ok(List::over(self.serve_by(items, list::Items)?))
    }

    /// An object of a type of your own: see [`serve`](crate::serve). Its state goes with the manager; `serve`
    /// itself gives it back.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn serve<S, Q, R, F>(&self, state: S, handler: F) -> Result<Proxy<Q, R>, ServeError>
    where
        S: Send + 'static,
        Q: DeserializeOwned + 'static,
        R: Serialize + DeserializeOwned + 'static,
        F: FnMut(&mut S, Q) -> R + Send + 'static,
    {
        self.serve_by(state, handler)
    }

    /// A handle on an object of another machine, which has a [`Listener`](tensorferry_remote::Listener) for
    /// it there ([`accept`](crate::accept)). All processes of this machine can call it by this handle,
    /// through this process: see [the crate](crate#objects-of-other-machines). It is one of the manager's
    /// objects: the connection ends with the manager, which waits for the answer to a call that is on its
    /// way.
    ///
    /// # Blocking
    /// Until the other machine has answered, as [`tensorferry_remote::connect`].
    ///
    /// # Errors
    /// [`ReachError`](crate::ReachError); at once where nobody listens, or not yet.
    #[cfg(feature = "remote")]
    pub fn connect<H: crate::RemoteHandle>(
        &self,
        address: impl std::net::ToSocketAddrs,
        key: &tensorferry_remote::Key,
    ) -> Result<H, crate::ReachError> {
        let connection = tensorferry_remote::connect_in(&self.heap, address, key)?;
        Ok(H::over(self.serve_by((), crate::remote::Line::<H>::new(connection))?))
    }

    fn serve_by<S, Q, R, H>(&self, state: S, handler: H) -> Result<Proxy<Q, R>, ServeError>
    where
        S: Send + 'static,
        Q: DeserializeOwned + 'static,
        R: Serialize + DeserializeOwned + 'static,
        H: Handler<S, Q, R> + Send + 'static,
    {
        let served = serve_by(&self.heap, state, handler)?;
        let proxy = served.proxy().clone();
        self.served().push(Box::new(served));
        Ok(proxy)
    }

    /// Ends all objects. Requests that were sent before are answered first. Dropping the manager does the
    /// same, and tells of no panics.
    ///
    /// # Blocking
    /// Until they are.
    ///
    /// # Errors
    /// [`PanickedError`] when handlers have panicked. All objects have ended all the same.
    pub fn shutdown(self) -> Result<(), PanickedError> {
        let panics = self.end_all();
        if panics.is_empty() { Ok(()) } else { Err(PanickedError { panics }) }
    }

    fn end_all(&self) -> Vec<HandlerPanic> {
        let served = std::mem::take(&mut *self.served());
        // Later calls are refused by all before any of them is waited for.
        served.iter().for_each(|served| served.close());
        served.into_iter().filter_map(Ending::end).collect()
    }

    fn served(&self) -> MutexGuard<'_, Vec<Box<dyn Ending>>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.end_all();
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager").field("n_objects", &self.served().len()).finish_non_exhaustive()
    }
}
