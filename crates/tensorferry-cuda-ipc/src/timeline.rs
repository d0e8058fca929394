//! Timelines: how other processes wait for work on a stream of this process.
//!
//! A timeline belongs to one stream, and its points are numbered. Each point is recorded into one of a few
//! interprocess events, in turn. Recording an event again moves it to later work of the same stream, so a
//! waiter for an older point waits for at least that point. The owner notes in shared memory the number up to
//! which all points are done. So a process that looks later asks nothing of the driver, and loses nothing if
//! the owner has ended normally.
//!
//! The owner keeps the events as long as another process has the timeline, because an opened event must not
//! be used once its owner has destroyed it. When the owner's program no longer has the stream and all points
//! are done, the owner marks the timeline as *retired*. Then the other processes let go of it, and the owner
//! follows. A message in flight holds the timeline as well; its receiver learns of the timeline again, and
//! needs none of its events.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tensorferry_storage::Heap;

use crate::capture::Relaxed;
use crate::control::{N_EVENTS, TimelineControl};
use crate::error::CudaError;
use crate::event::Event;
use crate::stream::{KnownStream, Stream};
use crate::tensor_error::{CudaTensorError, Result};

#[derive(Debug)]
pub(crate) struct Timeline {
    /// Declared before `control`, so dropped before the holder bit is cleared: opened events must be dropped
    /// before their owner may destroy them.
    side: Side,
    control: TimelineControl,
}

#[derive(Debug)]
enum Side {
    Own {
        stream: KnownStream,
        /// Empty if the device cannot share events. Then each point is waited for when it is made.
        events: Vec<Event>,
        /// The number of the last point.
        last: Mutex<u64>,
    },
    /// Events of another process, each opened on first use.
    Opened([Mutex<Option<Event>>; N_EVENTS]),
}

impl Timeline {
    /// Makes a timeline for a stream.
    pub(crate) fn create(heap: &Heap, stream: &Stream) -> Result<Self> {
        let context = stream.context();
        let n_events = if context.device().has_interprocess_events()? { N_EVENTS } else { 0 };
        let events = (0..n_events).map(|_| Event::interprocess(context)).collect::<Result<Vec<_>, _>>()?;
        let handles = events.iter().map(Event::ipc_handle).collect::<Result<Vec<_>, _>>()?;
        let control = TimelineControl::create(heap, &handles)?;
        Ok(Self { control, side: Side::Own { stream: stream.to_known(), events, last: Mutex::default() } })
    }

    /// A timeline of another process. Makes no call of the driver.
    pub(crate) fn of_another(control: TimelineControl) -> Self {
        Self { control, side: Side::Opened(std::array::from_fn(|_| Mutex::default())) }
    }

    pub(crate) fn control(&self) -> &TimelineControl {
        &self.control
    }

    /// Makes a point behind all work that is queued on the stream now.
    pub(crate) fn record(&self) -> Result<u64> {
        let Side::Own { stream, events, last } = &self.side else {
            return Err(CudaTensorError::BadMessage { what: "a timeline of another process" });
        };
        let stream = stream.get();
        if events.is_empty() {
            // Before the lock, which others take to see what is done: this may take as long as the work does.
            stream.synchronize()?;
        }
        let mut last = lock(last);
        let number = *last + 1;
        if let Some(event) = events.get(index_of(number)) {
            event.record(&stream)?;
        }
        *last = number;
        if events.is_empty() {
            self.control.set_done(number);
        }
        Ok(number)
    }

    /// Notes in shared memory which points are done. Returns whether some are not.
    pub(crate) fn publish(&self) -> bool {
        let Side::Own { events, last, .. } = &self.side else { return false };
        let last = lock(last);
        // Another process may have written anything there.
        let done = self.control.done().min(*last);
        let oldest = done.max(last.saturating_sub(N_EVENTS as u64)) + 1;
        for number in (oldest..=*last).rev() {
            match events.get(index_of(number)).map(Event::is_done) {
                Some(Ok(true)) => {
                    self.control.set_done(number);
                    return number < *last;
                }
                Some(Ok(false)) => {}
                // The context is broken: no point will be reached any more, and none can be asked about.
                Some(Err(_)) | None => return false,
            }
        }
        oldest <= *last
    }

    /// Whether this process no longer needs the timeline. The caller has no point of it. The owner retires
    /// the timeline when its stream is not used and all points are done, and needs it until no other process
    /// has it.
    pub(crate) fn is_unused(&self) -> bool {
        match &self.side {
            Side::Own { stream, .. } => {
                let is_retired = stream.is_unused() && !self.publish();
                if is_retired {
                    self.control.set_retired(true);
                }
                is_retired && self.control.0.is_sole()
            }
            // A timeline with no opened event costs nothing to learn of again.
            Side::Opened(events) => {
                let is_open = |event: &Mutex<Option<Event>>| {
                    event.lock().unwrap_or_else(PoisonError::into_inner).is_some()
                };
                self.control.is_retired() || !events.iter().any(is_open)
            }
        }
    }

    /// The stream has work again.
    pub(crate) fn revive(&self) {
        self.control.set_retired(false);
    }

    pub(crate) fn is_own(&self) -> bool {
        matches!(self.side, Side::Own { .. })
    }

    /// Makes `stream` wait for a point. If the point is known to be reached, this costs one load from shared
    /// memory.
    pub(crate) fn hold_up(&self, stream: &Stream, number: u64) -> Result<()> {
        if self.control.done() >= number {
            return Ok(());
        }
        match &self.side {
            // The point was recorded on this stream, so the stream's order is enough.
            Side::Own { stream: own, .. } if own.is(stream) => Ok(()),
            Side::Own { events, .. } => {
                let event = events.get(index_of(number));
                Ok(event.map_or(Ok(()), |event| event.hold_up(stream))?)
            }
            Side::Opened(events) => self.hold_up_by_another(events, stream, number),
        }
    }

    fn hold_up_by_another(
        &self,
        events: &[Mutex<Option<Event>>; N_EVENTS],
        stream: &Stream,
        number: u64,
    ) -> Result<()> {
        if !self.control.has_events() {
            // Without events, the owner notes each point as done before it sends it. So this point was never
            // made.
            return Err(CudaTensorError::BadMessage { what: "a point that was never made" });
        }
        let _relaxed = Relaxed::begin();
        let index = index_of(number);
        let Some(slot) = events.get(index) else { return Ok(()) };
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = |slot: &mut Option<Event>| -> Result<(), CudaError> {
            let event = match slot {
                Some(event) => event,
                None => slot.insert(Event::open(stream.context(), self.control.handle(index))?),
            };
            if event.is_done()? {
                return Ok(());
            }
            if self.control.is_owner_gone() {
                // The point will never be reached. A stream that waited for it might break, or wait forever.
                return if event.is_done()? { Ok(()) } else { Err(CudaError::Released) };
            }
            event.hold_up(stream)
        };
        let Err(error) = wait(&mut slot) else { return Ok(()) };
        // The owner may have noted that all is done, and ended, since the first check.
        let is_gone = self.control.is_owner_gone();
        match self.control.done() >= number {
            true => Ok(()),
            false if is_gone => Err(CudaTensorError::ProducerGone),
            false => Err(error.into()),
        }
    }
}

/// The index of the event into which a point is recorded.
fn index_of(number: u64) -> usize {
    usize::try_from(number % N_EVENTS as u64).unwrap_or(0)
}

fn lock(last: &Mutex<u64>) -> MutexGuard<'_, u64> {
    last.lock().unwrap_or_else(PoisonError::into_inner)
}
