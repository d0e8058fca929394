//! One caller's way to an object and back.

use std::sync::atomic::{AtomicU32, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_queue::{GetError, SoleReceiver, spsc_in};
use tensorferry_storage::{Deadline, Heap};

use crate::answer::Answer;
use crate::error::CallErrorKind;
use crate::head::{Head, Kind};
use crate::requests::Requests;

/// A channel for the answers to one caller at a time. A process has as many as it has threads that call at
/// once.
#[derive(Debug)]
pub(crate) struct Link<R> {
    /// Tells it from those of all processes of the domain.
    number: u64,
    answers: SoleReceiver<Answer<R>>,
    is_given_up: bool,
}

impl<R: Serialize + DeserializeOwned> Link<R> {
    /// Makes a link, and tells the object of it.
    pub(crate) fn open<Q>(requests: &Requests<Q, R>, deadline: Deadline) -> Result<Self, CallErrorKind> {
        let heap = requests.ring().heap();
        let (theirs, answers) = spsc_in(heap, 1).map_err(|error| CallErrorKind::Unsendable(error.into()))?;
        let link = Self { number: fresh_number(heap), answers, is_given_up: false };
        requests.put(Head { link: link.number, kind: Kind::Open }, &theirs, deadline)?;
        Ok(link)
    }

    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Whether this process has made it. A process that was forked has a copy of those of its parent.
    pub(crate) fn is_of(&self, heap: &Heap) -> bool {
        self.number >> 32 == member_bits(heap)
    }

    /// Whether a call was given up on it: it takes no more answers.
    pub(crate) const fn is_given_up(&self) -> bool {
        self.is_given_up
    }

    /// Waits for the answer to the request that was sent.
    pub(crate) fn answer(&mut self, deadline: Deadline) -> Result<Answer<R>, GetError> {
        let answer = match deadline {
            Deadline::Never => return self.answers.get(),
            Deadline::Now => self.answers.get_nowait(),
            Deadline::At(end) => {
                self.answers.get_timeout(end.saturating_duration_since(std::time::Instant::now()))
            }
        };
        if matches!(answer, Err(GetError::Empty)) { self.give_up() } else { answer }
    }

    /// Has the object find from here on that it cannot send its answer. One that it has sent before is there.
    fn give_up(&mut self) -> Result<Answer<R>, GetError> {
        self.is_given_up = true;
        self.answers.close();
        match self.answers.get_nowait() {
            Err(GetError::Closed) => Err(GetError::Empty),
            last => last,
        }
    }
}

/// A number that nothing else of a live process has: no link, and no object.
pub(crate) fn fresh_number(heap: &Heap) -> u64 {
    static N_MADE: AtomicU32 = AtomicU32::new(0);
    member_bits(heap) << 32 | u64::from(N_MADE.fetch_add(1, Ordering::Relaxed))
}

/// `epoch:26 | slot:6`.
fn member_bits(heap: &Heap) -> u64 {
    let me = heap.domain().me();
    (u64::from(me.epoch) << 6 | u64::from(me.slot)) & 0xffff_ffff
}

#[cfg(test)]
mod tests {
    use tensorferry_queue::{PutErrorKind, SoleSender};
    use tensorferry_reduce::decode_behind;
    use tensorferry_storage::Consumers;

    use super::*;
    use crate::answer::Failure;
    use crate::head::HEAD_LEN_BYTES;

    /// A link, and the object's end of it.
    fn link() -> (Link<u8>, SoleSender<Answer<u8>>) {
        let (requests, ring) = Requests::<u8, u8>::create(Heap::current().unwrap()).unwrap();
        let link = Link::open(&requests, Deadline::Never).unwrap();
        let theirs = decode_behind(HEAD_LEN_BYTES, &mut ring.take(Consumers::Single, Deadline::Now).unwrap());
        (link, theirs.unwrap())
    }

    fn unsendable() -> Answer<u8> {
        Answer::Failed(Failure::Unsendable("no".to_owned()))
    }

    #[test]
    fn an_answer_that_comes_just_before_its_caller_gives_up_has_come() {
        let (mut link, mut theirs) = link();
        theirs.put_nowait(unsendable()).unwrap();
        assert!(matches!(link.give_up(), Ok(Answer::Failed(_))) && link.is_given_up());
    }

    #[test]
    fn an_answer_that_comes_after_its_caller_has_given_up_is_refused() {
        let (mut link, mut theirs) = link();
        assert!(matches!(link.answer(Deadline::Now), Err(GetError::Empty)) && link.is_given_up());
        let refused = theirs.put_nowait(unsendable()).unwrap_err();
        assert!(refused.is_final() && matches!(refused.kind, PutErrorKind::Closed), "{refused}");
    }
}
