//! How long to spin before sleeping.
//!
//! A spinning receiver answers within the travel time of a cache line. A sleeping one costs a wake-up: tens
//! of microseconds on a virtual machine. Spinning pays only while the other side really runs on another
//! processor. The budget is therefore zero where the machine has only one processor. A CPU quota of one
//! processor is no reason: two processes that spin for each other get several times as much out of it as two
//! that sleep (docs/bench/NOTES.md).
//!
//! The budget adapts: a rewarded spin doubles it, an unrewarded one halves it. The rule follows folly's
//! adaptive spinning, which also measures time and not loop counts, because PAUSE takes 15 times longer on
//! some processors.
//!
//! That rule alone has a second stable state. When both sides sleep, each waits for the other's wake-up,
//! which takes longer than a small budget, so no spin is ever rewarded again. Therefore one in a few
//! successive spins in vain is a *probe*: it has the whole budget, whatever was learnt. Where system calls
//! are slow (under a tracer), that is too short as well, so some probes are long, ever more seldom
//! (docs/bench/NOTES.md). Of several threads that wait, one probes. Apart from both, spins may be longer
//! while that pays (`long_spin.rs`).

use std::hint::{cold_path, spin_loop};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::long_spin::{LONG, LongSpin, USUAL, was_stopped};

const MAX_NS: u32 = USUAL.subsec_nanos();
/// A learnt budget below this is none: whoever has waited in vain so often sleeps at once. Where the kernel
/// places both sides on one processor, the time that a receiver spins counts against it there, and the sender
/// goes on until it sleeps (docs/bench/NOTES.md).
const MIN_NS: u32 = 1_000;
/// One spin in vain out of this many has the whole budget. A probe is expensive enough to be rare, and comes
/// often enough that a stall is soon over.
const PROBE_EVERY: u32 = 16;
/// The same after [`SELDOM_AFTER`] in vain: that is no stall.
const PROBE_SELDOM_EVERY: u32 = 64;
const SELDOM_AFTER: u32 = 64;
/// Longer than any wake-up should take.
const LONG_NS: u32 = 5_000_000;
/// The budget of the next spin after a long probe has found something. The sender may still be busy with
/// waking.
const AFTER_LONG_NS: u32 = 250_000;
/// The spins in vain before the first long probe. Each further one comes at four times the last count, and
/// beyond `LONG_AFTER_AT_MOST` at each multiple of that.
const LONG_AFTER: u32 = 256;
const LONG_AFTER_AT_MOST: u32 = 1 << 16;

/// How long a spin of [`Spin::is_worthwhile`] may be.
const FEW_US_NS: u64 = 5_000;

/// The value of `fixed_ns` while no fixed budget is set.
const ADAPTIVE: u64 = u64::MAX;

/// A spin budget: adaptive, or fixed by [`Spin::set_fixed`]. One per waiting side of a queue, private to the
/// process.
#[derive(Debug)]
pub struct Spin {
    fixed_ns: AtomicU64,
    budget_ns: AtomicU32,
    /// Successive spins that found nothing. A find of a long probe does not reset the count.
    n_in_vain: AtomicU32,
    long_spin: LongSpin,
}

impl Default for Spin {
    fn default() -> Self {
        Self {
            fixed_ns: AtomicU64::new(ADAPTIVE),
            budget_ns: AtomicU32::new(MAX_NS),
            n_in_vain: AtomicU32::new(0),
            long_spin: LongSpin::default(),
        }
    }
}

impl Spin {
    /// Sets a fixed budget for each spin from now on; `None` makes the budget adaptive again.
    pub fn set_fixed(&self, budget: Option<Duration>) {
        let fixed_ns =
            budget.map(|budget| u64::try_from(budget.as_nanos()).unwrap_or(ADAPTIVE).min(ADAPTIVE - 1));
        self.fixed_ns.store(fixed_ns.unwrap_or(ADAPTIVE), Ordering::Relaxed);
    }

