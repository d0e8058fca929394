//! The thread that tells tasks when to look at a queue again.
//!
//! A queue is waited for by a futex, which has no descriptor that a runtime could poll. So one thread sleeps
//! for all tasks of this process (futex_waitv(2)), and wakes those whose queue has something. It looks and
//! takes nothing: what there is is got by the task, or by whoever is faster.

use std::collections::{HashMap, HashSet, hash_map};
use std::io;
use std::mem;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use tensorferry_domain::{Spin, WaitWord};
use tensorferry_os::unwinding::survive;
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
    /// How many of the entries sleep on each word.
    words: HashMap<Word, usize>,
    /// How often the entries have changed.
    n_changes: u64,
}

/// Where an entry sleeps: the address of its end of a ring, and whether it waits for room.
type Word = (usize, bool);

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
        let entry = |waker| Arc::new(Entry { ring: Arc::clone(ring), awaited, waker: Mutex::new(waker) });
        if !ring.heap().is_owning_process() {
            // A fork of the process has no such thread, and nothing to wait for: every call fails there.
            waker.wake_by_ref();
            return Ok(Self { reactor: Arc::default(), entry: entry(None) });
        }
        let entry = entry(Some(waker.clone()));
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
        let waker = waker.clone();
        // Dropped when nothing is locked any more: it may be the last that keeps a task.
        let _old = match &mut *lock(&self.entry.waker) {
            Some(own) => mem::replace(own, waker),
            None => return Poll::Ready(()),
        };
        Poll::Pending
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

    fn word(&self) -> Word {
        (Arc::as_ptr(&self.ring).addr(), self.awaited == Awaited::Room)
    }

    /// Nobody is told twice.
    fn was_told(&self) -> bool {
        lock(&self.waker).is_none()
    }
}

impl Waiting {
    /// Returns false when there are too many words already.
    fn add(&mut self, entry: &Arc<Entry>) -> bool {
        let n_words = self.words.len();
        match self.words.entry(entry.word()) {
            hash_map::Entry::Occupied(n) => *n.into_mut() += 1,
            hash_map::Entry::Vacant(_) if n_words >= MAX_WORDS => return false,
            hash_map::Entry::Vacant(n) => _ = n.insert(1),
        }
        self.entries.push(Arc::clone(entry));
        self.n_changes += 1;
        true
    }

    /// Removes those of whom `is_gone` is true.
    fn remove(&mut self, is_gone: impl Fn(&Arc<Entry>) -> bool) {
        let words = &mut self.words;
        self.entries.retain(|entry| {
            let is_gone = is_gone(entry);
            if is_gone && let hash_map::Entry::Occupied(mut n) = words.entry(entry.word()) {
                *n.get_mut() -= 1;
                if *n.get() == 0 {
                    n.remove();
                }
            }
            !is_gone
        });
        self.n_changes += 1;
    }
}

impl Reactor {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.waiting)
    }

    /// Lets somebody wait here. Returns false when there are too many words already.
    fn add(&self, entry: &Arc<Entry>) -> bool {
        let is_added = self.waiting().add(entry);
        if is_added {
            WaitWord::new(&self.changed).wake();
        }
        is_added
    }

    fn remove(&self, entry: &Arc<Entry>) {
        if !entry.was_told() {
            self.waiting().remove(|other| Arc::ptr_eq(other, entry));
            WaitWord::new(&self.changed).wake();
        }
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
        let mut words = HashSet::new();
        let firsts = entries.iter().filter(|entry| words.insert(entry.word()));
        let rings: Vec<_> = firsts.map(|entry| (&*entry.ring, entry.awaited)).collect();
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
        let wakers: Vec<Waker> = ready.iter().filter_map(|entry| lock(&entry.waker).take()).collect();
        self.waiting().remove(|entry| entry.was_told());
        for waker in wakers {
            // This thread has to survive a waker that panics: the other tasks have no other one.
            survive(|| waker.wake());
        }
    }
}

/// No thread panics while it has one of these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
