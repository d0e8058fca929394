//! A meeting point for a fixed number of threads or processes.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tensorferry_storage::{Deadline, Entered, Heap, LastOwner, MonitorError, MonitorView, StorageError};

use crate::primitive::{Primitive, for_a_step, word};
use crate::purpose;
use crate::wait_error::{BarrierError, BrokenBy};

/// Indexes of the words of state.
mod state {
    /// How many have to come.
    pub(super) const PARTIES: usize = 0;
    /// A [`Rounds`](super::Rounds).
    pub(super) const ROUNDS: usize = 1;
    /// Why the barrier is broken; 0 while it is not.
    pub(super) const BROKEN: usize = 2;
    /// A [`Resets`](super::Resets).
    pub(super) const RESETS: usize = 3;
}

/// The rounds that have ended: `n_ended:32 | history:32`. The number wraps around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rounds {
    n_ended: u32,
    /// Bit 0 belongs to the last round, and so on: 1 when a reset ended it, 0 when all had come.
    history: u32,
}

impl Rounds {
    fn pack(self) -> u64 {
        u64::from(self.n_ended) << 32 | u64::from(self.history)
    }

    fn unpack(word: u64) -> Self {
        let [h0, h1, h2, h3, n0, n1, n2, n3] = word.to_le_bytes();
        Self { n_ended: u32::from_le_bytes([n0, n1, n2, n3]), history: u32::from_le_bytes([h0, h1, h2, h3]) }
    }

    fn ended(self, by_reset: bool) -> Self {
        Self { n_ended: self.n_ended.wrapping_add(1), history: self.history << 1 | u32::from(by_reset) }
    }
}

/// `resets:32 | deaths that they have made good:32`. Both wrap around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Resets {
    n_resets: u32,
    n_deaths: u32,
}

impl Resets {
    fn pack(self) -> u64 {
        u64::from(self.n_resets) << 32 | u64::from(self.n_deaths)
    }

    fn unpack(word: u64) -> Self {
        let Rounds { n_ended: n_resets, history: n_deaths } = Rounds::unpack(word);
        Self { n_resets, n_deaths }
    }
}

/// Where a caller came in.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    n_ended: u32,
    n_resets: u32,
}

/// Makes callers wait until a given number of them have arrived: Python's `Barrier`.
///
/// A clone, or the value that a receiver gets, is another handle on the same barrier. Once all have come, it
/// begins anew.
///
/// When a process that has a handle dies, the barrier is broken: all who wait, and all who come later, get
/// [`BarrierError::Broken`] until someone calls [`Barrier::reset`]. It is also broken by a time-out and by
/// [`Barrier::abort`].
///
/// A process that ends in order, also by an error or a panic, breaks nothing: the others go on waiting for
/// it. Use [`Barrier::wait_timeout`] where that can happen, or [`Barrier::abort`] where it is noticed.
///
/// ```
/// use tensorferry_sync::Barrier;
///
/// let barrier = Barrier::new(3)?;
/// std::thread::scope(|scope| {
///     for rank in 0..2 {
///         let barrier = barrier.clone(); // or a handle that a process has got with its arguments
///         scope.spawn(move || {
///             let place = barrier.wait();
///             place.map(|place| println!("{rank} came as number {}", place.index))
///         });
///     }
///     barrier.wait() // and all three go on
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Barrier {
    primitive: Primitive<{ purpose::BARRIER }>,
}

/// Which place a caller of [`Barrier::wait`] had in its round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BarrierPlace {
    /// How many came before, from 0. Each caller of one round has another.
    pub index: u32,
    /// Whether this caller came last. Exactly one of each round does.
    pub is_leader: bool,
}

impl Barrier {
    /// Makes a barrier for `n_parties` callers, in the default domain. With 0 or 1, nobody waits.
    ///
    /// # Errors
    /// [`StorageError`] when there is no memory for it.
    pub fn new(n_parties: u32) -> Result<Self, StorageError> {
        Self::new_in(Heap::current()?, n_parties)
    }

    /// As [`Barrier::new`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`Barrier::new`].
    pub fn new_in(heap: &Heap, n_parties: u32) -> Result<Self, StorageError> {
        Ok(Self { primitive: Primitive::create_with(heap, state::PARTIES, n_parties.into())? })
    }

