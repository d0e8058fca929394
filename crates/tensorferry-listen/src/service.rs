//! The thread that lets processes attach to what is published.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tensorferry_domain::OsError;
use tensorferry_os::event::EventFd;
use tensorferry_os::socket::{self, Interest};
use tensorferry_reduce::{Encoded, Parcel};
use tensorferry_storage::Heap;

use crate::newcomer::Newcomer;
use crate::{AcceptError, Listener};

/// How many processes may be on their way in at a time, with two descriptors each. Others wait to be
/// accepted.
const MAX_NEWCOMERS: usize = 32;
/// How long to let be what has just failed for want of something that this process will have again.
const REST: Duration = Duration::from_millis(100);

/// What the thread and the handle on the publication share.
#[derive(Debug)]
pub(crate) struct Shared {
    heap: Heap,
    value: Mutex<Arc<Encoded>>,
    n_attached: AtomicU64,
    n_refused: AtomicU64,
    last_refusal: Mutex<Option<Arc<AcceptError>>>,
    is_over: AtomicBool,
    wake: EventFd,
}

impl Shared {
    pub(crate) fn new(heap: &Heap, value: Encoded) -> Result<Self, OsError> {
        Ok(Self {
            heap: heap.clone(),
            value: Mutex::new(Arc::new(value)),
            n_attached: AtomicU64::new(0),
            n_refused: AtomicU64::new(0),
            last_refusal: Mutex::new(None),
            is_over: AtomicBool::new(false),
            wake: EventFd::new()?,
        })
    }

    pub(crate) fn heap(&self) -> &Heap {
        &self.heap
    }

    pub(crate) fn replace(&self, value: Encoded) {
        let old = std::mem::replace(&mut *lock(&self.value), Arc::new(value));
        // Letting go of what it holds may take a while, and is done without the lock.
        drop(old);
    }

    pub(crate) fn n_attached(&self) -> u64 {
        self.n_attached.load(Ordering::SeqCst)
    }

    pub(crate) fn n_refused(&self) -> u64 {
        self.n_refused.load(Ordering::SeqCst)
    }

    pub(crate) fn last_refusal(&self) -> Option<Arc<AcceptError>> {
        lock(&self.last_refusal).clone()
    }

    /// Has the thread end, which may have to be unparked.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.wake.signal();
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn pack(&self) -> Result<((), Parcel), AcceptError> {
        let value = Arc::clone(&lock(&self.value));
        Ok(((), value.pack()?))
    }

    fn note(&self, error: AcceptError) {
        *lock(&self.last_refusal) = Some(Arc::new(error));
    }

    /// Notes why a process that had connected was not let in. It is counted last, so that who sees the count
    /// sees the reason.
    fn note_refused(&self, error: AcceptError) {
        self.note(error);
        self.n_refused.fetch_add(1, Ordering::SeqCst);
    }
}

/// Nothing panics while one of these locks is held.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets in any number of processes at a time, so that none waits for another one. It waits for nobody in
/// particular, and no code of others runs here: the value was encoded before.
#[derive(Debug)]
pub(crate) struct Service {
    listener: Listener,
    shared: Arc<Shared>,
    newcomers: Vec<Newcomer<()>>,
    /// Until when nobody is accepted, because there was no descriptor for it.
    rests_until: Option<Instant>,
}

impl Service {
    pub(crate) fn new(listener: Listener, shared: Arc<Shared>) -> Self {
        Self { listener, shared, newcomers: Vec::new(), rests_until: None }
    }

    /// Serves until the publication is over. Then the name is free.
    pub(crate) fn run(mut self) {
        while !self.shared.is_over() {
            self.turn();
        }
        self.listener.refuse_all();
    }

    fn turn(&mut self) {
        let now = Instant::now();
        self.rests_until = self.rests_until.filter(|until| *until > now);
        let accepts = self.rests_until.is_none() && self.newcomers.len() < MAX_NEWCOMERS;
        let mut waited = vec![(self.shared.wake.as_fd(), Interest::Readable)];
        waited.extend(self.newcomers.iter().map(|newcomer| (newcomer.as_fd(), Interest::Readable)));
        if accepts {
            waited.push((self.listener.as_fd(), Interest::Readable));
        }
        let deadlines = self.newcomers.iter().map(Newcomer::deadline).chain(self.rests_until);
        let left = deadlines.min().map(|soonest| soonest.saturating_duration_since(now));
        let mut is_ready = match socket::wait_ready(&waited, left) {
            Ok(is_ready) => is_ready.into_iter().skip(1),
            Err(error) => {
                // This process may not wait for descriptors now, so not even for the one that ends this.
                self.shared.note(AcceptError::Accept(error.into()));
                thread::park_timeout(REST);
                return;
            }
        };
        let (shared, now) = (&self.shared, Instant::now());
        self.newcomers.retain_mut(|newcomer| {
            let is_due = is_ready.next() == Some(true) || newcomer.deadline() <= now;
            !is_due || !is_done(shared, newcomer, now)
        });
        if is_ready.next() == Some(true) {
            self.accept(now);
        }
    }

    fn accept(&mut self, now: Instant) {
        match self.listener.wait_for_socket(Some(now)).map(Newcomer::meet) {
            Ok(Ok(newcomer)) => self.newcomers.push(newcomer),
            Ok(Err(error)) => self.shared.note_refused(error),
            // Whoever had connected is gone.
            Err(AcceptError::TimedOut) => {}
            Err(error) => {
                self.shared.note(error);
                self.rests_until = Some(now + REST);
            }
        }
    }
}

/// Goes on with a process, and returns whether that was all. `now` has passed by then, so this does not wait.
fn is_done(shared: &Shared, newcomer: &mut Newcomer<()>, now: Instant) -> bool {
    match newcomer.go_on(&shared.heap, Some(now), || shared.pack()) {
        Ok(None) => false,
        Ok(Some(())) => {
            shared.n_attached.fetch_add(1, Ordering::SeqCst);
            true
        }
        Err(error) => {
            shared.note_refused(error);
            true
        }
    }
}