    /// Calls `look` until it finds something, or the budget is used up, or `deadline` has passed. `start` is
    /// the time of the call.
    ///
    /// # Blocking
    /// Never sleeps; spins for as long as the budget allows.
    pub fn until<R>(
        &self,
        start: Instant,
        deadline: Option<Instant>,
        look: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        let (kind, budget) = self.plan(start, deadline)?;
        if kind == Kind::Learnt && budget.is_zero() {
            self.n_in_vain.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let (found, last_clock) = look_for(start, budget, deadline, kind == Kind::LongSpin, look);
        match kind {
            Kind::Fixed => {}
            Kind::Learnt => self.learn(budget, found.is_some(), false),
            Kind::Probe => self.learn(budget, found.is_some(), true),
            Kind::LongSpin => self.long_spin.learn(start, last_clock, found.is_some()),
        }
        found
    }

    /// Whether a spin of a few microseconds may find something, as far as is known, and may last so long.
    /// Learns nothing.
    #[must_use]
    pub fn is_worthwhile(&self) -> bool {
        match self.fixed_ns.load(Ordering::Relaxed) {
            ADAPTIVE => self.budget_ns.load(Ordering::Relaxed) > 0 && spinning_pays(),
            fixed_ns => fixed_ns >= FEW_US_NS && spinning_pays(),
        }
    }

    /// Records that such a spin has found something: then a longer one pays too.
    #[inline]
    pub fn note_found(&self) {
        let budget_ns = self.budget_ns.load(Ordering::Relaxed);
        if budget_ns < MAX_NS || self.n_in_vain.load(Ordering::Relaxed) != 0 {
            cold_path();
            self.learn(Duration::from_nanos(budget_ns.into()), true, false);
        }
    }

    /// Records that a wait, which began with a spin in vain, has ended asleep after `waited`.
    pub(crate) fn note_sleep(&self, waited: Duration) {
        self.long_spin.note_wait(waited);
    }

    /// Records that nothing came until the deadline, `waited` after the start. A short time-out says nothing
    /// about how long the wait would have been.
    pub(crate) fn note_time_out(&self, waited: Duration) {
        if waited > LONG {
            self.long_spin.note_wait(waited);
        }
    }

    /// The budget of the next spin.
    #[cfg(test)]
    pub(crate) fn budget(&self) -> Option<Duration> {
        self.plan(Instant::now(), None).map(|(_, budget)| budget)
    }

    /// The kind and the budget of the next spin; `None` if there is to be none.
    fn plan(&self, start: Instant, deadline: Option<Instant>) -> Option<(Kind, Duration)> {
        let fixed_ns = self.fixed_ns.load(Ordering::Relaxed);
        if fixed_ns == 0 || !spinning_pays() {
            return None;
        }
        if fixed_ns != ADAPTIVE {
            return Some((Kind::Fixed, Duration::from_nanos(fixed_ns)));
        }
        // A spin that its deadline cuts short would not show whether it pays.
        let has_time = deadline.is_none_or(|deadline| deadline.saturating_duration_since(start) >= LONG);
        if has_time && self.long_spin.is_granted(start) {
            return Some((Kind::LongSpin, LONG));
        }
        let (kind, budget_ns) = match self.take_probe() {
            Some(probe_ns) => (Kind::Probe, probe_ns),
            None => (Kind::Learnt, self.budget_ns.load(Ordering::Relaxed)),
        };
        Some((kind, Duration::from_nanos(budget_ns.into())))
    }

    fn learn(&self, budget: Duration, has_found: bool, is_probe: bool) {
        let budget_ns = u32::try_from(budget.as_nanos()).unwrap_or(u32::MAX);
        if !has_found {
            let learnt_ns = self.budget_ns.load(Ordering::Relaxed);
            let halved_ns = Some(learnt_ns / 2).filter(|half_ns| *half_ns >= MIN_NS);
            self.budget_ns.store(halved_ns.unwrap_or(0), Ordering::Relaxed);
            if !is_probe {
                self.n_in_vain.fetch_add(1, Ordering::Relaxed);
            }
        } else if budget_ns == LONG_NS {
            // This find may have taken too long to be the rule. The next spin shows that.
            self.budget_ns.store(AFTER_LONG_NS, Ordering::Relaxed);
        } else {
            self.budget_ns.store(budget_ns.saturating_mul(2).min(MAX_NS), Ordering::Relaxed);
            self.n_in_vain.store(0, Ordering::Relaxed);
        }
    }

    /// The budget of this spin if it is a probe. A probe counts as a spin in vain from here on, so that only
    /// one of several threads probes.
    fn take_probe(&self) -> Option<u32> {
        let n_in_vain = self.n_in_vain.load(Ordering::Relaxed);
        let budget_ns = probe_ns(n_in_vain)?;
        let next = n_in_vain.wrapping_add(1);
        let taken = self.n_in_vain.compare_exchange(n_in_vain, next, Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok().then_some(budget_ns)
    }
}

/// The origin of a budget.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Fixed,
    Learnt,
    Probe,
    LongSpin,
}

/// Also returns the last reading of the clock. With `unless_stopped`, ends when that reading says that this
/// thread was stopped.
fn look_for<R>(
    start: Instant,
    budget: Duration,
    deadline: Option<Instant>,
    unless_stopped: bool,
    mut look: impl FnMut() -> Option<R>,
) -> (Option<R>, Instant) {
    let mut last_clock = start;
    // Moves on by the time that this thread was stopped, because it did not look meanwhile. Moves only once:
    // where each look takes that long, the thread was not stopped.
    let mut begin = start;
    loop {
        // A reading of the clock costs about as much as a look, so there is one for every 16 looks.
        for _ in 0..16 {
            if let Some(found) = look() {
                return (Some(found), last_clock);
            }
            spin_loop();
        }
        let now = Instant::now();
        if begin == start && was_stopped(last_clock, now) {
            begin += now.saturating_duration_since(last_clock);
        }
        let is_up = now.saturating_duration_since(begin) >= budget
            || deadline.is_some_and(|deadline| deadline <= now);
        if is_up || unless_stopped && was_stopped(last_clock, now) {
            return (None, last_clock);
        }
        last_clock = now;
    }
}

/// The budget of the next spin after this many in vain, if that spin is a probe.
fn probe_ns(n_in_vain: u32) -> Option<u32> {
    let is_power_of_four = n_in_vain.is_power_of_two() && n_in_vain.trailing_zeros().is_multiple_of(2);
    let is_long =
        n_in_vain >= LONG_AFTER && (is_power_of_four || n_in_vain.is_multiple_of(LONG_AFTER_AT_MOST));
    let every = if n_in_vain < SELDOM_AFTER { PROBE_EVERY } else { PROBE_SELDOM_EVERY };
    if is_long { Some(LONG_NS) } else { (n_in_vain % every == every - 1).then_some(MAX_NS) }
}

#[cfg(not(test))]
fn spinning_pays() -> bool {
    static PAYS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *PAYS.get_or_init(tensorferry_os::limits::others_run_beside)
}

#[cfg(test)]
fn spinning_pays() -> bool {
    tests::SPINNING_PAYS.get()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// Whether this thread sees a second processor, whatever the machine has.
        pub(super) static SPINNING_PAYS: Cell<bool> = const { Cell::new(true) };
    }