    /// Waits until as many as the barrier was made for have called this.
    ///
    /// # Blocking
    /// Until the last one comes or the barrier breaks.
    ///
    /// # Errors
    /// [`BarrierError`].
    pub fn wait(&self) -> Result<BarrierPlace, BarrierError> {
        self.wait_with(Deadline::Never)
    }

    /// As [`Barrier::wait`], for at most `timeout`.
    ///
    /// # Blocking
    /// As [`Barrier::wait`], for at most `timeout`.
    ///
    /// # Errors
    /// As [`Barrier::wait`]. A time-out breaks the barrier, for all who wait too, also where it passes
    /// because a process was stopped in the middle of a step.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<BarrierPlace, BarrierError> {
        self.wait_with(Deadline::within(timeout))
    }

    fn wait_with(&self, deadline: Deadline) -> Result<BarrierPlace, BarrierError> {
        let monitor = self.primitive.monitor();
        let view = monitor.view()?;
        let entered = match monitor.enter(for_a_step(deadline)) {
            // Whoever has the lock for so long was stopped. The others are told all the same.
            Err(MonitorError::TimedOut) => return Err(self.time_out(&view)),
            entered => entered?,
        };
        if entered.last_owner() != LastOwner::Released {
            // It ended in the middle of a step: perhaps it had ended the round and not counted anew. It is
            // not counted as a death where it had announced its end.
            self.break_by(&view, BrokenBy::Death);
        }
        if let Some(by) = broken_by(&view) {
            return Err(BarrierError::Broken { by });
        }
        let arrival = Arrival { n_ended: rounds(&view).n_ended, n_resets: resets(&view).n_resets };
        if !view.change_share(1) {
            return Err(BarrierError::DeclaredDead);
        }
        let n_parties = word(&view, state::PARTIES).load(Ordering::SeqCst);
        let n_here = view.shares();
        let index = u32::try_from(n_here.saturating_sub(1)).unwrap_or(u32::MAX);
        if n_here >= n_parties {
            // First the round: whoever finds it completed goes on, also if this process dies before the rest.
            word(&view, state::ROUNDS).swap(rounds(&view).ended(false).pack(), Ordering::SeqCst);
            view.clear_shares();
            drop(entered);
            monitor.notify();
            return Ok(BarrierPlace { index, is_leader: true });
        }
        drop(entered);
        match monitor.wait(deadline, |view| outcome(view, arrival)) {
            Ok(outcome) => outcome?,
            Err(MonitorError::TimedOut) => self.give_up(&view, arrival)?,
            Err(error) => return Err(error.into()),
        }
        Ok(BarrierPlace { index, is_leader: false })
    }

    /// Takes the lock, which nobody has for long.
    fn enter(&self) -> Result<Entered, BarrierError> {
        Ok(self.primitive.monitor().enter(for_a_step(Deadline::Now))?)
    }

    /// The time of a caller is over: unless the round was completed just now, the barrier breaks.
    fn give_up(&self, view: &MonitorView<'_>, arrival: Arrival) -> Result<(), BarrierError> {
        let _entered = match self.enter() {
            // Whoever completes the round was stopped while it did, and it may not be completed for long.
            Err(BarrierError::Stopped) => None,
            entered => Some(entered?),
        };
        outcome(view, arrival).unwrap_or_else(|| Err(self.time_out(view)))
    }

    /// Breaks the barrier, for which no lock is needed, because the time of a caller is over.
    fn time_out(&self, view: &MonitorView<'_>) -> BarrierError {
        self.break_by(view, BrokenBy::TimeOut);
        BarrierError::Broken { by: BrokenBy::TimeOut }
    }

    /// Breaks the barrier: all who wait, and all who come, get [`BarrierError::Broken`].
    ///
    /// # Errors
    /// [`BarrierError::Storage`] in a process that was forked by something other than this library.
    pub fn abort(&self) -> Result<(), BarrierError> {
        self.break_by(&self.primitive.monitor().view()?, BrokenBy::Abort);
        Ok(())
    }

    fn break_by(&self, view: &MonitorView<'_>, by: BrokenBy) {
        let why = word(view, state::BROKEN);
        // The first reason stays.
        let _ = why.compare_exchange(0, by.number(), Ordering::SeqCst, Ordering::SeqCst);
        self.primitive.monitor().notify();
    }

    /// Makes the barrier whole and empty. All callers that wait get [`BarrierError::Broken`].
    ///
    /// # Blocking
    /// For a moment while another process is in a step of the barrier; for a second if that process is
    /// stopped there.
    ///
    /// # Errors
    /// [`BarrierError::Stopped`], [`BarrierError::Storage`] and [`BarrierError::DeclaredDead`].
    pub fn reset(&self) -> Result<(), BarrierError> {
        self.reset_with(None)
    }

    /// As [`Barrier::reset`], and from now on `n_parties` callers have to arrive: for those that go on
    /// without one that died.
    ///
    /// # Blocking
    /// As [`Barrier::reset`].
    ///
    /// # Errors
    /// As [`Barrier::reset`].
    pub fn reset_to(&self, n_parties: u32) -> Result<(), BarrierError> {
        self.reset_with(Some(n_parties))
    }

    fn reset_with(&self, n_parties: Option<u32>) -> Result<(), BarrierError> {
        let view = self.primitive.monitor().view()?;
        let entered = self.enter()?;
        if let Some(n_parties) = n_parties {
            word(&view, state::PARTIES).store(n_parties.into(), Ordering::SeqCst);
        }
        // First the count: whoever sees that the round has ended sees the count of its reset too.
        let made_good = resets(&view);
        let counted = Resets { n_resets: made_good.n_resets.wrapping_add(1), ..made_good };
        word(&view, state::RESETS).store(counted.pack(), Ordering::SeqCst);
        word(&view, state::ROUNDS).store(rounds(&view).ended(true).pack(), Ordering::SeqCst);
        view.clear_shares();
        let made_good = Resets { n_deaths: n_deaths(&view), ..counted };
        word(&view, state::RESETS).store(made_good.pack(), Ordering::SeqCst);
        word(&view, state::BROKEN).swap(0, Ordering::SeqCst);
        drop(entered);
        self.primitive.monitor().notify();
        Ok(())
    }

    /// How many have to come.
    #[doc(alias = "parties")]
    #[must_use]
    pub fn n_parties(&self) -> u32 {
        u32::try_from(self.primitive.state(state::PARTIES).unwrap_or(0)).unwrap_or(u32::MAX)
    }

    /// How many wait now.
    #[must_use]
    pub fn n_waiting(&self) -> u32 {
        let n_waiting = self.primitive.monitor().view().map_or(0, |view| view.shares());
        u32::try_from(n_waiting).unwrap_or(u32::MAX)
    }

    /// What has broken the barrier, if it is broken. Python's `broken`.
    #[must_use]
    pub fn broken_by(&self) -> Option<BrokenBy> {
        broken_by(&self.primitive.monitor().view().ok()?)
    }
}

