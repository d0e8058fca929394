//! Timelines: how other processes wait for work on a stream of this process.
//!
//! A timeline belongs to one stream, and its points are numbered. A semaphore says up to which number all
//! points are reached. The stream writes it itself, and streams of other processes wait for it
//! ([`crate::semaphore`]). A process that looks later asks nothing of the driver, and loses nothing if the
//! owner has ended.
//!
//! Where streams have no memory operations, each point is recorded into one of a few interprocess events of
//! the driver, in turn, and the owner notes in the semaphore what is reached. Recording an event again moves
//! it to later work of the same stream, so a waiter for an older point waits for at least that point. A
//! device that cannot share events either is waited for when the point is made.
//!
//! The owner keeps what others wait for as long as another process has the timeline: an opened event must not
//! be used once its owner has destroyed it. When the owner's program no longer has the stream and all points
//! are reached, the owner marks the timeline as *retired*. Then the other processes let go of it, and the
//! owner follows. A message in flight holds the timeline as well; its receiver learns of the timeline again,
//! and needs nothing of the driver for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tensorferry_storage::Heap;

use crate::capture::Relaxed;
use crate::control::{Means, N_EVENTS, TimelineControl};
use crate::error::CudaError;
use crate::event::Event;
use crate::semaphore::{PinnedSemaphores, Semaphores};
use crate::stream::{KnownStream, Stream};
use crate::tensor_error::{CudaTensorError, Result};
use crate::watch;

/// How often a thread looks at a semaphore that no stream can wait for.
const LOOK: Duration = Duration::from_micros(200);

/// The one semaphore of a timeline.
const INDEX: usize = 0;

#[derive(Debug)]
pub(crate) struct Timeline {
    /// Declared before `control`, so dropped before the holder bit is cleared: opened events must be dropped
    /// before their owner may destroy them.
    side: Side,
    control: Arc<TimelineControl>,
}

#[derive(Debug)]
enum Side {
    Own {
        stream: KnownStream,
        points: Points,
        /// The number of the last point.
        last: Mutex<u64>,
    },
    /// Of another process: what streams here wait for, each opened on first use.
    Opened { semaphore: Mutex<Option<PinnedSemaphores>>, events: Box<[Mutex<Option<Event>>; N_EVENTS]> },
}

/// How the points of a timeline of this process are made.
#[derive(Debug)]
enum Points {
    /// The stream writes the semaphore.
    Written(PinnedSemaphores),
    /// They are recorded.
    Recorded(Vec<Event>),
    /// They are waited for.
    Waited,
}

impl Points {
    /// By what the stream's device can do.
    fn of(stream: &Stream, control: &Arc<TimelineControl>) -> Result<Self> {
        let (context, device) = (stream.context(), stream.context().device());
        if device.has_stream_memory_operations()? {
            match PinnedSemaphores::pin(Arc::clone(control) as _, context) {
                Ok(pinned) => {
                    control.wait_by_semaphore();
                    return Ok(Self::Written(pinned));
                }
                Err(error) if error.is_for_good() => return Err(error.into()),
                // Some other reason, for example that the driver pins no two words of one page.
                Err(_) => {}
            }
        }
        if !device.has_interprocess_events()? {
            return Ok(Self::Waited);
        }
        let events = (0..N_EVENTS).map(|_| Event::interprocess(context)).collect::<Result<Vec<_>, _>>()?;
        let handles = events.iter().map(Event::ipc_handle).collect::<Result<Vec<_>, _>>()?;
        control.wait_by_events(&handles);
        Ok(Self::Recorded(events))
    }
}

impl Timeline {
    /// Makes a timeline for a stream.
    pub(crate) fn create(heap: &Heap, stream: &Stream) -> Result<Self> {
        let control = Arc::new(TimelineControl::create(heap)?);
        let points = Points::of(stream, &control)?;
        Ok(Self { control, side: Side::Own { stream: stream.to_known(), points, last: Mutex::default() } })
    }

    /// A timeline of another process. Makes no call of the driver.
    pub(crate) fn of_another(control: TimelineControl) -> Self {
        let events = Box::new(std::array::from_fn(|_| Mutex::default()));
        Self { control: Arc::new(control), side: Side::Opened { semaphore: Mutex::default(), events } }
    }

    pub(crate) fn control(&self) -> &TimelineControl {
        &self.control
    }

    /// Makes a point behind all work that is queued on the stream now.
    pub(crate) fn record(&self) -> Result<u64> {
        let Side::Own { stream, points, last } = &self.side else {
            return Err(CudaTensorError::BadMessage { what: "a timeline of another process" });
        };
        let stream = stream.get();
        if let Points::Waited = points {
            // Before the lock, which others take to see what is done: this may take as long as the work does.
            stream.synchronize()?;
        }
        let mut last = lock(last);
        let number = *last + 1;
        match points {
            Points::Written(semaphore) => {
                self.control.set_last(number);
                semaphore.write(INDEX, &stream, number)?;
            }
            Points::Recorded(events) => {
                if let Some(event) = events.get(index_of(number)) {
                    event.record(&stream)?;
                }
            }
            Points::Waited => self.control.set_done(number),
        }
        *last = number;
        Ok(number)
    }

