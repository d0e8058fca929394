//! The one thread that a process has per domain: it watches other members (`deaths.rs`), looks after what finishes
//! elsewhere, and does what was put off.

mod deaths;

use std::fmt;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tensorferry_os::event::{EventFd, Timer, poll_readable};
use tensorferry_os::fork::thread_id;
use tensorferry_os::futex;

use crate::{Domain, DomainError, ServiceHandler};

#[cfg(test)]
pub(crate) use deaths::LEFT_TO_OTHERS;
pub(crate) use deaths::{MAX_CLAIMS, Scope, is_proven_dead};
use deaths::{Watch, sweep_the_dead};

/// The longest that the thread sleeps before it looks at the table again. Decides how late a newcomer far away is
/// watched, never whether somebody is dead.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);

/// How long what is not urgent waits, so that one turn does all of it.
const SOON: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Service {
    shared: Arc<Shared>,
}

/// What was put off. Returns whether it is done.
type Work = Box<dyn FnMut() -> bool + Send>;

struct Shared {
    /// Wakes the thread at once.
    wakeup: EventFd,
    /// Wakes the thread later.
    timer: Timer,
    /// From before the timer is set until after it has been cleared.
    is_timer_set: AtomicBool,
    deferred: Mutex<Vec<Work>>,
    stop: AtomicBool,
    /// The thread sleeps for long, because there was nothing to look after.
    is_idle: AtomicBool,
    handler: Weak<dyn ServiceHandler>,
    /// Whether the thread is to stand still, and whether it does; see [`Parked`].
    park: AtomicU32,
    tid: AtomicU32,
    domain: Weak<Domain>,
    /// One thread of this process sweeps at a time: a slot that one of them has freed may have a new user while the other
    /// one still sweeps the old.
    sweeping: Mutex<()>,
}

impl Service {
    pub(crate) fn start(
        domain: Weak<Domain>,
        handler: Weak<dyn ServiceHandler>,
    ) -> Result<Self, DomainError> {
        let shared = Arc::new(Shared {
            wakeup: EventFd::new()?,
            timer: Timer::new()?,
            is_timer_set: AtomicBool::new(false),
            deferred: Mutex::default(),
            stop: AtomicBool::new(false),
            is_idle: AtomicBool::new(false),
            park: AtomicU32::new(park::RUNS),
            tid: AtomicU32::new(0),
            domain: Weak::clone(&domain),
            handler,
            sweeping: Mutex::new(()),
        });
        Self::start_thread(&shared, domain)?;
        let mut services = services();
        services.retain(|service| service.strong_count() > 0);
        services.push(Arc::downgrade(&shared));
        Ok(Self { shared })
    }

    fn start_thread(shared: &Arc<Shared>, domain: Weak<Domain>) -> Result<(), DomainError> {
        let theirs = Arc::clone(shared);
        std::thread::Builder::new()
            .name("tensorferry".to_owned())
            .spawn(move || run(&theirs, &domain))
            .map_err(|e| tensorferry_os::Error::new("starting the service thread", e))?;
        Ok(())
    }

    /// In a forked process: the thread has stayed with the parent, at a place where it held nothing.
    pub(crate) fn restart(&self, domain: Weak<Domain>) -> Result<(), DomainError> {
        self.shared.wakeup.renew()?;
        self.shared.timer.renew()?;
        self.shared.is_timer_set.store(false, Ordering::SeqCst);
        // It was for the parent.
        self.shared.deferred().clear();
        self.shared.is_idle.store(false, Ordering::SeqCst);
        self.shared.tid.store(0, Ordering::SeqCst);
        self.shared.park.store(park::RUNS, Ordering::SeqCst);
        Self::start_thread(&self.shared, domain)
    }

    pub(crate) fn wake(&self) {
        self.shared.wakeup.signal();
    }

    /// As [`Domain::wake_service_soon`].
    pub(crate) fn wake_soon(&self) {
        if !self.shared.is_timer_set.swap(true, Ordering::SeqCst) {
            self.shared.timer.set(SOON);
        }
    }

