//! The service thread, one per domain in each process. It watches other members (`deaths.rs`), calls the
//! handler, and runs deferred work.
//!
//! In the process that made the domain it runs from the beginning. A process that joined starts it with the
//! first thing for which it may be needed: a wait, memory of its own, a message with handles, a process that
//! it starts. Until then this process has nothing to look after, and a death tells it nothing; the others
//! watch it and each other. Many children end without having done any of this, and a fifth of the time in
//! which four such children start and end went into their threads (docs/bench/NOTES.md).

mod deaths;

use std::fmt;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use once_cell::sync::OnceCell;
use tensorferry_os::event::{EventFd, Timer, poll_readable};
use tensorferry_os::fork::thread_id;
use tensorferry_os::futex;
use tensorferry_os::unwinding::survive;

use crate::{Domain, DomainError, ServiceHandler};

#[cfg(test)]
pub(crate) use deaths::LEFT_TO_OTHERS;
pub(crate) use deaths::{MAX_CLAIMS, Scope, is_proven_dead};
use deaths::{Watch, sweep_the_dead};

/// The longest sleep of the thread before it looks at the table again. It decides how late a distant newcomer
/// is watched, never whether a member is dead.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);

/// How long work that is not urgent waits, so that one turn does all of it.
const SOON: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Service {
    shared: Arc<Shared>,
}

/// Deferred work. Returns whether it is done.
type Work = Box<dyn FnMut() -> bool + Send>;

/// What wakes the thread.
struct Events {
    /// At once.
    wakeup: EventFd,
    /// Later.
    timer: Timer,
}

impl Events {
    fn new() -> Result<Self, DomainError> {
        Ok(Self { wakeup: EventFd::new()?, timer: Timer::new()? })
    }
}

struct Shared {
    /// Made before the thread, and not before it is needed.
    events: OnceCell<Events>,
    /// True from before the timer is set until after it has been cleared.
    is_timer_set: AtomicBool,
    deferred: Mutex<Vec<Work>>,
    /// The thread holds this lock during each of its turns, but not while it is parked.
    watch: Mutex<Watch>,
    stop: AtomicBool,
    /// The thread is in a long sleep, because its handler had nothing to do.
    is_idle: AtomicBool,
    handler: Weak<dyn ServiceHandler>,
    /// Whether the thread is asked to park, and whether it is parked: a value of [`park`].
    park: AtomicU32,
    tid: AtomicU32,
    domain: Weak<Domain>,
    /// Only one thread of this process sweeps at a time. A slot that one thread has freed may have a new user
    /// while another thread still sweeps the old one.
    sweeping: Mutex<()>,
}

impl Service {
    /// Makes the service. Its thread runs at once if it `is_needed`, and otherwise once it is.
    pub(crate) fn new(
        domain: Weak<Domain>,
        handler: Weak<dyn ServiceHandler>,
        is_needed: bool,
    ) -> Result<Self, DomainError> {
        let shared = Arc::new(Shared {
            events: OnceCell::new(),
            is_timer_set: AtomicBool::new(false),
            deferred: Mutex::default(),
            watch: Mutex::default(),
            stop: AtomicBool::new(false),
            is_idle: AtomicBool::new(false),
            park: AtomicU32::new(park::NOT_STARTED),
            tid: AtomicU32::new(0),
            domain,
            handler,
            sweeping: Mutex::new(()),
        });
        if is_needed {
            shared.start_thread()?;
        }
        let mut services = services();
        services.retain(|service| service.strong_count() > 0);
        services.push(Arc::downgrade(&shared));
        // Whoever sees this finds the service in the list.
        if !is_needed {
            ANY_NOT_STARTED.store(true, Ordering::SeqCst);
        }
        drop(services);
        Ok(Self { shared })
    }

