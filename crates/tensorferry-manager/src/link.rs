//! One caller's way to an object and back.

use std::sync::atomic::{AtomicU32, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_queue::{SoleReceiver, spsc_in};
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
}

impl<R: Serialize + DeserializeOwned> Link<R> {
    /// Makes a link, and tells the object of it.
    pub(crate) fn open<Q>(requests: &Requests<Q, R>, deadline: Deadline) -> Result<Self, CallErrorKind> {
        let heap = requests.ring().heap();
        let (theirs, answers) = spsc_in(heap, 1).map_err(|error| CallErrorKind::Unsendable(error.into()))?;
        let link = Self { number: fresh_number(heap), answers };
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

    /// Waits for the answer to the request that was sent.
    pub(crate) fn answer(&mut self, deadline: Deadline) -> Result<Answer<R>, CallErrorKind> {
        let answer = match deadline {
            Deadline::Never => self.answers.get(),
            Deadline::Now => self.answers.get_nowait(),
            Deadline::At(end) => {
                self.answers.get_timeout(end.saturating_duration_since(std::time::Instant::now()))
            }
        };
        answer.map_err(CallErrorKind::of_get)
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