    fn nothing() -> Option<u8> {
        None
    }

    impl Spin {
        /// As it is after a few long waits, with this budget.
        fn with(budget_ns: u32, n_in_vain: u32) -> Self {
            let spin = Self::default();
            (0..4).for_each(|_| spin.note_sleep(2 * LONG));
            spin.budget_ns.store(budget_ns, Ordering::Relaxed);
            spin.n_in_vain.store(n_in_vain, Ordering::Relaxed);
            spin
        }
    }

    #[test]
    fn the_budget_shrinks_without_reward_and_grows_with_it() {
        let spin = Spin::with(MAX_NS, 0);
        for _ in 0..10 {
            assert_eq!(spin.until(Instant::now(), None, nothing), None);
        }
        assert_eq!(spin.budget_ns.load(Ordering::Relaxed), 0);
        let n_in_vain = || spin.n_in_vain.load(Ordering::Relaxed);
        let before = n_in_vain();
        assert_eq!(spin.until(Instant::now(), None, || Some(1)), None, "it sleeps at once");
        assert_eq!(n_in_vain(), before + 1, "which leads to a probe");
        let found = (0..PROBE_EVERY).find_map(|_| spin.until(Instant::now(), None, || Some(1)));
        assert_eq!(found, Some(1));
        assert_eq!(spin.budget_ns.load(Ordering::Relaxed), MAX_NS);
        let spin = Spin::with(2 * MIN_NS, 0);
        assert_eq!(spin.until(Instant::now(), None, || Some(1)), Some(1));
        assert_eq!(spin.budget_ns.load(Ordering::Relaxed), 4 * MIN_NS);
    }

