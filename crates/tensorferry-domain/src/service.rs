//! The one thread that a process has per domain: it watches other members and looks after what finishes
//! elsewhere.
//!
//! Watching costs few descriptors: those that this member admitted, and the next two live members in the
//! order of their slots. When a watched member dies, its slot is claimed for sweeping by compare-and-swap, so
//! there is one sweeper; a sweeper that dies is found like any dead member, and whoever sweeps it finishes its
//! victims too. Every live member has a live predecessor in the ring, so no death stays unseen while anybody
//! lives.

use std::fmt;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tensorferry_os::event::{EventFd, poll_readable};
use tensorferry_os::fork::thread_id;
use tensorferry_os::futex;
use tensorferry_os::pidfd::{PidFd, pid_namespace};
use tensorferry_os::presence::Presence;

use crate::layout::presence_offset;
use crate::member::State;
use crate::{Caretaker, Domain, DomainError, Member, Phase, planted};

/// How long a silent neighbourhood is trusted before the thread looks at the table again. Decides how late a
/// newcomer far away is watched, never whether somebody is dead.
const LOOK_AROUND: Duration = Duration::from_millis(500);

/// How often a dead member is claimed whose slot changes at the same time.
const MAX_CLAIMS: usize = 8;

/// How many of the members that follow in the table are watched, whoever admitted them.
const N_NEIGHBOURS: usize = 2;

#[derive(Debug)]
pub(crate) struct Service {
    shared: Arc<Shared>,
}

struct Shared {
    bell: EventFd,
    stop: AtomicBool,
    /// The thread sleeps for long, because there was nothing to look after.
    rests: AtomicBool,
    caretaker: Weak<dyn Caretaker>,
    /// Whether the thread is to stand still, and whether it does; see [`Parked`].
    park: AtomicU32,
    tid: AtomicU32,
    domain: Weak<Domain>,
    /// One thread of this process sweeps at a time: a slot that one of them has freed may have a new user while the other
    /// one still sweeps the old.
    sweeping: Mutex<()>,
}