    /// Notes in shared memory which points are reached, unless the stream does. Returns whether some are not.
    pub(crate) fn publish(&self) -> bool {
        let Side::Own { stream, points, last } = &self.side else { return false };
        let last = lock(last);
        // Another process may have written anything there.
        let done = self.control.done().min(*last);
        if done == *last {
            return false;
        }
        let Points::Recorded(events) = points else {
            // If the stream has nothing to do, all is reached, or the context is broken and nothing will be.
            return !stream.get().is_known_idle();
        };
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

    /// Whether other processes learn that points are reached only when this process notes it.
    pub(crate) fn has_to_be_published(&self) -> bool {
        matches!(&self.side, Side::Own { points: Points::Recorded(_), .. })
    }

    /// Whether this process no longer needs the timeline. The caller has no point of it. The owner retires
    /// the timeline when its stream is not used and all points are done, and needs it until no other process
    /// has it.
    pub(crate) fn is_unused(&self) -> bool {
        match &self.side {
            Side::Own { stream, points, .. } => {
                let is_retired = stream.is_unused() && !self.publish();
                if is_retired {
                    self.control.set_retired(true);
                }
                let is_waited_for = || matches!(points, Points::Written(semaphore) if !semaphore.is_idle());
                is_retired && self.control.0.is_sole() && !is_waited_for()
            }
            // A timeline of which nothing is opened costs nothing to learn of again.
            Side::Opened { semaphore, events } => {
                let is_open = |event: &Mutex<Option<Event>>| lock_slot(event).is_some();
                match &*lock_slot(semaphore) {
                    // Nobody makes a stream wait: the caller has no point of it.
                    Some(semaphore) => self.control.is_retired() && semaphore.is_idle(),
                    None => self.control.is_retired() || !events.iter().any(is_open),
                }
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
            // The point was made on this stream, so the stream's order is enough.
            Side::Own { stream: own, .. } if own.is(stream) => Ok(()),
            Side::Own { points: Points::Written(semaphore), .. } => {
                Ok(semaphore.hold_up(INDEX, stream, number)?)
            }
            Side::Own { points: Points::Recorded(events), .. } => {
                let event = events.get(index_of(number));
                Ok(event.map_or(Ok(()), |event| event.hold_up(stream))?)
            }
            Side::Own { points: Points::Waited, .. } => Ok(()),
            Side::Opened { semaphore, events } => match self.control.means() {
                Means::Semaphores => self.hold_up_by_semaphore(semaphore, stream, number),
                Means::Events => self.hold_up_by_event(events, stream, number),
                // Then the owner notes each point as reached before it sends it. So this one was never made.
                Means::Nothing => Err(CudaTensorError::BadMessage { what: "a point that was never made" }),
            },
        }
    }

    /// Whether a point is reached, as far as that is noted.
    ///
    /// # Errors
    /// [`CudaTensorError::ProducerGone`] if it never will be.
    pub(crate) fn is_reached(&self, number: u64) -> Result<bool> {
        if self.control.done() >= number {
            return Ok(true);
        }
        if self.is_own() || !self.control.is_owner_gone() {
            return Ok(false);
        }
        // The owner may have noted it, and ended, since the first look.
        let is_reached = self.control.done() >= number || self.is_event_done(number);
        if is_reached { Ok(true) } else { Err(CudaTensorError::ProducerGone) }
    }

    /// Whether the device has reached a point that the owner, who is gone, did not note.
    fn is_event_done(&self, number: u64) -> bool {
        let Side::Opened { events, .. } = &self.side else { return false };
        let event = events.get(index_of(number)).map(lock_slot);
        event.is_some_and(|event| event.as_ref().is_some_and(|event| !event.is_pending()))
    }

    /// Whether streams that waited for a point went on without it.
    pub(crate) fn is_cut_short(&self, number: u64) -> bool {
        self.control.is_cut_short(INDEX, number)
    }

    fn hold_up_by_semaphore(
        &self,
        semaphore: &Mutex<Option<PinnedSemaphores>>,
        stream: &Stream,
        number: u64,
    ) -> Result<()> {
        // Whose death nobody has noticed yet, the watch will find out.
        if !self.control.is_owner_live() && self.is_reached(number)? {
            return Ok(());
        }
        let _relaxed = Relaxed::begin();
        let wait = || {
            let mut semaphore = lock_slot(semaphore);
            let semaphore = match &mut *semaphore {
                Some(semaphore) => semaphore,
                empty => empty.insert(PinnedSemaphores::pin(self.semaphores(), stream.context())?),
            };
            semaphore.hold_up(INDEX, stream, number)
        };
        // The owner may be killed from here on, so first somebody has to watch it.
        match watch::begin(self.semaphores(), INDEX, number, stream.cut_short()).then(wait) {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) if error.is_for_good() => Err(error.into()),
            // What no stream can wait for, this thread can.
            Some(Err(_)) | None => {
                while !self.is_reached(number)? {
                    std::thread::park_timeout(LOOK);
                }
                Ok(())
            }
        }
    }

    fn semaphores(&self) -> Arc<dyn Semaphores> {
        Arc::clone(&self.control) as _
    }

    fn hold_up_by_event(
        &self,
        events: &[Mutex<Option<Event>>; N_EVENTS],
        stream: &Stream,
        number: u64,
    ) -> Result<()> {
        let _relaxed = Relaxed::begin();
        let index = index_of(number);
        let Some(slot) = events.get(index) else { return Ok(()) };
        let mut slot = lock_slot(slot);
        let wait = |slot: &mut Option<Event>| -> Result<(), CudaError> {
            let event = match slot {
                Some(event) => event,
                None => slot.insert(Event::open(stream.context(), self.control.handle(index))?),
            };
            if event.is_done()? {
                return Ok(());
            }
            if self.control.is_owner_gone() {
                // The point will never be reached. A stream that waited for it would wait forever.
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

fn lock_slot<T>(slot: &Mutex<Option<T>>) -> MutexGuard<'_, Option<T>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}
