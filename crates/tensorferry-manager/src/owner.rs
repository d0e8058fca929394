//! The thread that has an object and answers for it.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_queue::SoleSender;
use tensorferry_reduce::{DecodeError, decode_behind};
use tensorferry_storage::{Consumers, Deadline, IncomingMessage, Ring, RingTakeError, StorageError};

use crate::answer::Answer;
use crate::error::PanickedError;
use crate::head::{HEAD_LEN_BYTES, Head, Kind};

/// Links are looked through for those whose callers are gone when there are twice as many as after the last
/// time, and not before there are as many as this.
const FEW_LINKS: usize = 64;

/// An object and what it needs to answer.
pub(crate) struct Owner<S, R, F> {
    requests: Arc<Ring>,
    state: S,
    handler: F,
    /// The text of the panic that has ended it.
    panicked: Option<String>,
    links: HashMap<u64, SoleSender<Answer<R>>>,
    n_links_to_look_through: usize,
}

impl<S, R, F> Owner<S, R, F>
where
    R: Serialize + DeserializeOwned,
{
    pub(crate) fn new(requests: Arc<Ring>, state: S, handler: F) -> Self {
        let (panicked, links) = (None, HashMap::new());
        Self { requests, state, handler, panicked, links, n_links_to_look_through: FEW_LINKS }
    }

    /// Answers until the object is closed and all requests before that are answered. Returns its state.
    pub(crate) fn run<Q>(mut self) -> Result<S, PanickedError<S>>
    where
        Q: DeserializeOwned,
        F: FnMut(&mut S, Q) -> R,
    {
        let mut message = IncomingMessage::default();
        loop {
            match self.requests.take_into(&mut message, Consumers::Single, Deadline::Never) {
                Ok(()) => {
                    if let Some(head) = Head::read(&message.payload) {
                        self.receive(head, &mut message);
                    }
                }
                // News of callers that are gone, once each: the proxy of this process is left.
                Err(RingTakeError::NoSenders | RingTakeError::PeerDied) => {}
                // A request whose table makes no sense is lost.
                Err(RingTakeError::Storage(error)) if !matches!(*error, StorageError::Domain(_)) => {}
                // Closed; or the kernel does not let this process read what a request names, or it was
                // declared dead. All who wait are told by the end of this side.
                Err(_) => break,
            }
        }
        match self.panicked {
            None => Ok(self.state),
            Some(message) => Err(PanickedError::new(self.state, message)),
        }
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
                    self.look_through_links();
                    self.links.insert(link, answers);
                }
            }
            Kind::Call => {
                let answer = self.answer(decode_behind(HEAD_LEN_BYTES, message));
                self.send(link, answer);
            }
            Kind::Tell => drop(self.answer::<Q>(decode_behind(HEAD_LEN_BYTES, message))),
            Kind::Close => drop(self.links.remove(&link)),
        }
    }

    fn answer<Q>(&mut self, request: Result<Q, DecodeError>) -> Answer<R>
    where
        F: FnMut(&mut S, Q) -> R,
    {
        if let Some(text) = &self.panicked {
            return Answer::Panicked(text.clone());
        }
        let request = match request {
            Ok(request) => request,
            Err(error) => return Answer::Unreadable(error.to_string()),
        };
        // The state is given to nobody but `into_state`, which says that a step may be half done.
        match catch_unwind(AssertUnwindSafe(|| (self.handler)(&mut self.state, request))) {
            Ok(answer) => Answer::Done(answer),
            Err(payload) => {
                let text = text_of(&*payload);
                self.panicked = Some(text.clone());
                Answer::Panicked(text)
            }
        }
    }

    fn send(&mut self, link: u64, answer: Answer<R>) {
        let Some(answers) = self.links.get_mut(&link) else { return };
        // There is room: a caller has one call at a time, and has taken the answer to the one before.
        if let Err(refused) = answers.put_nowait(answer) {
            let is_told = !refused.is_final()
                && answers.put_nowait(Answer::Unsendable(refused.kind.to_string())).is_ok();
            if !is_told {
                self.links.remove(&link);
            }
        }
    }

    /// Forgets links whose callers are gone.
    fn look_through_links(&mut self) {
        if self.links.len() >= self.n_links_to_look_through {
            self.links.retain(|_, answers| !answers.is_disconnected());
            self.n_links_to_look_through = (2 * self.links.len()).max(FEW_LINKS);
        }
    }
}

/// The text of a panic.
fn text_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".to_owned())
}
