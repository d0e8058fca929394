//! A meeting point for a fixed number of threads or processes.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tensorferry_storage::{Deadline, Entered, Heap, MonitorError, MonitorView, StorageError};

use crate::primitive::{Primitive, for_a_step, word};
use crate::purpose;
use crate::wait_error::{BarrierError, BrokenBy};

/// Indexes of the words of state.
mod state {
    /// How many have to come.
    pub(super) const PARTIES: usize = 0;
    /// `resets:32 | rounds that were completed:32`.
    pub(super) const ROUND: usize = 1;
    /// Why the barrier is broken; 0 while it is not.
    pub(super) const BROKEN: usize = 2;
    /// How many deaths a reset has made good.
    pub(super) const DEATHS: usize = 3;
}

/// Lets nobody pass until so many have come: Python's `Barrier`.
///
/// A clone, or the value that a receiver gets, is another handle on the same barrier. Once all have come, it
/// begins anew.
///
/// When a process that has a handle dies, the barrier is broken: all who wait, and all who come later, get
/// [`BarrierError::Broken`] until someone calls [`Barrier::reset`]. It is also broken by a time-out and by
/// [`Barrier::abort`].
///
/// ```
/// use tensorferry_sync::Barrier;
///
/// let barrier = Barrier::new(3)?;
/// std::thread::scope(|scope| {
///     for rank in 0..2 {
///         let barrier = barrier.clone(); // or a handle that a process has got with its arguments
///         scope.spawn(move || barrier.wait().map(|place| println!("{rank} came as number {}", place.index)));
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
    /// Makes a barrier for so many callers, in the default domain. For 0 or 1 nobody waits.
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
    /// As [`Barrier::wait`]. A time-out breaks the barrier, for all who wait too.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<BarrierPlace, BarrierError> {
        self.wait_with(Deadline::within(timeout))
    }

    fn wait_with(&self, deadline: Deadline) -> Result<BarrierPlace, BarrierError> {
        let monitor = self.primitive.monitor();
        let view = monitor.view()?;
        let entered = monitor.enter(for_a_step(deadline))?;
        if let Some(by) = broken_by(&view) {
            return Err(BarrierError::Broken { by });
        }
        let round = word(&view, state::ROUND).load(Ordering::SeqCst);
        if !view.change_share(1) {
            return Err(BarrierError::DeclaredDead);
        }
        let n_parties = word(&view, state::PARTIES).load(Ordering::SeqCst);
        let n_here = view.shares();
        let index = u32::try_from(n_here.saturating_sub(1)).unwrap_or(u32::MAX);
        if n_here >= n_parties {
            // First the round: whoever finds it completed goes on, also if this process dies before the rest.
            word(&view, state::ROUND).fetch_add(1, Ordering::SeqCst);
            view.clear_shares();
            drop(entered);
            monitor.notify();
            return Ok(BarrierPlace { index, is_leader: true });
        }
        drop(entered);
        match monitor.wait(deadline, |view| outcome(view, round)) {
            Ok(outcome) => outcome?,
            Err(MonitorError::TimedOut) => self.give_up(&view, round)?,
            Err(error) => return Err(error.into()),
        }
        Ok(BarrierPlace { index, is_leader: false })
    }

    /// Takes the lock, which nobody has for long.
    fn enter(&self) -> Result<Entered, BarrierError> {
        Ok(self.primitive.monitor().enter(for_a_step(Deadline::Now))?)
    }

    /// The time of a caller is over: unless the round was completed just now, the barrier breaks.
    fn give_up(&self, view: &MonitorView<'_>, round: u64) -> Result<(), BarrierError> {
        let _entered = self.enter()?;
        outcome(view, round).unwrap_or_else(|| {
            self.break_by(view, BrokenBy::TimeOut);
            Err(BarrierError::Broken { by: BrokenBy::TimeOut })
        })
    }

    /// Breaks the barrier: all who wait, and all who come, get [`BarrierError::Broken`].
    ///
    /// # Errors
    /// [`BarrierError::Storage`] in a process that was forked by something else than this library.
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

    /// Makes the barrier whole and empty. All who wait get [`BarrierError::Broken`].
    ///
    /// # Errors
    /// [`BarrierError::Stopped`], [`BarrierError::Storage`] and [`BarrierError::DeclaredDead`].
    pub fn reset(&self) -> Result<(), BarrierError> {
        self.reset_with(None)
    }

    /// As [`Barrier::reset`], and from now on so many have to come: for those who go on without one that
    /// died.
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
        word(&view, state::ROUND).fetch_add(1 << 32, Ordering::SeqCst);
        view.clear_shares();
        word(&view, state::DEATHS).store(view.deaths(), Ordering::SeqCst);
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

    /// Whether both are handles on the same barrier.
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.primitive.ptr_eq(&other.primitive)
    }
}

fn broken_by(view: &MonitorView<'_>) -> Option<BrokenBy> {
    let number = word(view, state::BROKEN).load(Ordering::SeqCst);
    let has_died = || view.deaths() != word(view, state::DEATHS).load(Ordering::SeqCst);
    BrokenBy::from_number(number).or_else(|| has_died().then_some(BrokenBy::Death))
}

/// How the round in which a caller came has ended; `None` while it has not.
fn outcome(view: &MonitorView<'_>, round: u64) -> Option<Result<(), BarrierError>> {
    let now = word(view, state::ROUND).load(Ordering::SeqCst);
    if now >> 32 != round >> 32 {
        return Some(Err(BarrierError::Broken { by: BrokenBy::Reset }));
    }
    if now != round {
        return Some(Ok(()));
    }
    broken_by(view).map(|by| Err(BarrierError::Broken { by }))
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
