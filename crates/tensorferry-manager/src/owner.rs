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

use crate::answer::Answer;
use crate::error::StateError;
use crate::guarded::{Guarded, catch};
use crate::head::{HEAD_LEN_BYTES, Head, Kind};

/// After so many messages, links are looked through for those whose callers are gone.
const LOOK_THROUGH_AFTER: u32 = 256;
/// A longer message is not kept for the next one.
const KEPT_LEN_BYTES: usize = 1 << 20;
/// How long to wait until what the kernel would not let this process read is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(10);
/// After so long the object ends, and all who wait are told.
const GIVE_UP: Duration = Duration::from_secs(30);

/// An object and what it needs to answer.
pub(crate) struct Owner<S, R, F> {
    requests: Arc<Ring>,
    state: S,
    handler: F,
    /// The text of the panic that has ended it.
    panicked: Option<String>,
    links: HashMap<u64, SoleSender<Answer<R>>>,
}

impl<S, R, F> Owner<S, R, F>
where
    R: Serialize + DeserializeOwned,
{
    pub(crate) fn new(requests: Arc<Ring>, state: S, handler: F) -> Self {
        Self { requests, state, handler, panicked: None, links: HashMap::new() }
    }

    /// Answers until the object is closed and all requests before that are answered. Returns its state.
    pub(crate) fn run<Q>(mut self) -> Result<S, StateError<S>>
    where
        Q: DeserializeOwned,
        F: FnMut(&mut S, Q) -> R,
    {
        let mut message = IncomingMessage::default();
        let mut n_messages = 0_u32;
        let mut failing_since = None;
        loop {
            match self.requests.take_into(&mut message, Consumers::Single, Deadline::Never) {
                Ok(()) => {
                    if let Some(head) = Head::read(&message.payload) {
                        self.receive(head, &mut message);
                    }
                    // What nobody has read.
                    message.handles.clear();
                    failing_since = None;
                    if message.payload.len() > KEPT_LEN_BYTES {
                        message = IncomingMessage::default();
                    }
                    n_messages = n_messages.wrapping_add(1);
                    if n_messages.is_multiple_of(LOOK_THROUGH_AFTER) {
                        self.look_through_links();
                    }
                }
                // All other processes that could call are gone, which is told once; the proxy of this process
                // is left. Of a process that was declared dead, nothing is left.
                Err(RingTakeError::NoSenders | RingTakeError::PeerDied) if self.is_member() => {
                    self.look_through_links();
                }
                // The kernel does not let this process read what a request names: it has no memory to map it
                // with, say. The request stays where it is.
                Err(RingTakeError::Storage(error)) if is_passing(&error) && self.is_member() => {
                    let since = *failing_since.get_or_insert_with(Instant::now);
                    if self.requests.is_closed() || since.elapsed() > GIVE_UP {
                        break;
                    }
                    thread::park_timeout(TRY_AGAIN);
                }
                // A request whose table makes no sense is lost.
                Err(RingTakeError::Storage(_)) if self.is_member() => {}
                Err(_) => break,
            }
        }
        match self.panicked {
            None => Ok(self.state),
            Some(message) => Err(StateError::Panicked { state: self.state, message }),
        }
    }

    fn is_member(&self) -> bool {
        let domain = self.requests.heap().domain();
        domain.is_owning_process() && domain.is_live(domain.me())
    }

    fn receive<Q>(&mut self, Head { link, kind }: Head, message: &mut IncomingMessage)
    where
        Q: DeserializeOwned,
        F: FnMut(&mut S, Q) -> R,
    {
        match kind {
            Kind::Open => {
                // A caller whose end cannot be read is told by its loss.
                if let Ok(answers) = decode_behind(HEAD_LEN_BYTES, message) {
                    self.links.insert(link, answers);
                }
            }
            Kind::Call => {
                let answer = self.answer(message);
                self.send(link, answer);
            }
            Kind::Tell => {
                self.answer(message);
            }
            Kind::Close => drop(self.links.remove(&link)),
        }
    }

    fn answer<Q>(&mut self, message: &mut IncomingMessage) -> Answer<R>
    where
        Q: DeserializeOwned,
        F: FnMut(&mut S, Q) -> R,
    {
        if let Some(text) = &self.panicked {
            return Answer::Panicked(text.clone());
        }
        let request = match catch(|| decode_behind::<Q>(HEAD_LEN_BYTES, message)) {
            Ok(Ok(request)) => request,
            Ok(Err(error)) => return Answer::Unreadable(error.to_string()),
            Err(text) => return Answer::Unreadable(format!("reading it has panicked: {text}")),
        };
        // The state is given to nobody but `into_state`, which says that a step may be half done.
        match catch(|| (self.handler)(&mut self.state, request)) {
            Ok(answer) => Answer::Done(Guarded::new(answer)),
            Err(text) => {
                self.panicked = Some(text.clone());
                Answer::Panicked(text)
            }
        }
    }

    fn send(&mut self, link: u64, answer: Answer<R>) {
        let Some(answers) = self.links.get_mut(&link) else { return };
        // There is room: a caller has one call at a time, and has taken the answer to the one before. What
        // fails has not been put, so that another answer is the only one.
        let is_told = match catch(|| answers.put_nowait(answer)) {
            Ok(Ok(())) => true,
            Ok(Err(refused)) if refused.is_final() => false,
            Ok(Err(refused)) => answers.put_nowait(Answer::Unsendable(refused.kind.to_string())).is_ok(),
            Err(text) => {
                let why = format!("writing it has panicked: {text}");
                answers.put_nowait(Answer::Unsendable(why)).is_ok()
            }
        };
        if !is_told {
            self.links.remove(&link);
        }
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
