//! Monitors: a lock, a few words that it protects, and a place to wait for a change, all in one block.
//!
//! Locks, semaphores, barriers and the like are made of monitors; `tensorferry-sync` has them. A monitor adds
//! to its words what each of them would otherwise need by itself: the sweep after a death finds it by its
//! kind, frees the lock of a dead owner, counts the death and wakes everybody who waits.
//!
//! Each member has a *share* in a monitor: a count that this member changes, and that is worth nothing once
//! the member has died. So what a dead process had taken comes back without an account of it.

use std::sync::Arc;

use tensorferry_domain::{Member, Spin};

use crate::access::SharedBlock;
use crate::atomic::{AtomicU64, Ordering};
use crate::block::Block;
use crate::header::Kind;
use crate::heap::Heap;
use crate::held_monitor::HeldMonitor;
use crate::monitor_words::{LastOwner, MAGIC, MonitorWords, word};
use crate::{BlockId, Deadline, StorageError};

/// Why a monitor was not entered, or a wait ended without what was waited for. Whoever wraps it has something
/// to say about each of these, so there will be no others without a new major version.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// The deadline passed.
    #[error("what was waited for did not happen before the deadline")]
    TimedOut,
    /// This process was declared dead by another member of its domain.
    #[error("this process was declared dead by another member of its domain")]
    DeclaredDead,
    /// This process is no member of the domain, because it was forked by something other than this library.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// A handle on a monitor. A clone is another handle of this process, and other processes get theirs in
/// messages ([`OutgoingHandle::monitor`](crate::OutgoingHandle::monitor)).
#[derive(Clone, Debug)]
pub struct Monitor(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    held: HeldMonitor,
    lock_spin: Spin,
    change_spin: Spin,
}

/// The lock of a monitor, held by this process. Dropping it releases the lock.
#[derive(Debug)]
pub struct Entered {
    monitor: Monitor,
    /// Who took the lock.
    owner: Member,
    last_owner: LastOwner,
    /// How it is to be left, unless this thread panics meanwhile.
    leave: LastOwner,
    was_panicking: bool,
}

impl Monitor {
    /// Makes a monitor, whose words of state are zero. `purpose` tells what it is used for.
    ///
    /// # Errors
    /// [`StorageError`] when there is no memory for it.
    pub fn create(heap: &Heap, purpose: u64) -> Result<Self, StorageError> {
        let block = heap.allocate_block(word::N_WORDS * 8)?;
        for word in block.words() {
            word.store(0, Ordering::Relaxed);
        }
        for (index, value) in [(word::PURPOSE, purpose), (word::MAGIC, MAGIC)] {
            if let Some(word) = block.words().get(index) {
                word.store(value, Ordering::Release);
            }
        }
        if let Some(header) = block.header() {
            header.set_kind(Kind::Monitor);
        }
        Self::open(SharedBlock::new(block), purpose)
    }

    /// The monitor in this block.
    fn open(block: SharedBlock, purpose: u64) -> Result<Self, StorageError> {
        let held = HeldMonitor::try_new(block, |block| {
            let bad = |what| StorageError::BadReference { reference: block.id().0, what };
            let inner = block.block().ok_or_else(|| bad("it has no block"))?;
            inner.heap().check_owning_process()?;
            // The words of a block of another kind may be lent in another size.
            let is_one = inner.header().is_some_and(|header| header.kind() == Kind::Monitor);
            let words = is_one.then(|| words_of(inner)).flatten();
            let words = words.ok_or_else(|| bad("the block holds no monitor"))?;
            if words.purpose().load(Ordering::Relaxed) != purpose {
                return Err(bad("the block holds something else to wait for"));
            }
            Ok(words)
        })?;
        Ok(Self(Arc::new(Inner { held, lock_spin: Spin::default(), change_spin: Spin::default() })))
    }

    /// Which block it is.
    #[must_use]
    pub fn id(&self) -> BlockId {
        self.block().id()
    }

    /// The block. It is lent to nobody: its words would be there in another size than that of its futexes.
    pub(crate) fn block(&self) -> &SharedBlock {
        self.0.held.borrow_owner()
    }