    /// As [`Service::wake`], but only if the thread would sleep for long: it looks again soon anyway otherwise.
    pub(crate) fn wake_if_idle(&self) {
        if self.shared.is_idle.load(Ordering::SeqCst) && self.shared.is_idle.swap(false, Ordering::SeqCst) {
            self.shared.wakeup.signal();
        }
    }

    /// As [`Domain::defer`].
    pub(crate) fn defer(&self, work: Work) {
        self.shared.deferred().push(work);
    }

    /// Does on the calling thread what the service thread does when it is woken.
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
    /// Somebody waits for it to stand still.
    pub(super) const ASKED: u32 = 1;
    /// It does, until it is told to go on.
    pub(super) const PARKED: u32 = 2;
    /// It has ended or is about to, and does nothing more.
    pub(super) const GONE: u32 = 3;
}

/// Every service of this process.
static SERVICES: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

fn services() -> MutexGuard<'static, Vec<Weak<Shared>>> {
    SERVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The service threads of this process, standing still where they hold no lock, until this is dropped: for a fork, whose
/// child has a copy of everything that they were in the middle of.
#[derive(Debug)]
pub struct Parked {
    services: Vec<Arc<Shared>>,
}

impl Parked {
    /// Asks all of them to stand still, and waits until they do.
    ///
    /// # Blocking
    /// For as long as they are at work, which is a sweep after a death at the longest.
    #[must_use]
    pub fn all() -> Self {
        let mine = |shared: &Arc<Shared>| shared.is_owning_process();
        let mut services: Vec<_> = services().iter().filter_map(Weak::upgrade).filter(mine).collect();
        // One that somebody else has asked already is not ours to let go on.
        services.retain(|shared| shared.ask(park::RUNS, park::ASKED) || shared.is_gone());
        for shared in &services {
            shared.wakeup.signal();
            while shared.park.load(Ordering::SeqCst) == park::ASKED {
                let _ = futex::wait(&shared.park, park::ASKED, None);
            }
        }
        Self { services }
    }

    /// The numbers of the threads (gettid(2)).
    #[must_use]
    pub fn thread_ids(&self) -> Vec<u32> {
        let still_there = self.services.iter().filter(|shared| !shared.is_gone());
        still_there.map(|shared| shared.tid.load(Ordering::SeqCst)).collect()
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        for shared in &self.services {
            if shared.ask(park::PARKED, park::RUNS) {
                let _ = futex::wake_all(&shared.park);
            }
        }
    }
}

/// Says that the thread is gone, however it ends.
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

    fn deferred(&self) -> MutexGuard<'_, Vec<Work>> {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before a turn, so that what is new from here on either is seen in that turn or sets the timer again.
    fn clear_timer(&self) {
        if self.is_timer_set.load(Ordering::SeqCst) && self.timer.clear() {
            self.is_timer_set.store(false, Ordering::SeqCst);
        }
    }

    /// What could not be done yet stays for the next turn.
    fn do_deferred(&self) {
        let mut work = std::mem::take(&mut *self.deferred());
        work.retain_mut(|work| !work());
        self.deferred().append(&mut work);
    }

    fn is_gone(&self) -> bool {
        self.park.load(Ordering::SeqCst) == park::GONE
    }

    fn ask(&self, from: u32, to: u32) -> bool {
        self.park.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// On the service thread, where it holds nothing.
    fn stand_still_if_asked(&self) {
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
        self.shared.wakeup.signal();
    }
}