    #[test]
    fn a_reward_found_by_a_probe_is_learnt() {
        let spin = Spin::with(MIN_NS, PROBE_EVERY - 1);
        assert_eq!(spin.until(Instant::now(), None, || Some(1)), Some(1));
        assert_eq!(spin.budget_ns.load(Ordering::Relaxed), MAX_NS);
        assert_eq!(spin.n_in_vain.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_a_few_microseconds_find_keeps_the_budget() {
        let spin = Spin::with(2 * MIN_NS, 3);
        for _ in 0..20 {
            assert!(spin.is_worthwhile());
            // Once in a while a wait is longer than the budget.
            assert_eq!(spin.until(Instant::now(), None, nothing), None);
            spin.note_found();
            spin.note_found();
        }
        assert_eq!(spin.budget_ns.load(Ordering::Relaxed), MAX_NS);
        assert_eq!(spin.n_in_vain.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_spin_of_a_few_microseconds_is_none_where_fixed_ones_are_shorter() {
        let spin = Spin::default();
        for (budget_ns, is_worthwhile) in [(0, false), (FEW_US_NS - 1, false), (FEW_US_NS, true)] {
            spin.set_fixed(Some(Duration::from_nanos(budget_ns)));
            assert_eq!(spin.is_worthwhile(), is_worthwhile, "{budget_ns}");
        }
        spin.set_fixed(None);
        assert!(spin.is_worthwhile());
        SPINNING_PAYS.set(false);
        assert!(!spin.is_worthwhile());
    }

    #[test]
    fn one_spin_in_a_few_is_a_probe_and_ever_fewer_are_long() {
        let with = |budget: u32| move |n: &u32| probe_ns(*n) == Some(budget);
        let probes: Vec<_> = (0..200).filter(with(MAX_NS)).collect();
        assert_eq!(probes, [15, 31, 47, 63, 127, 191]);
        let long: Vec<_> = (0..200_000).filter(with(LONG_NS)).collect();
        assert_eq!(long, [256, 1024, 4096, 16_384, 65_536, 131_072, 196_608]);
    }

    #[test]
    fn what_a_long_spin_finds_has_usual_ones_follow_that_show_whether_it_was_worth_it() {
        let spin = Spin::with(MIN_NS, LONG_AFTER);
        assert_eq!(spin.until(Instant::now(), None, || Some(1)), Some(1));
        assert_eq!(spin.budget_ns.load(Ordering::Relaxed), AFTER_LONG_NS);
        assert_eq!(spin.n_in_vain.load(Ordering::Relaxed), LONG_AFTER + 1);
        assert_eq!(spin.until(Instant::now(), None, || Some(2)), Some(2));
        assert_eq!(spin.budget_ns.load(Ordering::Relaxed), MAX_NS);
    }

    #[test]
    fn spins_last_longer_until_a_few_waits_were_long_or_too_many_spins_in_vain() {
        let spin = Spin::default();
        assert_eq!(spin.budget(), Some(LONG));
        (0..4).for_each(|_| spin.note_sleep(2 * LONG));
        assert_eq!(spin.budget(), Some(USUAL));
        (0..4).for_each(|_| spin.note_sleep(LONG));
        let mut n_in_vain = 0;
        while spin.budget() == Some(LONG) && n_in_vain < 40 {
            assert_eq!(spin.until(Instant::now(), None, nothing), None);
            n_in_vain += 1;
        }
        assert!((1..=32).contains(&n_in_vain), "{n_in_vain}: fewer where this thread was stopped");
        assert_eq!(Spin::default().until(Instant::now(), None, || Some(1)), Some(1));
    }

    #[test]
    fn while_a_thread_is_stopped_it_does_not_look() {
        let (start, n_looks) = (Instant::now(), Cell::new(0));
        let look = || {
            n_looks.set(n_looks.get() + 1);
            if n_looks.get() == 1 {
                while start.elapsed() < USUAL + Duration::from_millis(1) {}
            }
            None::<u8>
        };
        // The first look takes longer than all may, as it does when it is interrupted.
        assert_eq!(look_for(start, USUAL, None, false, look).0, None);
        assert!(n_looks.get() > 16, "{} looks", n_looks.get());
    }

    #[test]
    fn a_spin_ends_also_where_each_look_takes_long() {
        let mut n_looks = 0;
        let look = || {
            n_looks += 1;
            let start = Instant::now();
            while start.elapsed() < USUAL {}
            (n_looks == 1000).then_some(1)
        };
        assert_eq!(look_for(Instant::now(), USUAL, None, false, look).0, None);
        assert!(n_looks <= 32, "{n_looks} looks");
    }

    #[test]
    fn spins_that_short_time_outs_end_become_short_too() {
        let spin = Spin::default();
        for _ in 0..100 {
            let start = Instant::now();
            assert_eq!(spin.until(start, Some(start + LONG / 2), nothing), None);
        }
        assert_eq!(spin.budget_ns.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn no_spin_outlasts_its_deadline_by_much() {
        let spin = Spin::with(MIN_NS, LONG_AFTER);
        let deadline = Instant::now();
        let mut n_looks = 0;
        let look = || {
            n_looks += 1;
            None::<u8>
        };
        assert_eq!(spin.until(deadline, Some(deadline), look), None);
        assert!(n_looks <= 16, "{n_looks} looks after the deadline");
        assert_eq!(
            spin.n_in_vain.load(Ordering::Relaxed),
            LONG_AFTER + 1,
            "the next one is no long one again"
        );
    }

    #[test]
    fn of_several_that_wait_one_probes() {
        let spin = Spin::with(MIN_NS, LONG_AFTER);
        assert_eq!([spin.take_probe(), spin.take_probe()], [Some(LONG_NS), None]);
    }

    #[test]
    fn nobody_spins_where_nobody_else_runs_meanwhile() {
        SPINNING_PAYS.set(false);
        let spin = Spin::with(MAX_NS, LONG_AFTER);
        assert_eq!(spin.until(Instant::now(), None, || Some(1)), None, "not even for a probe");
        spin.set_fixed(Some(Duration::MAX));
        assert_eq!(spin.until(Instant::now(), None, || Some(1)), None);
        assert_eq!(spin.n_in_vain.load(Ordering::Relaxed), LONG_AFTER, "and nothing is learnt");
    }

    #[test]
    fn a_short_spin_is_worthwhile_unless_it_was_learnt_or_said_that_none_is() {
        let spin = Spin::default();
        assert!(spin.is_worthwhile());
        assert!(!Spin::with(0, 1).is_worthwhile());
        spin.set_fixed(Some(Duration::ZERO));
        assert!(!spin.is_worthwhile());
        spin.set_fixed(Some(Duration::MAX));
        assert!(spin.is_worthwhile());
        SPINNING_PAYS.set(false);
        assert!(!spin.is_worthwhile() && !Spin::default().is_worthwhile());
    }

    #[test]
    fn a_fixed_budget_learns_nothing() {
        let spin = Spin::default();
        spin.set_fixed(Some(Duration::from_micros(1)));
        assert_eq!(spin.until(Instant::now(), None, nothing), None);
        assert_eq!(spin.budget_ns.load(Ordering::Relaxed), MAX_NS);
        spin.set_fixed(Some(Duration::MAX));
        let mut n_looks = 0;
        let found = spin.until(Instant::now(), None, || {
            n_looks += 1;
            (n_looks == 100_000).then_some(1)
        });
        assert_eq!(found, Some(1));
        spin.set_fixed(Some(Duration::ZERO));
        assert_eq!(spin.until(Instant::now(), None, || Some(1)), None, "nothing is looked at");
        spin.set_fixed(None);
        assert_eq!(spin.until(Instant::now(), None, || Some(1)), Some(1));
    }
}