impl Service {
    pub(crate) fn start(domain: Weak<Domain>, caretaker: Weak<dyn Caretaker>) -> Result<Self, DomainError> {
        let shared = Arc::new(Shared {
            bell: EventFd::new()?,
            stop: AtomicBool::new(false),
            rests: AtomicBool::new(false),
            park: AtomicU32::new(park::RUNS),
            tid: AtomicU32::new(0),
            domain: Weak::clone(&domain),
            caretaker,
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
        self.shared.bell.renew()?;
        self.shared.rests.store(false, Ordering::SeqCst);
        self.shared.tid.store(0, Ordering::SeqCst);
        self.shared.park.store(park::RUNS, Ordering::SeqCst);
        Self::start_thread(&self.shared, domain)
    }

    pub(crate) fn poke(&self) {
        self.shared.bell.ring();
    }

    /// As [`Service::poke`], but only if the thread would sleep for long: it looks again soon anyway otherwise.
    pub(crate) fn poke_if_resting(&self) {
        if self.shared.rests.load(Ordering::SeqCst) && self.shared.rests.swap(false, Ordering::SeqCst) {
            self.shared.bell.ring();
        }
    }

    /// Does on the calling thread what the service thread does when it is poked.
    pub(crate) fn look_around(&self, domain: &Domain, at: Whom) {
        if let Some(caretaker) = self.shared.caretaker.upgrade() {
            self.shared.sweep_the_dead(domain, caretaker.as_ref(), at, &mut Vec::new());
        }
    }
}

/// Who is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whom {
    /// Those that this member admitted, and its neighbours.
    Watched,
    /// All members.
    All,
}

/// Values of [`Shared::park`].
mod park {
    /// The thread does its work.
    pub(super) const RUNS: u32 = 0;
    /// Somebody waits for it to stand still.
    pub(super) const ASKED: u32 = 1;
    /// It does, until it is told to go on.
    pub(super) const STANDS: u32 = 2;
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
        let mine = |shared: &Arc<Shared>| shared.is_home();
        let mut services: Vec<_> = services().iter().filter_map(Weak::upgrade).filter(mine).collect();
        // One that somebody else has asked already is not ours to let go on.
        services.retain(|shared| shared.ask(park::RUNS, park::ASKED) || shared.is_gone());
        for shared in &services {
            shared.bell.ring();
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
            if shared.ask(park::STANDS, park::RUNS) {
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
    fn is_home(&self) -> bool {
        self.domain.upgrade().is_none_or(|domain| domain.is_home())
    }

    fn is_gone(&self) -> bool {
        self.park.load(Ordering::SeqCst) == park::GONE
    }

    fn ask(&self, from: u32, to: u32) -> bool {
        self.park.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// On the service thread, where it holds nothing.
    fn stand_still_if_asked(&self) {
        if self.ask(park::ASKED, park::STANDS) {
            let _ = futex::wake_all(&self.park);
            while self.park.load(Ordering::SeqCst) == park::STANDS {
                let _ = futex::wait(&self.park, park::STANDS, None);
            }
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.bell.ring();
    }
}

/// A member and the proof of its death to come.
struct Watched {
    member: Member,
    pidfd: PidFd,
}

fn run(shared: &Shared, domain: &Weak<Domain>) {
    // First, so that it is said last.
    let _gone = Gone(shared);
    let mut watched: Vec<Watched> = Vec::new();
    shared.tid.store(thread_id(), Ordering::SeqCst);
    while !shared.stop.load(Ordering::Acquire) {
        shared.stand_still_if_asked();
        let keeper;
        let beat = {
            let (Some(domain), Some(caretaker)) = (domain.upgrade(), shared.caretaker.upgrade()) else {
                return;
            };
            keeper = domain.keeper().cloned();
            if let Some(keeper) = &keeper {
                // What was asked before somebody let go of a block, or died, comes first.
                keeper.serve();
            }
            if shared.sweep_the_dead(&domain, caretaker.as_ref(), Whom::Watched, &mut watched) {
                // Meanwhile others may have died; the rest of a turn comes first.
                shared.bell.ring();
            }
            if let Some(keeper) = &keeper {
                keeper.keep_only(|name| caretaker.is_held(name));
            }
            // Said before looking, so that whoever has something new either is seen or sees it.
            shared.rests.store(true, Ordering::SeqCst);
            let beat = caretaker.beat();
            if beat.is_some() {
                shared.rests.store(false, Ordering::SeqCst);
            }
            beat
        };
        // Nothing of the domain is borrowed while the thread sleeps, so that the domain can be left.
        let door = keeper.as_ref().map(|keeper| keeper.as_fd());
        let bells = std::iter::once(shared.bell.as_fd()).chain(door);
        let fds: Vec<_> = bells.chain(watched.iter().map(|w| w.pidfd.as_fd())).collect();
        let timeout = beat.unwrap_or(LOOK_AROUND).min(LOOK_AROUND);
        let _ = poll_readable(&fds, Some(timeout));
        shared.bell.clear();
    }
}

impl Shared {
    /// Looks at members and sweeps once those that are proven dead. Returns whether a slot is free for it.
    fn sweep_the_dead(
        &self,
        domain: &Domain,
        caretaker: &dyn Caretaker,
        at: Whom,
        watched: &mut Vec<Watched>,
    ) -> bool {
        let _one_at_a_time = self.sweeping.lock().unwrap_or_else(PoisonError::into_inner);
        let mut dead = Vec::new();
        loop {
            for member in watch(domain, at, watched) {
                claim(domain, member);
            }
            let n_known = dead.len();
            dead = take_over(domain);
            // Among those that the dead had admitted, and that are watched from here now, may be dead ones too.
            if dead.len() <= n_known {
                break;
            }
        }
        // What could not be reached is tried again at the next turn.
        !dead.is_empty() && sweep(domain, caretaker, &dead)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("stop", &self.stop).finish_non_exhaustive()
    }
}

/// Brings the list of watched members up to date and returns those that are proven dead.
fn watch(domain: &Domain, at: Whom, watched: &mut Vec<Watched>) -> Vec<Member> {
    let wanted = worth_watching(domain, at);
    watched.retain(|w| wanted.contains(&w.member));
    let mut dead = Vec::new();
    for &member in &wanted {
        if !watched.iter().any(|w| w.member == member) {
            match open(domain, member) {
                Opened::Alive(pidfd) => watched.push(Watched { member, pidfd }),
                Opened::Dead => dead.push(member),
                Opened::Unknown => {}
            }
        }
    }
    let is_dead = |w: &&Watched| w.pidfd.is_dead().unwrap_or(false) || has_no_presence(domain, w.member);
    dead.extend(watched.iter().filter(is_dead).map(|w| w.member));
    watched.retain(|w| !dead.contains(&w.member));
    dead
}

fn worth_watching(domain: &Domain, at: Whom) -> Vec<Member> {
    let me = domain.me();
    let mut wanted = Vec::new();
    let mut neighbours = 0;
    let n = u16::try_from(crate::MAX_MEMBERS).unwrap_or(u16::MAX);
    for step in 1..n {
        let Ok(index) = u8::try_from((u16::from(me.slot) + step) % n) else { continue };
        let Some(slot) = domain.slot(index) else { continue };
        let state = slot.state();
        let member = Member { slot: index, epoch: state.epoch };
        let mine = state.author == me.slot;
        match state.phase {
            Phase::Live | Phase::Invited => {
                if mine || neighbours < N_NEIGHBOURS || at == Whom::All {
                    wanted.push(member);
                }
                neighbours += 1;
            }
            // Somebody is sweeping it; watch over the sweeper, which is a neighbour or mine if need be.
            Phase::Dead | Phase::Admitting | Phase::Free => {}
        }
    }
    wanted
}

enum Opened {
    Alive(PidFd),
    Dead,
    Unknown,
}

/// Opens the pidfd of a member. That its number belongs to nobody, or to somebody else by now, is proof of death.
fn open(domain: &Domain, member: Member) -> Opened {
    let Some(slot) = domain.slot(member.slot) else { return Opened::Unknown };
    let identity = slot.identity();
    if identity.namespace != pid_namespace() {
        return if has_no_presence(domain, member) { Opened::Dead } else { Opened::Unknown };
    }
    match PidFd::open(identity.pid) {
        Ok(pidfd) => match pidfd.identity() {
            // A zombie's start time can still be read, so equal means the same process, dead or alive.
            Ok(found) if found.is_same_process(&identity) => Opened::Alive(pidfd),
            // That it is another process must be known, not merely that nothing is known about it.
            Ok(found)
                if found.is_known() && found.is_comparable(&identity) && slot.identity() == identity =>
            {
                Opened::Dead
            }
            _ => Opened::Unknown,
        },
        Err(error) if error.is_no_such_process() && slot.identity() == identity => Opened::Dead,
        // No descriptor left, say: somebody else watches too, and we try again.
        Err(_) => Opened::Unknown,
    }
}

/// Whether there is proof now that a member is dead.
pub(crate) fn is_proven_dead(domain: &Domain, member: Member) -> bool {
    match open(domain, member) {
        Opened::Alive(pidfd) => pidfd.is_dead().unwrap_or(false) || has_no_presence(domain, member),
        Opened::Dead => true,
        Opened::Unknown => false,
    }
}

/// Whether a member that counts as live has no memory of the domain any more. Its byte of the file is locked from before
/// it became live until after it has left, so an unlocked byte of a member that is live before and after is proof. Tells
/// of members whose number means nothing here, and of processes that live on as another program (execve(2)). Nothing
/// rings when that changes; each turn looks.
fn has_no_presence(domain: &Domain, member: Member) -> bool {
    let is_live = || {
        domain.slot(member.slot).is_some_and(|slot| {
            let state = slot.state();
            state.epoch == member.epoch && state.phase == Phase::Live
        })
    };
    is_live() && matches!(Presence::is_announced(domain, presence_offset(member)), Ok(false)) && is_live()
}

/// Stamps the slot of a dead member, unless another live member does that already.
fn claim(domain: &Domain, dead: Member) {
    let Some(slot) = domain.slot(dead.slot) else { return };
    let claimed = State { epoch: dead.epoch, author: domain.me().slot, phase: Phase::Dead };
    // Who has taken over what its admitter left may restamp it meanwhile; nobody does that often.
    for _ in 0..MAX_CLAIMS {
        let found = slot.state();
        let is_member = matches!(found.phase, Phase::Live | Phase::Invited);
        if found.epoch != dead.epoch || !is_member || slot.change(found, claimed) {
            return;
        }
    }
}

/// The dead whose slots are stamped as ours, those of sweeps that could not be finished among them, and whoever they were
/// sweeping, whose slots are stamped as ours now, and so on. What else bears their stamp is settled.
fn take_over(domain: &Domain) -> Vec<Member> {
    let me = domain.me().slot;
    let mut dead: Vec<Member> = stamped_dead(domain, me).map(|(member, _)| member).collect();
    let mut n_settled = 0;
    while let Some(&author) = dead.get(n_settled) {
        n_settled += 1;
        for (member, state) in stamped_dead(domain, author.slot) {
            let taken = domain
                .slot(member.slot)
                .is_some_and(|slot| slot.change(state, State { author: me, ..state }));
            if taken {
                dead.push(member);
            }
        }
        settle_invited(domain, author);
    }
    dead
}

/// The dead members with this stamp, and what their slots said.
fn stamped_dead(domain: &Domain, author: u8) -> impl Iterator<Item = (Member, State)> + '_ {
    domain.slots().filter_map(move |(slot, entry)| {
        let state = entry.state();
        let is_theirs = state.phase == Phase::Dead && state.author == author && slot != author;
        is_theirs.then_some((Member { slot, epoch: state.epoch }, state))
    })
}

/// Those that a dead member had admitted.
fn settle_invited(domain: &Domain, dead: Member) {
    for (index, other) in domain.slots() {
        let state = other.state();
        if state.author != dead.slot || index == dead.slot {
            continue;
        }
        match state.phase {
            // The newcomer was never told of its slot.
            Phase::Admitting if !planted("sweep-keeps-admitting") => {
                other.change(state, State { phase: Phase::Free, ..state });
            }
            // Watched by us from now on.
            Phase::Live | Phase::Invited => {
                other.change(state, State { author: domain.me().slot, ..state });
            }
            Phase::Dead | Phase::Admitting | Phase::Free => {}
        }
    }
}

/// Gives back what the dead held, whose slots are stamped as ours, and frees those. All in one: a sweep walks over
/// every block there is, so that one of them for each of many that die at a time would fall ever further behind. Returns
/// whether a slot is free for it.
fn sweep(domain: &Domain, caretaker: &dyn Caretaker, dead: &[Member]) -> bool {
    if !caretaker.sweep(dead) {
        return false;
    }
    let mut any_free = false;
    for member in dead {
        domain.count_sweep();
        if let Some(slot) = domain.slot(member.slot) {
            let state = slot.state();
            any_free |=
                state.epoch == member.epoch && slot.change(state, State { phase: Phase::Free, ..state });
        }
    }
    any_free
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A caretaker that is inside of its beat for a while, as one that holds the lock of an allocator.
    struct Busy {
        is_inside: AtomicBool,
        n_beats: AtomicU32,
    }

    impl Caretaker for Busy {
        fn sweep(&self, _dead: &[Member]) -> bool {
            true
        }

        fn is_held(&self, _name: u64) -> bool {
            false
        }

        fn beat(&self) -> Option<Duration> {
            self.is_inside.store(true, Ordering::SeqCst);
            (0..100).for_each(|_| std::thread::yield_now());
            self.n_beats.fetch_add(1, Ordering::SeqCst);
            self.is_inside.store(false, Ordering::SeqCst);
            Some(Duration::ZERO)
        }
    }

    #[test]
    fn a_service_stands_still_outside_of_its_work_and_goes_on_afterwards() {
        let domain = Domain::builder().address_space_bytes(16 << 20).create().unwrap();
        let busy = Arc::new(Busy { is_inside: AtomicBool::new(false), n_beats: AtomicU32::new(0) });
        let caretaker: Weak<Busy> = Arc::downgrade(&busy);
        let service = Service::start(Arc::downgrade(&domain), caretaker).unwrap();
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
