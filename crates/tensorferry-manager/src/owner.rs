//! The thread that has an object and answers for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_queue::SoleSender;
use tensorferry_reduce::decode_behind;
use tensorferry_storage::{Consumers, Deadline, IncomingMessage, Ring, RingTakeError, StorageError};

use crate::answer::{Answer, Failure};
use crate::error::StateError;
use crate::guarded::{Guarded, catch, reading_has_panicked, writing_has_panicked};
use crate::handler::Handler;
use crate::head::{HEAD_LEN_BYTES, Head, Kind};
use crate::panic::HandlerPanic;

/// After so many messages, links are looked through for those whose callers are gone.
const LOOK_THROUGH_AFTER: u32 = 256;
/// A longer message is not kept for the next one.
const KEPT_LEN_BYTES: usize = 1 << 20;
/// How long to wait until what the kernel would not let this process read is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(10);
/// After so long the object ends, and all who wait are told.
const GIVE_UP: Duration = Duration::from_secs(30);

/// An object and what it needs to answer.
pub(crate) struct Owner<S, R, H> {
    requests: Arc<Ring>,
    state: S,
    handler: H,
    /// The panic that has ended it.
    panicked: Option<Box<HandlerPanic>>,
    links: HashMap<u64, SoleSender<Answer<R>>>,
    n_messages: u32,
    /// Since when no request can be read.
    failing_since: Option<Instant>,
}