    /// In a forked process: the thread stayed with the parent, parked where it held nothing. Another one
    /// starts when this process needs it.
    pub(crate) fn reset(&self) -> Result<(), DomainError> {
        if let Some(events) = self.shared.events.get() {
            events.wakeup.renew()?;
            events.timer.renew()?;
        }
        self.shared.is_timer_set.store(false, Ordering::SeqCst);
        // Deferred work is the parent's.
        self.shared.deferred().clear();
        // Closes this process's copies of the descriptors that the parent watches.
        *self.shared.watch() = Watch::default();
        self.shared.is_idle.store(false, Ordering::SeqCst);
        self.shared.tid.store(0, Ordering::SeqCst);
        self.shared.park.store(park::NOT_STARTED, Ordering::SeqCst);
        ANY_NOT_STARTED.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Starts the thread, unless it was started before. If the kernel has no thread for it now, the next call
    /// tries again; meanwhile other members do its work, where that is possible.
    #[inline]
    pub(crate) fn ensure_started(&self) {
        if self.shared.park.load(Ordering::Acquire) == park::NOT_STARTED {
            self.shared.start_if_mine();
        }
    }

    pub(crate) fn wake(&self) {
        self.ensure_started();
        self.shared.signal();
    }

    /// As [`Domain::wake_service_soon`].
    pub(crate) fn wake_soon(&self) {
        self.ensure_started();
        // Without descriptors there is no thread either. It looks at everything once it starts.
        if let Ok(events) = self.shared.events()
            && !self.shared.is_timer_set.swap(true, Ordering::SeqCst)
        {
            events.timer.set(SOON);
        }
    }

    /// As [`Service::wake`], but only if the thread is in a long sleep. Otherwise it looks again soon anyway.
    pub(crate) fn wake_if_idle(&self) {
        self.ensure_started();
        if self.shared.is_idle.load(Ordering::SeqCst) && self.shared.is_idle.swap(false, Ordering::SeqCst) {
            self.shared.signal();
        }
    }

    /// As [`Domain::defer`].
    pub(crate) fn defer(&self, work: Work) {
        self.shared.deferred().push(work);
        self.ensure_started();
    }

    /// Does on the calling thread what the service thread does about deaths in a turn.
    pub(crate) fn sweep_dead(&self, domain: &Domain, scope: Scope) {
        if let Some(handler) = self.shared.handler.upgrade() {
            self.shared.sweep_the_dead(domain, handler.as_ref(), scope, &mut Watch::default());
        }
    }
}

/// Values of [`Shared::park`].
mod park {
    /// The thread does its work.
    pub(super) const RUNS: u32 = 0;
    /// A caller waits for the thread to park.
    pub(super) const ASKED: u32 = 1;
    /// The thread is parked until it is resumed.
    pub(super) const PARKED: u32 = 2;
    /// The thread has ended or is about to, and does nothing more.
    pub(super) const GONE: u32 = 3;
    /// There is no thread yet.
    pub(super) const NOT_STARTED: u32 = 4;
    /// There is no thread yet, and none starts until it is allowed again.
    pub(super) const HELD_BACK: u32 = 5;
}

/// Whether the thread of some service of this process may not have been started.
static ANY_NOT_STARTED: AtomicBool = AtomicBool::new(false);

/// Starts the service threads of this process that were not needed so far. A process that waits for others
/// has to learn of their deaths.
#[inline]
pub fn ensure_services_started() {
    if ANY_NOT_STARTED.load(Ordering::Relaxed) {
        start_all();
    }
}

#[cold]
fn start_all() {
    ANY_NOT_STARTED.store(false, Ordering::SeqCst);
    let all: Vec<_> = services().iter().filter_map(Weak::upgrade).collect();
    for shared in all {
        shared.start_if_mine();
    }
}

/// Every service of this process.
static SERVICES: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

fn services() -> MutexGuard<'static, Vec<Weak<Shared>>> {
    SERVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The service threads of this process, parked where they hold no lock until this is dropped; and those that
/// were not started do not start before that. For a fork, whose child has a copy of everything that they were
/// in the middle of.
#[derive(Debug)]
pub struct Parked {
    services: Vec<Arc<Shared>>,
}

impl Parked {
    /// Asks all service threads to park, and waits until they have.
    ///
    /// # Blocking
    /// While the threads are at work. The longest such work is a sweep after a death.
    #[must_use]
    pub fn all() -> Self {
        let mine = |shared: &Arc<Shared>| shared.is_owning_process();
        let mut services: Vec<_> = services().iter().filter_map(Weak::upgrade).filter(mine).collect();
        // Leave out a thread that another caller has parked: this one may not resume it.
        services.retain(|shared| shared.ask_to_park());
        for shared in &services {
            shared.signal();
            while shared.park.load(Ordering::SeqCst) == park::ASKED {
                let _ = futex::wait(&shared.park, park::ASKED, None);
            }
        }
        Self { services }
    }