crate::primitive::identity!(Barrier, "barrier");

fn rounds(view: &MonitorView<'_>) -> Rounds {
    Rounds::unpack(word(view, state::ROUNDS).load(Ordering::SeqCst))
}

fn resets(view: &MonitorView<'_>) -> Resets {
    Resets::unpack(word(view, state::RESETS).load(Ordering::SeqCst))
}

/// The low half of the count, as far as resets make deaths good.
fn n_deaths(view: &MonitorView<'_>) -> u32 {
    Resets::unpack(view.deaths()).n_deaths
}

fn broken_by(view: &MonitorView<'_>) -> Option<BrokenBy> {
    let number = word(view, state::BROKEN).load(Ordering::SeqCst);
    let has_died = || n_deaths(view) != resets(view).n_deaths;
    BrokenBy::from_number(number).or_else(|| has_died().then_some(BrokenBy::Death))
}

/// How the round in which a caller came has ended; `None` while it has not.
fn outcome(view: &MonitorView<'_>, arrival: Arrival) -> Option<Result<(), BarrierError>> {
    // Read first: a round that had ended before the barrier broke is then seen to have ended.
    let broken_by = broken_by(view);
    let Rounds { n_ended, history } = rounds(view);
    let n_later = match n_ended.wrapping_sub(arrival.n_ended) {
        0 => return broken_by.map(|by| Err(BarrierError::Broken { by })),
        n_since => n_since - 1,
    };
    let was_reset = match history.checked_shr(n_later) {
        Some(history) => history & 1 != 0,
        // So long ago that it is not known which rounds were reset, if any were.
        None => resets(view).n_resets != arrival.n_resets,
    };
    Some(if was_reset { Err(BarrierError::Broken { by: BrokenBy::Reset }) } else { Ok(()) })
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier")
            .field("n_parties", &self.n_parties())
            .field("n_waiting", &self.n_waiting())
            .field("broken_by", &self.broken_by())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tensorferry_domain::Domain;

    use super::*;

    const SHORT: Duration = Duration::from_millis(2);

    fn heap() -> Heap {
        Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap()
    }

    fn told(barrier: &Barrier, arrival: Arrival) -> Option<Result<(), BrokenBy>> {
        let told = outcome(&barrier.primitive.monitor().view().unwrap(), arrival)?;
        Some(told.map_err(|error| match error {
            BarrierError::Broken { by } => by,
            error => unreachable!("{error}"),
        }))
    }

    #[test]
    fn a_caller_learns_how_its_own_round_ended_however_many_have_ended_since() {
        let heap = heap();
        let barrier = Barrier::new_in(&heap, 1).unwrap();
        // The number of rounds wraps around meanwhile.
        let view = barrier.primitive.monitor().view().unwrap();
        word(&view, state::ROUNDS)
            .store(Rounds { n_ended: u32::MAX - 5, history: 0 }.pack(), Ordering::SeqCst);
        let arrivals: Vec<_> = (0..40)
            .map(|turn| {
                let arrival = Arrival { n_ended: rounds(&view).n_ended, n_resets: resets(&view).n_resets };
                assert_eq!(told(&barrier, arrival), None, "it has not ended");
                let is_reset = turn % 3 == 0;
                if is_reset {
                    barrier.reset().unwrap()
                } else {
                    assert!(barrier.wait().unwrap().is_leader)
                }
                (arrival, is_reset)
            })
            .collect();
        for (turn, (arrival, is_reset)) in arrivals.into_iter().enumerate() {
            // Of those before it is only known that there were resets.
            let expected = if is_reset || turn < 8 { Err(BrokenBy::Reset) } else { Ok(()) };
            assert_eq!(told(&barrier, arrival), Some(expected), "turn {turn}");
        }
        let arrival = Arrival { n_ended: rounds(&view).n_ended, n_resets: resets(&view).n_resets };
        (0..40).for_each(|_| assert!(barrier.wait().unwrap().is_leader));
        assert_eq!(told(&barrier, arrival), Some(Ok(())), "nobody has reset it since");
    }

    #[test]
    fn nobody_passes_after_a_leader_that_failed_between_the_round_and_the_count() {
        let heap = heap();
        let barrier = Barrier::new_in(&heap, 3).unwrap();
        std::thread::scope(|scope| {
            let waits = [(); 2].map(|()| scope.spawn(|| barrier.wait_timeout(Duration::from_secs(30))));
            while barrier.n_waiting() < 2 {
                std::thread::yield_now();
            }
            let leader = scope.spawn(|| {
                let view = barrier.primitive.monitor().view().unwrap();
                let _entered = barrier.enter().unwrap();
                word(&view, state::ROUNDS).swap(rounds(&view).ended(false).pack(), Ordering::SeqCst);
                // As one that is killed here.
                std::panic::resume_unwind(Box::new("on purpose"));
            });
            leader.join().unwrap_err();
            barrier.primitive.monitor().notify();
            for waits in waits {
                waits.join().unwrap().unwrap();
            }
        });
        let alone = barrier.wait_timeout(SHORT);
        assert!(matches!(alone, Err(BarrierError::Broken { by: BrokenBy::Death })), "{alone:?}");
        barrier.reset_to(1).unwrap();
        assert!(barrier.wait().unwrap().is_leader);
    }

    #[test]
    fn a_time_out_breaks_a_barrier_also_while_somebody_stands_still_in_a_step() {
        let heap = heap();
        let barrier = Barrier::new_in(&heap, 2).unwrap();
        let is_broken = |came: Result<BarrierPlace, BarrierError>| {
            assert!(matches!(came, Err(BarrierError::Broken { by: BrokenBy::TimeOut })), "{came:?}");
            assert_eq!(barrier.broken_by(), Some(BrokenBy::TimeOut));
        };
        let stands_still = barrier.enter().unwrap();
        is_broken(barrier.wait_timeout(SHORT));
        assert!(matches!(barrier.reset(), Err(BarrierError::Stopped)));
        drop(stands_still);
        barrier.reset().unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| barrier.wait_timeout(Duration::from_millis(20)));
            while barrier.n_waiting() == 0 {
                std::thread::yield_now();
            }
            let _stands_still = barrier.enter().unwrap();
            is_broken(waits.join().unwrap());
        });
    }
}