    /// Whether both are handles on the same monitor.
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.block().ptr_eq(other.block())
    }

    /// Takes the lock.
    ///
    /// # Blocking
    /// While another thread or process has the lock, as long as `deadline` allows. A thread that has the lock
    /// already waits for itself. Whoever releases the lock wakes the call, and so does the sweep after the
    /// death of an owner.
    ///
    /// # Errors
    /// [`MonitorError`].
    pub fn enter(&self, deadline: Deadline) -> Result<Entered, MonitorError> {
        let view = self.view()?;
        let owner = view.heap.me();
        let look = || view.words.try_acquire(owner, |member| view.heap.domain().is_unswept(member));
        let taken = deadline.wait(view.words.unlocked(), &self.0.lock_spin, look);
        let last_owner = taken.ok_or(MonitorError::TimedOut)?;
        let mut entered = Entered {
            monitor: self.clone(),
            owner,
            last_owner,
            leave: LastOwner::Released,
            was_panicking: std::thread::panicking(),
        };
        // Other members take the lock away from a process that they believe to be dead.
        if view.heap.is_live(owner) {
            return Ok(entered);
        }
        entered.leave_as_found();
        Err(MonitorError::DeclaredDead)
    }

    /// Waits until `look` finds something.
    ///
    /// # Blocking
    /// As long as `deadline` allows. [`Monitor::notify`] wakes it in every process, and so does the sweep
    /// after the death of a member that held the monitor.
    ///
    /// # Errors
    /// [`MonitorError`].
    pub fn wait<R>(
        &self,
        deadline: Deadline,
        mut look: impl FnMut(&MonitorView<'_>) -> Option<R>,
    ) -> Result<R, MonitorError> {
        let view = self.view()?;
        let found = deadline.wait(view.words.changed(), &self.0.change_spin, || look(&view));
        found.ok_or(MonitorError::TimedOut)
    }

    /// Wakes all who wait for a change. Call it after the change, which must be a sequentially consistent
    /// read-modify-write or be made by [`MonitorView::change_share`].
    pub fn notify(&self) {
        if let Ok(view) = self.view() {
            view.words.changed().wake_after_change();
        }
    }

    /// The monitor's words.
    ///
    /// # Errors
    /// [`StorageError::Domain`] in a process that was forked by something other than this library.
    pub fn view(&self) -> Result<MonitorView<'_>, StorageError> {
        let block = self.block();
        let no_block = || StorageError::Damaged { offset_bytes: block.id().0, what: "it has no block" };
        let heap = block.block().ok_or_else(no_block)?.heap();
        heap.check_owning_process()?;
        Ok(MonitorView { words: *self.0.held.borrow_dependent(), heap })
    }
}

/// The words of a monitor, as this process sees them.
#[derive(Clone, Copy, Debug)]
pub struct MonitorView<'a> {
    words: MonitorWords<'a>,
    heap: &'a Heap,
}

impl<'a> MonitorView<'a> {
    /// This process, as a member of the domain. Whose share it was: a child of a fork is another member.
    #[must_use]
    pub fn me(&self) -> Member {
        self.heap.me()
    }

    /// The four words that belong to the user of the monitor. Other processes may change them at any moment.
    #[must_use]
    pub fn state(&self) -> &'a [AtomicU64] {
        self.words.state()
    }

    /// How many members that held the monitor have died. It only grows, and may grow by more than one for one
    /// death.
    #[must_use]
    pub fn deaths(&self) -> u64 {
        self.words.deaths().load(Ordering::SeqCst)
    }

    /// Counts a death as the sweep after one does, and wakes nobody. For tests of what is seen of it.
    #[doc(hidden)]
    pub fn count_death(&self) {
        self.words.deaths().fetch_add(1, Ordering::SeqCst);
    }

    /// Changes the share of this process by `change`. Returns false, and changes nothing, when the share
    /// would leave the range of a `u32`, or this process was declared dead.
    #[must_use]
    pub fn change_share(&self, change: i32) -> bool {
        self.words.change_share(self.heap.me(), change)
    }

    /// The share of this process.
    #[must_use]
    pub fn share(&self) -> u32 {
        self.words.share(self.heap.me())
    }

    /// The sum of the shares of all living members.
    #[must_use]
    pub fn shares(&self) -> u64 {
        self.words.shares(|member| self.heap.is_live(member))
    }

    /// Sets the shares of all members to zero. For a process that has the lock, while no other changes its
    /// share without it.
    pub fn clear_shares(&self) {
        self.words.clear_shares();
    }
}

impl Entered {
    /// The monitor.
    #[must_use]
    pub fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// How the last owner left the lock.
    #[must_use]
    pub fn last_owner(&self) -> LastOwner {
        self.last_owner
    }

