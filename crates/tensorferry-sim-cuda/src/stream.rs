//! Streams: operations in order, each stream on a thread of its own.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::address_space::Ordinal;
use crate::{Answer, Status};

// The states of a stream, with respect to captures.
const NOT_CAPTURING: u8 = 0;
const CAPTURING: u8 = 1;
/// It has met something that no graph can have.
const SPOILT: u8 = 2;

type Work = Box<dyn FnOnce(&Stream) -> Answer + Send>;

enum Operation {
    /// Skipped once the context is broken.
    Work(Work),
    /// Run in any case, so that no waiter waits forever.
    Always(Work),
}

/// How fast all streams of a driver run.
#[derive(Debug)]
pub(crate) struct Pace {
    is_held: Mutex<bool>,
    changed: Condvar,
    delay: Duration,
}

impl Pace {
    pub(crate) fn new(is_held: bool, delay: Duration) -> Self {
        Self { is_held: Mutex::new(is_held), changed: Condvar::new(), delay }
    }

    pub(crate) fn set_held(&self, is_held: bool) {
        *self.is_held.lock().unwrap_or_else(PoisonError::into_inner) = is_held;
        self.changed.notify_all();
    }

    /// Waits until streams run, and then for the least time that an operation takes.
    fn wait(&self, stream: &Stream) {
        let lock = || self.is_held.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_held = lock();
        while *is_held && !stream.has_ended() {
            is_held = self.changed.wait(is_held).unwrap_or_else(PoisonError::into_inner);
        }
        drop(is_held);
        let until = Instant::now() + self.delay;
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            std::thread::park_timeout(left);
        }
    }
}

#[derive(Default)]
struct Queue {
    operations: VecDeque<Operation>,
    n_queued: u64,
    n_done: u64,
}

/// A stream of one context.
pub(crate) struct Stream {
    pub(crate) device: Ordinal,
    queue: Mutex<Queue>,
    changed: Condvar,
    pace: Arc<Pace>,
    /// The code of the error that broke the context; 0 while it is intact.
    broken: Arc<AtomicU32>,
    ended: AtomicBool,
    capture: AtomicU8,
}

impl Stream {
    /// Starts the stream's thread.
    pub(crate) fn start(device: Ordinal, pace: Arc<Pace>, broken: Arc<AtomicU32>) -> Answer<Arc<Self>> {
        let stream = Arc::new(Self {
            device,
            queue: Mutex::default(),
            changed: Condvar::new(),
            pace,
            broken,
            ended: AtomicBool::new(false),
            capture: AtomicU8::new(NOT_CAPTURING),
        });
        let own = Arc::clone(&stream);
        std::thread::Builder::new().name("sim-cuda-stream".into()).spawn(move || own.run())?;
        Ok(stream)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            let mut queue = self.lock();
            let operation = loop {
                if self.has_ended() {
                    return;
                }
                match queue.operations.pop_front() {
                    Some(operation) => break operation,
                    None => queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(queue);
            self.pace.wait(self);
            if self.has_ended() {
                return;
            }
            let answer = match operation {
                Operation::Work(_) if self.broken.load(Ordering::SeqCst) != 0 => Ok(()),
                Operation::Work(work) | Operation::Always(work) => work(self),
            };
            if let Err(status) = answer {
                // The first error stays.
                let _ = self.broken.compare_exchange(0, status.code(), Ordering::SeqCst, Ordering::SeqCst);
            }
            self.lock().n_done += 1;
            self.changed.notify_all();
        }
    }

    /// Queues work that is skipped if the context is broken by then.
    pub(crate) fn push(&self, work: impl FnOnce(&Self) -> Answer + Send + 'static) -> Answer {
        self.add(Operation::Work(Box::new(work)))
    }

    /// Queues work that runs in any case.
    pub(crate) fn push_always(&self, work: impl FnOnce(&Self) -> Answer + Send + 'static) -> Answer {
        self.add(Operation::Always(Box::new(work)))
    }

    fn add(&self, operation: Operation) -> Answer {
        if self.is_spoilt() {
            return Err(Status::STREAM_CAPTURE_INVALIDATED);
        }
        self.refuse_capture()?;
        let mut queue = self.lock();
        queue.operations.push_back(operation);
        queue.n_queued += 1;
        self.changed.notify_all();
        Ok(())
    }

    /// Waits until all work that was queued so far is done.
    pub(crate) fn synchronize(&self) -> Answer {
        self.refuse_capture()?;
        let mut queue = self.lock();
        let goal = queue.n_queued;
        while queue.n_done < goal && !self.has_ended() {
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        drop(queue);
        self.check()
    }

    /// # Errors
    /// NOT_READY while work is queued; the error that broke the context.
    pub(crate) fn query(&self) -> Answer {
        self.refuse_capture()?;
        self.check()?;
        let queue = self.lock();
        if queue.n_done == queue.n_queued { Ok(()) } else { Err(Status::NOT_READY) }
    }

    fn check(&self) -> Answer {
        Status::from_code(self.broken.load(Ordering::SeqCst)).map_or(Ok(()), Err)
    }

    fn refuse_capture(&self) -> Answer {
        if self.is_capturing() { Err(Status::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    pub(crate) fn is_capturing(&self) -> bool {
        self.capture.load(Ordering::SeqCst) != NOT_CAPTURING
    }

    /// Sets whether the stream captures; returns whether it did. [`crate::capture`] has the captures
    /// themselves.
    pub(crate) fn set_capturing(&self, is_capturing: bool) -> bool {
        let state = if is_capturing { CAPTURING } else { NOT_CAPTURING };
        self.capture.swap(state, Ordering::SeqCst) != NOT_CAPTURING
    }

    /// Invalidates the capture, if the stream captures.
    pub(crate) fn spoil_capture(&self) {
        let _ = self.capture.compare_exchange(CAPTURING, SPOILT, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Whether the stream captures and the capture is invalid.
    pub(crate) fn is_spoilt(&self) -> bool {
        self.capture.load(Ordering::SeqCst) == SPOILT
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Makes the thread end. Work that is still queued is not done.
    pub(crate) fn end(&self) {
        // Under the lock, so that the thread cannot miss it between its check and its wait.
        let queue = self.lock();
        self.ended.store(true, Ordering::SeqCst);
        drop(queue);
        self.changed.notify_all();
        let is_held = self.pace.is_held.lock().unwrap_or_else(PoisonError::into_inner);
        drop(is_held);
        self.pace.changed.notify_all();
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("device", &self.device).finish_non_exhaustive()
    }
}
