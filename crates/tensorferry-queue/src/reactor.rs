//! The thread that tells tasks when to look at a queue again.
//!
//! A queue is waited for by a futex, which has no descriptor that a runtime could poll. So one thread sleeps
//! for all tasks of this process (futex_waitv(2)), and wakes those whose queue has something. It looks and
//! takes nothing: what there is is got by the task, or by whoever is faster.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use tensorferry_domain::{Spin, WaitWord};
use tensorferry_storage::{Awaited, Deadline, Ring};

/// How many words one thread sleeps on beside its own: as many as the kernel takes (`FUTEX_WAITV_MAX`). When
/// more are awaited at once there is another thread.
const MAX_WORDS: usize = 127;

/// How often a thread looks that cannot sleep on several words: before Linux 5.16, or where a filter of
/// system calls forbids it.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The threads, in the order in which they were started. Each runs until the process ends.
static REACTORS: Mutex<Vec<Arc<Reactor>>> = Mutex::new(Vec::new());

/// One thread, and who waits there.
#[derive(Debug, Default)]
struct Reactor {
    waiting: Mutex<Waiting>,
    /// Woken when somebody begins to wait or gives up.
    changed: AtomicU32,
}

#[derive(Debug, Default)]
struct Waiting {
    entries: Vec<Arc<Entry>>,
    /// How often the entries have changed.
    n_changes: u64,
}

/// Somebody who waits for something at a ring.
#[derive(Debug)]
struct Entry {
    ring: Arc<Ring>,
    awaited: Awaited,
    /// Whom to wake; `None` once they were told.
    waker: Mutex<Option<Waker>>,
}

/// That somebody waits. Dropping it gives up.
#[derive(Debug)]
pub(crate) struct Registration {
    reactor: Arc<Reactor>,
    entry: Arc<Entry>,
}

impl Registration {
    /// Has `waker` be woken once, as soon as the ring has what is awaited.
    ///
    /// # Errors
    /// The system's, when a thread is needed and cannot be started.
    pub(crate) fn new(ring: &Arc<Ring>, awaited: Awaited, waker: &Waker) -> io::Result<Self> {
        let entry =
            Arc::new(Entry { ring: Arc::clone(ring), awaited, waker: Mutex::new(Some(waker.clone())) });
        let mut reactors = lock(&REACTORS);
        let with_room = reactors.iter().find(|reactor| reactor.add(&entry));
        let reactor = if let Some(reactor) = with_room {
            Arc::clone(reactor)
        } else {
            let reactor = Arc::new(Reactor::default());
            reactor.add(&entry);
            let theirs = Arc::clone(&reactor);
            thread::Builder::new().name("tf-await".to_owned()).spawn(move || theirs.run())?;
            reactors.push(Arc::clone(&reactor));
            reactor
        };
        Ok(Self { reactor, entry })
    }

    /// Ready once the ring had what is awaited. Until then `waker` is the one that is woken.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<()> {
        match &mut *lock(&self.entry.waker) {
            Some(own) => {
                own.clone_from(waker);
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // In a fork of the process the thread is not there, and had perhaps locked what is locked here.
        if self.entry.ring.heap().is_owning_process() {
            self.reactor.remove(&self.entry);
        }
    }
}

impl Entry {
    fn is_ready(&self) -> bool {
        self.ring.has(self.awaited)
    }

    /// Whether both sleep on one word.
    fn has_word_of(&self, other: &Self) -> bool {
        let is_room = |entry: &Self| entry.awaited == Awaited::Room;
        Arc::ptr_eq(&self.ring, &other.ring) && is_room(self) == is_room(other)
    }
}

impl Reactor {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.waiting)
    }

    /// Lets somebody wait here. Returns false when there are too many words already.
    fn add(&self, entry: &Arc<Entry>) -> bool {
        let mut waiting = self.waiting();
        if one_for_each_word(&waiting.entries).len() >= MAX_WORDS
            && !waiting.entries.iter().any(|other| other.has_word_of(entry))
        {
            return false;
        }
        waiting.entries.push(Arc::clone(entry));
        waiting.n_changes += 1;
        drop(waiting);
        WaitWord::new(&self.changed).wake();
        true
    }

    fn remove(&self, entry: &Arc<Entry>) {
        let mut waiting = self.waiting();
        let Some(at) = waiting.entries.iter().position(|other| Arc::ptr_eq(other, entry)) else { return };
        waiting.entries.swap_remove(at);
        waiting.n_changes += 1;
        drop(waiting);
        WaitWord::new(&self.changed).wake();
    }

    /// What the thread does.
    fn run(&self) {
        let spin = Spin::default();
        // Whoever awaits has something else to do.
        spin.set_fixed(Some(Duration::ZERO));
        loop {
            let ready = self.wait(&spin);
            self.tell(&ready);
        }
    }

    /// Waits until somebody has what they wait for, or others wait. Returns who has.
    fn wait(&self, spin: &Spin) -> Vec<Arc<Entry>> {
        let (entries, n_changes) = {
            let waiting = self.waiting();
            (waiting.entries.clone(), waiting.n_changes)
        };
        let look = || {
            let ready: Vec<_> = entries.iter().filter(|entry| entry.is_ready()).map(Arc::clone).collect();
            (!ready.is_empty() || self.waiting().n_changes != n_changes).then_some(ready)
        };
        let rings: Vec<_> =
            one_for_each_word(&entries).iter().map(|entry| (&*entry.ring, entry.awaited)).collect();
        let changed = WaitWord::new(&self.changed);
        Ring::wait_any(&rings, &[changed], Some(spin), Deadline::Never, look).unwrap_or_else(|_| {
            let until = Instant::now().checked_add(LOOK_EVERY);
            changed.wait_until(spin, until, look).unwrap_or_default()
        })
    }

    /// Tells them, and lets them wait no longer.
    fn tell(&self, ready: &[Arc<Entry>]) {
        if ready.is_empty() {
            return;
        }
        let mut waiting = self.waiting();
        waiting.entries.retain(|entry| !ready.iter().any(|told| Arc::ptr_eq(told, entry)));
        drop(waiting);
        for entry in ready {
            let waker = lock(&entry.waker).take();
            // This thread has to survive a waker that panics: the other tasks have no other one.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.into_iter().for_each(Waker::wake)));
        }
    }
}

/// The first of those who sleep on each word.
fn one_for_each_word(entries: &[Arc<Entry>]) -> Vec<&Arc<Entry>> {
    let mut firsts: Vec<&Arc<Entry>> = Vec::new();
    for entry in entries {
        if !firsts.iter().any(|first| first.has_word_of(entry)) {
            firsts.push(entry);
        }
    }
    firsts
}

/// No thread panics while it has one of these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