impl<S, R, H> Owner<S, R, H>
where
    R: Serialize + DeserializeOwned,
{
    pub(crate) fn new(requests: Arc<Ring>, state: S, handler: H) -> Self {
        let links = HashMap::new();
        Self { requests, state, handler, panicked: None, links, n_messages: 0, failing_since: None }
    }

    /// Answers until the object is closed and all requests before that are answered. Returns its state.
    pub(crate) fn run<Q>(mut self) -> Result<S, StateError<S>>
    where
        Q: DeserializeOwned,
        H: Handler<S, Q, R>,
    {
        let mut message = IncomingMessage::default();
        while self.take(&mut message) {}
        match self.panicked {
            None => Ok(self.state),
            Some(panic) => Err(StateError::Panicked { state: self.state, panic }),
        }
    }

    /// Waits for a message, and does what it asks. Returns whether to go on.
    fn take<Q>(&mut self, message: &mut IncomingMessage) -> bool
    where
        Q: DeserializeOwned,
        H: Handler<S, Q, R>,
    {
        if let Err(error) = self.requests.take_into(message, Consumers::Single, Deadline::Never) {
            return self.goes_on_after(error);
        }
        if let Some(head) = Head::read(&message.payload) {
            self.receive(head, message);
        }
        // What nobody has read.
        message.handles.clear();
        self.failing_since = None;
        if message.payload.len() > KEPT_LEN_BYTES {
            *message = IncomingMessage::default();
        }
        self.n_messages = self.n_messages.wrapping_add(1);
        if self.n_messages.is_multiple_of(LOOK_THROUGH_AFTER) {
            self.look_through_links();
        }
        true
    }

    fn goes_on_after(&mut self, error: RingTakeError) -> bool {
        match error {
            // All other processes that could call are gone, which is told once; the proxy of this process is
            // left. Of a process that was declared dead, nothing is left.
            RingTakeError::NoSenders | RingTakeError::PeerDied if self.is_member() => {
                self.look_through_links();
                true
            }
            // The kernel does not let this process read what a request names: it has no memory to map it
            // with, say. The request stays where it is.
            RingTakeError::Storage(error) if is_passing(&error) && self.is_member() => {
                let since = *self.failing_since.get_or_insert_with(Instant::now);
                let goes_on = !self.requests.is_closed() && since.elapsed() < GIVE_UP;
                if goes_on {
                    thread::park_timeout(TRY_AGAIN);
                }
                goes_on
            }
            // A request whose table makes no sense is lost.
            RingTakeError::Storage(_) => self.is_member(),
            _ => false,
        }
    }

    fn is_member(&self) -> bool {
        let domain = self.requests.heap().domain();
        domain.is_owning_process() && domain.is_live(domain.me())
    }

    fn receive<Q>(&mut self, Head { link, kind }: Head, message: &mut IncomingMessage)
    where
        Q: DeserializeOwned,
        H: Handler<S, Q, R>,
    {
        match kind {
            Kind::Open => {
                // A caller whose end cannot be read is told by its loss.
                if let Ok(answers) = decode_behind(HEAD_LEN_BYTES, message) {
                    self.links.insert(link, answers);
                }
            }
            Kind::Call => {
                let (answer, taken) = self.answer(message);
                if let (Some(answer), Some(taken)) = (self.send(link, answer), taken) {
                    self.put_back(answer, taken);
                }
            }
            Kind::Tell => {
                self.answer(message);
            }
            Kind::Close => drop(self.links.remove(&link)),
        }
    }

    /// The answer, and what it has taken out of the state.
    fn answer<Q>(&mut self, message: &mut IncomingMessage) -> (Answer<R>, Option<Guarded<H::Taken>>)
    where
        Q: DeserializeOwned,
        H: Handler<S, Q, R>,
    {
        if let Some(panic) = &self.panicked {
            return (Answer::Failed(Failure::Panicked(panic.clone())), None);
        }
        let request = match catch(|| decode_behind::<Q>(HEAD_LEN_BYTES, message)) {
            Ok(Ok(request)) => request,
            Ok(Err(error)) => return (Answer::Failed(Failure::Unreadable(error.to_string())), None),
            Err(text) => return (Answer::Failed(Failure::Unreadable(reading_has_panicked(&text))), None),
        };
        match catch(|| self.handler.step(&mut self.state, request)) {
            Ok(Ok((answer, taken))) => (Answer::Done(Guarded::new(answer)), Some(Guarded::new(taken))),
            Ok(Err(failure)) => (Answer::Failed(failure), None),
            Err(text) => (Answer::Failed(Failure::Panicked(self.note_panic(text))), None),
        }
    }

    fn put_back<Q>(&mut self, answer: R, taken: Guarded<H::Taken>)
    where
        H: Handler<S, Q, R>,
    {
        let put_back = || {
            if let Some(taken) = taken.into_inner() {
                self.handler.put_back(&mut self.state, taken, answer);
            }
        };
        if let Err(text) = catch(put_back) {
            self.note_panic(text);
        }
    }

    /// Ends the object. The state is given to nobody but `into_state`, which says that a step may be half
    /// done.
    fn note_panic(&mut self, text: String) -> Box<HandlerPanic> {
        let panic = Box::new(HandlerPanic::of_this_thread(text));
        self.panicked = Some(panic.clone());
        panic
    }

    /// Returns what the handler has answered, if that was not sent and is still there.
    fn send(&mut self, link: u64, answer: Answer<R>) -> Option<R> {
        let Some(answers) = self.links.get_mut(&link) else { return answer.into_done() };
        // There is room: a caller has one call at a time, and has taken the answer to the one before. What
        // fails has not been put, so that another answer is the only one.
        let (unsent, why) = match catch(|| answers.put_nowait(answer)) {
            Ok(Ok(())) => return None,
            Ok(Err(refused)) if refused.is_final() => (refused.value.into_done(), None),
            Ok(Err(refused)) => (refused.value.into_done(), Some(refused.kind.to_string())),
            Err(text) => (None, Some(writing_has_panicked(&text))),
        };
        let unsendable = |why| Answer::Failed(Failure::Unsendable(why));
        let is_told = why.is_some_and(|why| answers.put_nowait(unsendable(why)).is_ok());
        if !is_told {
            self.links.remove(&link);
        }
        unsent
    }

    /// Forgets links whose callers are gone.
    fn look_through_links(&mut self) {
        self.links.retain(|_, answers| !answers.is_disconnected());
    }
}

/// Whether the same may succeed later.
fn is_passing(error: &StorageError) -> bool {
    matches!(error, StorageError::Domain(_))
}

#[cfg(test)]
mod tests;