fn run(shared: &Shared, domain: &Weak<Domain>) {
    // First, so that it is said last.
    let _gone = Gone(shared);
    let mut watch = Watch::default();
    shared.tid.store(thread_id(), Ordering::SeqCst);
    while !shared.stop.load(Ordering::Acquire) {
        shared.stand_still_if_asked();
        let fd_store;
        let tick = {
            let (Some(domain), Some(handler)) = (domain.upgrade(), shared.handler.upgrade()) else {
                return;
            };
            if !domain.is_live(domain.me()) {
                // Declared dead: the slot, and with it what is to be looked after, is somebody else's.
                return;
            }
            fd_store = domain.fd_store().cloned();
            if let Some(fd_store) = &fd_store {
                // What was asked before somebody let go of a block, or died, comes first.
                fd_store.serve();
            }
            if shared.sweep_the_dead(&domain, handler.as_ref(), Scope::Watched, &mut watch) {
                // Meanwhile others may have died; the rest of a turn comes first.
                shared.wakeup.signal();
            }
            if let Some(fd_store) = &fd_store {
                fd_store.keep_only(|name| handler.is_held(name));
            }
            // Said before looking, so that whoever has something new either is seen or sees it.
            shared.is_idle.store(true, Ordering::SeqCst);
            let tick = handler.tick();
            if tick.is_some() {
                shared.is_idle.store(false, Ordering::SeqCst);
            }
            tick
        };
        shared.do_deferred();
        // Nothing of the domain is borrowed while the thread sleeps, so that the domain can be left.
        let asked = fd_store.as_ref().map(|fd_store| fd_store.as_fd());
        let wakeups = [shared.wakeup.as_fd(), shared.timer.as_fd()].into_iter().chain(asked);
        let fds: Vec<_> = wakeups.chain(watch.fds()).collect();
        let timeout = tick.unwrap_or(LONGEST_SLEEP).min(LONGEST_SLEEP);
        if poll_readable(&fds, Some(timeout)).is_err() {
            // A process that may have no descriptors may not wait for any (EINVAL, poll(2)), and none has those that it has
            // closed: what happens is seen later then.
            let _ = futex::wait(&shared.park, park::RUNS, Some(timeout));
            continue;
        }
        shared.wakeup.clear();
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
            // Declared dead: what is stamped with this slot is somebody else's to sweep.
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

    /// A handler that is inside of its tick for a while, as one that holds the lock of an allocator.
    struct Busy {
        is_inside: AtomicBool,
        n_beats: AtomicU32,
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
            self.n_beats.fetch_add(1, Ordering::SeqCst);
            self.is_inside.store(false, Ordering::SeqCst);
            Some(Duration::ZERO)
        }
    }

    /// [`Parked`] is about all services of the process, so that of these tests one runs at a time where they share one.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    fn busy_service() -> (Arc<Domain>, Arc<Busy>, Service) {
        let domain = Domain::builder().address_space_bytes(16 << 20).create().unwrap();
        let busy = Arc::new(Busy { is_inside: AtomicBool::new(false), n_beats: AtomicU32::new(0) });
        let handler: Weak<Busy> = Arc::downgrade(&busy);
        let service = Service::start(Arc::downgrade(&domain), handler).unwrap();
        (domain, busy, service)
    }

    #[test]
    fn what_is_not_urgent_wakes_the_thread_once_and_again_after_its_turn() {
        let _one_at_a_time = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let (_domain, _busy, service) = busy_service();
        // Nobody clears the timer but this test.
        let parked = Parked::all();
        service.shared.wakeup.clear();
        let wakes = |timeout| poll_readable(&[service.shared.timer.as_fd()], timeout).unwrap() == [true];
        for _ in 0..2 {
            service.wake_soon();
            service.wake_soon();
            assert!(wakes(Some(Duration::from_secs(60))));
            service.shared.clear_timer();
            assert!(!wakes(Some(Duration::ZERO)), "once for both");
            service.shared.clear_timer();
        }
        // A turn that has another reason leaves it set.
        service.wake_soon();
        service.shared.timer.set(Duration::from_secs(3600));
        service.shared.clear_timer();
        assert!(service.shared.is_timer_set.load(Ordering::SeqCst));
        drop(parked);
    }

    #[test]
    fn a_service_stands_still_outside_of_its_work_and_goes_on_afterwards() {
        let _one_at_a_time = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let (_domain, busy, service) = busy_service();
        for _ in 0..200 {
            let parked = Parked::all();
            assert!(parked.thread_ids().contains(&service.shared.tid.load(Ordering::SeqCst)));
            assert!(!busy.is_inside.load(Ordering::SeqCst));
            let before = busy.n_beats.load(Ordering::SeqCst);
            (0..100).for_each(|_| std::thread::yield_now());
            assert_eq!(busy.n_beats.load(Ordering::SeqCst), before);
            drop(parked);
        }
        let before = busy.n_beats.load(Ordering::SeqCst);
        while busy.n_beats.load(Ordering::SeqCst) == before {
            std::thread::yield_now();
        }
    }
}