    /// The numbers of the parked threads (gettid(2)).
    #[must_use]
    pub fn thread_ids(&self) -> Vec<u32> {
        let is_parked = |shared: &&Arc<Shared>| shared.park.load(Ordering::SeqCst) == park::PARKED;
        self.services.iter().filter(is_parked).map(|shared| shared.tid.load(Ordering::SeqCst)).collect()
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        for shared in &self.services {
            if shared.ask(park::PARKED, park::RUNS) {
                let _ = futex::wake_all(&shared.park);
            }
            if shared.ask(park::HELD_BACK, park::NOT_STARTED) {
                // Somebody may have needed it meanwhile.
                shared.start_if_mine();
            }
        }
    }
}

/// Marks the thread as gone when dropped, however the thread ends.
struct Gone<'a>(&'a Shared);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.park.store(park::GONE, Ordering::SeqCst);
        let _ = futex::wake_all(&self.0.park);
    }
}

impl Shared {
    fn is_owning_process(&self) -> bool {
        self.domain.upgrade().is_none_or(|domain| domain.is_owning_process())
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What wakes the thread. Made by the first call.
    fn events(&self) -> Result<&Events, DomainError> {
        self.events.get_or_try_init(Events::new)
    }

    /// Wakes the thread at once, if there is one. One that is started later looks at everything anyway.
    fn signal(&self) {
        if let Some(events) = self.events.get() {
            events.wakeup.signal();
        }
    }

    fn deferred(&self) -> MutexGuard<'_, Vec<Work>> {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread, if this process is the member and no other thread has started it.
    #[cold]
    fn start_if_mine(self: &Arc<Self>) {
        if self.is_owning_process() && self.start_thread().is_err() {
            ANY_NOT_STARTED.store(true, Ordering::SeqCst);
        }
    }

    fn start_thread(self: &Arc<Self>) -> Result<(), DomainError> {
        // Whoever sees that it runs finds what wakes it.
        self.events()?;
        if !self.ask(park::NOT_STARTED, park::RUNS) {
            return Ok(());
        }
        let theirs = Arc::clone(self);
        let thread = std::thread::Builder::new().name("tensorferry".to_owned()).spawn(move || run(&theirs));
        thread.map(drop).map_err(|error| {
            if !self.ask(park::RUNS, park::NOT_STARTED) {
                // Somebody waits for the thread to park, which does not come.
                self.park.store(park::HELD_BACK, Ordering::SeqCst);
                let _ = futex::wake_all(&self.park);
            }
            tensorferry_os::Error::new("starting the service thread", error).into()
        })
    }

    /// Called before a turn. A request from here on either is seen in that turn or sets the timer again.
    fn clear_timer(&self) {
        if self.is_timer_set.load(Ordering::SeqCst)
            && self.events.get().is_some_and(|events| events.timer.clear())
        {
            self.is_timer_set.store(false, Ordering::SeqCst);
        }
    }

    /// Work that is not done yet stays for the next turn.
    fn do_deferred(&self) {
        let work = std::mem::take(&mut *self.deferred());
        for mut work in work {
            // This thread has to survive it, because no other one watches and sweeps. Work that panics counts
            // as done.
            if survive(&mut work).unwrap_or(true) {
                survive(|| drop(work));
            } else {
                self.deferred().push(work);
            }
        }
    }

    fn is_gone(&self) -> bool {
        self.park.load(Ordering::SeqCst) == park::GONE
    }

    /// Asks the thread to park, or holds back one that was not started. Returns false if another caller has
    /// done so.
    fn ask_to_park(&self) -> bool {
        loop {
            if self.ask(park::NOT_STARTED, park::HELD_BACK)
                || self.ask(park::RUNS, park::ASKED)
                || self.is_gone()
            {
                return true;
            }
            // The thread may be starting, or may just have failed to.
            if !matches!(self.park.load(Ordering::SeqCst), park::NOT_STARTED | park::RUNS) {
                return false;
            }
        }
    }

    fn ask(&self, from: u32, to: u32) -> bool {
        self.park.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Called on the service thread, where it holds nothing.
    fn park_if_asked(&self) {
        if self.ask(park::ASKED, park::PARKED) {
            let _ = futex::wake_all(&self.park);
            while self.park.load(Ordering::SeqCst) == park::PARKED {
                let _ = futex::wait(&self.park, park::PARKED, None);
            }
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.signal();
    }
}

fn run(shared: &Shared) {
    // Declared first, so that it is dropped last.
    let _gone = Gone(shared);
    shared.tid.store(thread_id(), Ordering::SeqCst);
    // They were made before this thread.
    let Ok(events) = shared.events() else { return };
    while !shared.stop.load(Ordering::Acquire) {
        shared.park_if_asked();
        let mut watch = shared.watch();
        let fd_store;
        let tick = {
            let (Some(domain), Some(handler)) = (shared.domain.upgrade(), shared.handler.upgrade()) else {
                return;
            };
            if !domain.is_live(domain.me()) {
                // This member was declared dead: its slot and its duties are another member's.
                return;
            }
            fd_store = domain.fd_store().cloned();
            if let Some(fd_store) = &fd_store {
                // Questions come first: they may have been asked before a member let go of a block, or died.
                fd_store.serve();
            }
            if shared.sweep_the_dead(&domain, handler.as_ref(), Scope::Watched, &mut watch) {
                // Others may have died during the sweep: take another turn after the rest of this one.
                shared.signal();
            }
            if let Some(fd_store) = &fd_store {
                fd_store.keep_only(|name| handler.is_held(name));
            }
            // Set before the tick looks: new work either is seen by the tick, or its author sees the flag.
            shared.is_idle.store(true, Ordering::SeqCst);
            let tick = handler.tick();
            if tick.is_some() {
                shared.is_idle.store(false, Ordering::SeqCst);
            }
            tick
        };
        shared.do_deferred();
        // The thread borrows nothing of the domain while it sleeps, so that the domain can be left.
        let asked = fd_store.as_ref().map(|fd_store| fd_store.as_fd());
        let wakeups = [events.wakeup.as_fd(), events.timer.as_fd()].into_iter().chain(asked);
        let fds: Vec<_> = wakeups.chain(watch.fds()).collect();
        let timeout = tick.unwrap_or(LONGEST_SLEEP).min(LONGEST_SLEEP);
        if poll_readable(&fds, Some(timeout)).is_err() {
            // poll(2) fails with EINVAL where the process may have no descriptors (`RLIMIT_NOFILE`), and
            // `poll_readable` with EBADF where it has closed ours. Events are then seen later.
            let _ = futex::wait(&shared.park, park::RUNS, Some(timeout));
            continue;
        }
        events.wakeup.clear();
        shared.clear_timer();
    }
}

impl Shared {
    /// As [`sweep_the_dead`], one thread at a time.
    fn sweep_the_dead(
        &self,
        domain: &Domain,
        handler: &dyn ServiceHandler,
        scope: Scope,
        watch: &mut Watch,
    ) -> bool {
        let _one_at_a_time = self.sweeping.lock().unwrap_or_else(PoisonError::into_inner);
        if !domain.is_live(domain.me()) {
            // This member was declared dead: another member sweeps what is stamped with its slot.
            return false;
        }
        sweep_the_dead(domain, handler, scope, watch)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("stop", &self.stop).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Member;

    /// A handler that spends a while inside its tick, as if it held the lock of an allocator.
    struct Busy {
        is_inside: AtomicBool,
        n_ticks: AtomicU32,
    }

    impl ServiceHandler for Busy {
        fn sweep(&self, _dead: &[Member]) -> bool {
            true
        }

        fn is_held(&self, _name: u64) -> bool {
            false
        }

        fn tick(&self) -> Option<Duration> {
            self.is_inside.store(true, Ordering::SeqCst);
            (0..100).for_each(|_| std::thread::yield_now());
            self.n_ticks.fetch_add(1, Ordering::SeqCst);
            self.is_inside.store(false, Ordering::SeqCst);
            Some(Duration::ZERO)
        }
    }

    /// [`Parked`] affects all services of the process, so tests that share a process run one at a time.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    fn service(is_needed: bool) -> (Arc<Domain>, Arc<Busy>, Service) {
        let domain = Domain::builder().address_space_bytes(16 << 20).create().unwrap();
        let busy = Arc::new(Busy { is_inside: AtomicBool::new(false), n_ticks: AtomicU32::new(0) });
        let handler: Weak<Busy> = Arc::downgrade(&busy);
        let service = Service::new(Arc::downgrade(&domain), handler, is_needed).unwrap();
        (domain, busy, service)
    }

    #[test]
    fn what_is_not_urgent_wakes_the_thread_once_and_again_after_its_turn() {
        let _one_at_a_time = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let (_domain, _busy, service) = service(true);
        // No thread but this one clears the timer.
        let parked = Parked::all();
        let events = service.shared.events().unwrap();
        events.wakeup.clear();
        let wakes = |timeout| poll_readable(&[events.timer.as_fd()], timeout).unwrap() == [true];
        for _ in 0..2 {
            service.wake_soon();
            service.wake_soon();
            assert!(wakes(Some(Duration::from_secs(60))));
            service.shared.clear_timer();
            assert!(!wakes(Some(Duration::ZERO)), "once for both");
            service.shared.clear_timer();
        }
        // A turn for another reason leaves the timer set.
        service.wake_soon();
        events.timer.set(Duration::from_secs(3600));
        service.shared.clear_timer();
        assert!(service.shared.is_timer_set.load(Ordering::SeqCst));
        drop(parked);
    }

    #[test]
    fn a_thread_that_was_not_started_starts_only_when_the_others_go_on() {
        let _one_at_a_time = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let (_domain, busy, service) = service(false);
        let parked = Parked::all();
        assert!(service.shared.events.get().is_none(), "descriptors that nobody needs");
        service.wake_soon();
        ensure_services_started();
        let state = service.shared.park.load(Ordering::SeqCst);
        assert_eq!((state, service.shared.tid.load(Ordering::SeqCst)), (park::HELD_BACK, 0));
        drop(parked);
        while busy.n_ticks.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_service_is_parked_outside_of_its_work_and_goes_on_afterwards() {
        let _one_at_a_time = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let (_domain, busy, service) = service(true);
        for _ in 0..200 {
            let parked = Parked::all();
            assert!(parked.thread_ids().contains(&service.shared.tid.load(Ordering::SeqCst)));
            assert!(!busy.is_inside.load(Ordering::SeqCst));
            let before = busy.n_ticks.load(Ordering::SeqCst);
            (0..100).for_each(|_| std::thread::yield_now());
            assert_eq!(busy.n_ticks.load(Ordering::SeqCst), before);
            drop(parked);
        }
        let before = busy.n_ticks.load(Ordering::SeqCst);
        while busy.n_ticks.load(Ordering::SeqCst) == before {
            std::thread::yield_now();
        }
    }
}