    /// The words of the monitor; `None` when the lock is not this process's any more. A child of a fork has a
    /// copy of the value only, and other members take the lock away from a process that they believe to be
    /// dead.
    #[must_use]
    pub fn view(&self) -> Option<MonitorView<'_>> {
        self.monitor.view().ok().filter(|view| view.me() == self.owner && view.heap.is_live(self.owner))
    }

    /// Whether this thread has begun to panic since it took the lock.
    #[must_use]
    pub fn has_panicked(&self) -> bool {
        !self.was_panicking && std::thread::panicking()
    }

    /// From now on, dropping the value leaves it to the next owner to be told how the last one left the lock,
    /// unless this thread panics meanwhile.
    pub fn leave_as_found(&mut self) {
        self.leave = self.last_owner;
    }

    /// From now on, dropping the value leaves the lock as one whose owner has panicked.
    pub fn leave_panicked(&mut self) {
        self.leave = LastOwner::Panicked;
    }

    /// What the next owner is told of the last one, unless this thread panics meanwhile.
    #[must_use]
    pub fn leaves(&self) -> LastOwner {
        self.leave
    }

    /// From now on, dropping the value releases the lock as one that nobody has to be told of, unless this
    /// thread panics meanwhile. A value begins like that.
    pub fn leave_released(&mut self) {
        self.leave = LastOwner::Released;
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let Ok(view) = self.monitor.view() else { return };
        // A child of a fork has a copy of the value, and the parent has the lock.
        if view.heap.me() != self.owner {
            return;
        }
        view.words.release(self.owner, if self.has_panicked() { LastOwner::Panicked } else { self.leave });
    }
}

/// A monitor of a message.
#[derive(Clone, Debug)]
pub struct ReceivedMonitor {
    /// INVARIANT: of kind `Monitor`, when it was received.
    block: SharedBlock,
}

impl ReceivedMonitor {
    /// `block` was granted shared, by a message.
    pub(crate) fn new(block: SharedBlock) -> Self {
        Self { block }
    }

    pub(crate) fn block(&self) -> &SharedBlock {
        &self.block
    }

    /// The monitor, if this is what it is used for.
    ///
    /// # Errors
    /// [`StorageError::BadReference`] when the block holds no monitor, or one with another purpose.
    pub fn open(self, purpose: u64) -> Result<Monitor, StorageError> {
        Monitor::open(self.block, purpose)
    }
}

/// The monitor in a block of this process; `None` when it holds none.
pub(crate) fn words_of(block: &Block) -> Option<MonitorWords<'_>> {
    if !block.heap().is_owning_process() {
        return None;
    }
    let n_words32 = (word::CHANGED - word::UNLOCKED) * 2 + 1;
    let (words, lines) = block.words_with_futexes(word::UNLOCKED, n_words32)?;
    let monitor = MonitorWords::new(words.first_chunk()?, lines.first()?, lines.last()?);
    (monitor.magic().load(Ordering::Acquire) == MAGIC).then_some(monitor)
}

#[cfg(test)]
mod tests {
    use tensorferry_domain::Domain;

    use super::*;
    use crate::{OutgoingHandle, Ring};

    #[test]
    fn the_block_of_a_monitor_never_becomes_bytes_that_sweeps_would_write() {
        let heap = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
        let monitor = Monitor::create(&heap, 7).unwrap();
        let block = monitor.block().clone();
        drop(monitor);
        assert!(block.is_sole());
        let block = block.try_into_exclusive().unwrap_err();
        let plain = SharedBlock::new(heap.allocate_block(word::N_WORDS * 8).unwrap());
        for (from, to) in block.words().iter().zip(plain.words()) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        assert!(Monitor::open(block, 7).is_ok());
        assert!(Monitor::open(plain.clone(), 7).is_err(), "memory that looks like a monitor is none");
        assert!(plain.try_into_exclusive().is_ok());
    }

    #[test]
    fn what_is_printed_of_an_end_is_short() {
        let heap = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
        let (ring, monitor) = (Ring::create(&heap, 1000, 0).unwrap(), Monitor::create(&heap, 7).unwrap());
        let block = heap.allocate(64).unwrap().freeze();
        for _ in 0..100 {
            let handles = OutgoingHandle::frozen(&block).into_iter().collect();
            ring.put(b"", handles, Deadline::Now).unwrap();
        }
        for text in [format!("{ring:?}"), format!("{monitor:?}")] {
            assert!(text.len() < 4000, "{} characters: {text:.1000}", text.len());
        }
    }
}
