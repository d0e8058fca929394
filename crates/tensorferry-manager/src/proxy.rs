//! A handle on an object, with which it is called.

use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tensorferry_queue::GetError;
use tensorferry_storage::Deadline;

use crate::answer::Answer;
use crate::error::{CallError, CallErrorKind};
use crate::head::{Head, Kind};
use crate::link::Link;
use crate::requests::Requests;

/// Links that are kept for later calls. More of them are used, if as many threads call at once.
const MAX_IDLE: usize = 16;

thread_local! {
    /// The object that this thread serves, by domain and number.
    static SERVES: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
}

/// Says that this thread serves an object.
pub(crate) fn note_served(domain: u64, object: u64) {
    SERVES.set(Some((domain, object)));
}

/// A handle on an object, which takes requests `Q` and answers `R`.
///
/// A clone is another handle, and so is the value that a receiver gets when one is sent in a message or as a
/// spawn argument. All threads of a process can use one at the same time. The object lives as long as it is
/// [served](crate::Served), whoever has handles.
pub struct Proxy<Q, R> {
    requests: Requests<Q, R>,
    /// Tells the object from others of the domain.
    object: u64,
    idle: Arc<Mutex<Vec<Link<R>>>>,
}

impl<Q, R> Proxy<Q, R> {
    pub(crate) fn new(requests: Requests<Q, R>, object: u64) -> Self {
        Self { requests, object, idle: Arc::default() }
    }

    /// Refuses every later call.
    pub(crate) fn close(&self) {
        self.requests.ring().close();
    }

    /// Whether this process is a member, and no fork of one that has a copy of this.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.requests.ring().heap().domain().is_owning_process()
    }

    #[cfg(feature = "remote")]
    pub(crate) fn heap(&self) -> &tensorferry_storage::Heap {
        self.requests.ring().heap()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Link<R>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Q: Serialize, R: Serialize + DeserializeOwned> Proxy<Q, R> {
    /// Calls the object, and waits for its answer. Calls of one object are made one after another, each as
    /// one step.
    ///
    /// # Blocking
    /// Until the answer comes, or the object ends, or its process. For ever, where the object cannot answer
    /// because its handler waits for this very call: where objects call each other in a circle, say. A call
    /// by the object's own thread is refused instead.
    ///
    /// # Errors
    /// [`CallError`], with the request if it was not sent.
    pub fn call(&self, request: Q) -> Result<R, CallError<Q>> {
        self.call_within(request, Deadline::Never)
    }

    /// As [`Proxy::call`], waiting for at most `timeout`: also where `call` would wait for ever. A request
    /// that was sent is not taken back when the time is over.
    ///
    /// # Blocking
    /// As [`Proxy::call`], for at most `timeout`, and longer only over a `SealedTensor` that has to be asked
    /// for.
    ///
    /// # Errors
    /// As [`Proxy::call`], and [`CallErrorKind::TimedOut`].
    pub fn call_timeout(&self, request: Q, timeout: Duration) -> Result<R, CallError<Q>> {
        self.call_within(request, Deadline::within(timeout))
    }

    /// Sends a request whose answer nobody wants. It is made after those that this thread has sent before.
    /// Whether it is made is not told: not that its handler panics, nor that an earlier one has.
    ///
    /// # Blocking
    /// While 64 requests wait already.
    ///
    /// # Errors
    /// As [`Proxy::call`], but for what the handler does.
    pub fn tell(&self, request: Q) -> Result<(), CallError<Q>> {
        let head = Head { link: 0, kind: Kind::Tell };
        self.check_caller()
            .and_then(|()| self.requests.put(head, &request, Deadline::Never))
            .map_err(|kind| CallError::new(Some(request), kind))
    }

    fn call_within(&self, request: Q, deadline: Deadline) -> Result<R, CallError<Q>> {
        let mut link = match self.check_caller().and_then(|()| self.take_link(deadline)) {
            Ok(link) => link,
            Err(kind) => return Err(CallError::new(Some(request), kind)),
        };
        let head = Head { link: link.number(), kind: Kind::Call };
        if let Err(kind) = self.requests.put(head, &request, deadline) {
            self.keep(link);
            return Err(CallError::new(Some(request), kind));
        }
        // A link without its answer is not used again: that may still come.
        let answer = link.answer(deadline).map_err(|error| CallError::new(None, self.why(error, &link)))?;
        self.keep(link);
        match answer {
            Answer::Done(answer) => {
                answer.into_inner().ok_or(CallError::new(None, CallErrorKind::OtherAnswer))
            }
            Answer::Failed(failure) => Err(CallError::new(None, failure.into())),
        }
    }

    fn check_caller(&self) -> Result<(), CallErrorKind> {
        let object = (self.requests.ring().heap().domain().id(), self.object);
        if SERVES.get() == Some(object) { Err(CallErrorKind::WithinItself) } else { Ok(()) }
    }

    fn take_link(&self, deadline: Deadline) -> Result<Link<R>, CallErrorKind> {
        let heap = self.requests.ring().heap();
        while let Some(link) = { self.idle().pop() } {
            if link.is_of(heap) {
                return Ok(link);
            }
        }
        Link::open(&self.requests, deadline)
    }

    /// Why there is no answer. A process that is killed before it has taken a caller's end has never had that
    /// end, which is then not lost by a death; the way to the object knows of the death.
    fn why(&self, error: GetError, link: &Link<R>) -> CallErrorKind {
        match CallErrorKind::of_get(error, self.requests.owner_pid()) {
            CallErrorKind::Ended => match self.let_go(link) {
                Err(kind @ (CallErrorKind::Ended | CallErrorKind::OwnerDied { .. })) => kind,
                _ => CallErrorKind::WayLost,
            },
            other => other,
        }
    }

    /// Keeps a link on which no call is open for the next one.
    fn keep(&self, link: Link<R>) {
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE && !link.is_given_up() {
            idle.push(link);
        } else {
            drop(idle);
            let _ = self.let_go(&link);
        }
    }

    /// Tells the object that nobody uses the link any more. If there is no room to say so, the object finds
    /// out by itself.
    fn let_go(&self, link: &Link<R>) -> Result<(), CallErrorKind> {
        self.requests.put(Head { link: link.number(), kind: Kind::Close }, &(), Deadline::Now)
    }
}

impl<Q, R> Clone for Proxy<Q, R> {
    fn clone(&self) -> Self {
        Self { requests: self.requests.clone(), object: self.object, idle: Arc::clone(&self.idle) }
    }
}

impl<Q, R> fmt::Debug for Proxy<Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("is_ended", &self.requests.ring().is_closed()).finish_non_exhaustive()
    }
}

/// Sends another handle. Works only inside a message.
impl<Q, R> Serialize for Proxy<Q, R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&self.requests, self.object).serialize(serializer)
    }
}

impl<'de, Q, R> Deserialize<'de> for Proxy<Q, R> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (requests, object) = Deserialize::deserialize(deserializer)?;
        Ok(Self::new(requests, object))
    }
}
