//! The tables of the registry, and the rules for what in them is no longer needed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tensorferry_storage::BlockId;

use crate::capture::Relaxed;
use crate::ipc_event::SharedEvent;
use crate::pool::{Dying, Pool};
use crate::slab::Slab;
use crate::stats::CacheLimits;
use crate::storage::Storage;
use crate::strategy::CudaStrategy;
use crate::tick::{SLOW_TICK, TICK};
use crate::timeline::Timeline;

/// A block of a domain.
pub(super) type Key = (u64, BlockId);
/// Domain, context and strategy.
pub(super) type PoolKey = (u64, usize, CudaStrategy);

#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) storages: HashMap<Key, Arc<Storage>>,
    /// Storages that no tensor of this process holds, to be let go of.
    pub(super) leaving: Vec<Key>,
    /// Slabs of other processes, mapped or not.
    pub(super) slabs: HashMap<Key, Arc<Slab>>,
    /// Timelines of other processes and of this one.
    pub(super) timelines: HashMap<Key, Arc<Timeline>>,
    /// Timelines of this process, by domain, context and stream.
    pub(super) own_timelines: HashMap<(u64, usize, usize), Arc<Timeline>>,
    /// Events of this process, as long as any process has them, and events of other processes.
    pub(super) events: HashMap<Key, Arc<SharedEvent>>,
    pub(super) pools: HashMap<PoolKey, Pool>,
    /// By context: the strategy that is used when none is asked for, once it is known.
    pub(super) preferred: HashMap<usize, CudaStrategy>,
    pub(super) dying: Vec<Dying>,
    /// The number of threads that are dropping garbage now.
    pub(super) n_freeing: usize,
    /// When the last slab was freed that other processes may have mapped.
    pub(super) gave_up_at: Option<Instant>,
    /// Slabs that a device of this process may use until the process ends. They are never unmapped, closed or
    /// freed.
    pub(super) leaked: Vec<Arc<Slab>>,
    pub(super) limits: CacheLimits,
    pub(super) n_poisoned: u64,
    pub(super) has_thread: bool,
    /// The service thread has been woken.
    pub(super) is_stirred: bool,
    /// The service thread waits for being woken, perhaps not for longer than a pause.
    pub(super) is_waiting: bool,
    /// The service thread will look by itself, in [`SLOW_TICK`] at the latest.
    pub(super) is_ticking: bool,
    /// Something has changed since its last look.
    pub(super) is_changed: bool,
    /// The number of rounds of the service thread.
    pub(super) n_looks: u64,
    /// In the last round, some stream had not finished work that other processes know of.
    pub(super) is_unfinished: bool,
}

/// Objects to drop after the tables are unlocked, because dropping them calls the driver, or locks the
/// tables.
#[derive(Debug)]
pub(super) struct Garbage {
    _storages: Vec<Arc<Storage>>,
    _slabs: Vec<Arc<Slab>>,
    _timelines: Vec<Arc<Timeline>>,
    _events: Vec<Arc<SharedEvent>>,
    pub(super) dying: Vec<Dying>,
    /// Dropped last. Querying and dropping such objects does not disturb a capture meanwhile.
    _relaxed: Relaxed,
}

impl Garbage {
    pub(super) fn new() -> Self {
        Self {
            _storages: Vec::new(),
            _slabs: Vec::new(),
            _timelines: Vec::new(),
            _events: Vec::new(),
            dying: Vec::new(),
            // If anything is in the tables, the driver was loaded before.
            _relaxed: Relaxed::begin(),
        }
    }
}

impl Tables {
    /// Notes a storage that is to be let go of.
    pub(super) fn list(&mut self, key: Key, storage: &Storage) {
        if !std::mem::replace(&mut storage.uses().is_listed, true) {
            self.leaving.push(key);
        }
    }

    /// Lets go of a storage if no tensor of this process holds it, and no other process and no device uses
    /// it, as far as this process waits for them. Returns whether there is nothing more to do.
    pub(super) fn try_settle(&mut self, key: Key, garbage: &mut Garbage) -> bool {
        let Some(storage) = self.storages.get(&key).cloned() else { return true };
        let mut uses = storage.uses();
        if uses.is_held() {
            uses.is_listed = false;
            return true;
        }
        let is_unknown;
        if storage.slab().is_own() {
            // A stream that has not made its point yet may still run work on the storage.
            if uses.is_late() || !storage.control().0.is_sole() {
                return false;
            }
            is_unknown = uses.is_unknown();
            let is_poisoned = is_unknown || storage.control().is_used();
            let points = uses.take_leaving();
            drop(uses);
            self.n_poisoned += u64::from(is_poisoned);
            let slab = storage.slab();
            if let Some(pool) = self.pool_of(key.0, slab) {
                pool.give_back(slab, storage.offset_bytes(), storage.len_bytes(), points, is_poisoned);
            } else {
                // Another library gave it away. It is freed when no process has it open any more.
                self.dying.push(Dying::retire(Arc::clone(slab), points));
            }
        } else {
            if uses.is_busy() {
                return false;
            }
            is_unknown = uses.is_unknown();
            storage.unmark(&mut uses);
            drop(uses);
        }
        if is_unknown && !self.is_leaked(storage.slab()) {
            self.leaked.push(Arc::clone(storage.slab()));
        }
        self.storages.remove(&key);
        garbage._storages.push(storage);
        true
    }

    pub(super) fn is_leaked(&self, slab: &Arc<Slab>) -> bool {
        self.leaked.iter().any(|leaked| Arc::ptr_eq(leaked, slab))
    }

    fn pool_of(&mut self, domain: u64, slab: &Arc<Slab>) -> Option<&mut Pool> {
        self.pools.iter_mut().find(|((id, ..), pool)| *id == domain && pool.has(slab)).map(|(_, pool)| pool)
    }

    pub(super) fn settle(&mut self, garbage: &mut Garbage) {
        for key in std::mem::take(&mut self.leaving) {
            if !self.try_settle(key, garbage) {
                self.leaving.push(key);
            }
        }
    }

    pub(super) fn trim(&mut self, keep_bytes: usize) {
        for pool in self.pools.values_mut() {
            self.dying.extend(pool.trim(keep_bytes));
        }
        self.pools.retain(|_, pool| pool.n_slabs() > 0);
    }

    /// Drops objects of other processes that this process does not use: those that their owners gave up, and
    /// those beyond the cache limit.
    pub(super) fn drop_unused(&mut self, keep_slabs: usize, garbage: &mut Garbage) {
        let is_unused = |slab: &Arc<Slab>| Arc::strong_count(slab) == 1;
        let n_unused = self.slabs.values().filter(|slab| is_unused(slab)).count();
        let mut n_too_many = n_unused.saturating_sub(keep_slabs);
        let gone = self.slabs.extract_if(|_, slab| {
            is_unused(slab)
                && (slab.control().is_retired()
                    || n_too_many > 0 && {
                        n_too_many -= 1;
                        true
                    })
        });
        garbage._slabs.extend(gone.map(|(_, slab)| slab));
        self.own_timelines.retain(|_, timeline| Arc::strong_count(timeline) > 2 || !timeline.is_unused());
        let own = &self.own_timelines;
        let gone = self.timelines.extract_if(|_, timeline| {
            if timeline.is_own() {
                Arc::strong_count(timeline) == 1 && !own.values().any(|own| Arc::ptr_eq(own, timeline))
            } else {
                Arc::strong_count(timeline) == 1 && timeline.is_unused()
            }
        });
        garbage._timelines.extend(gone.map(|(_, timeline)| timeline));
        // An opened event must not be used after its owner has destroyed it. So an event of this process
        // stays while others have it.
        let gone = self.events.extract_if(|_, event| {
            let control = event.control();
            Arc::strong_count(event) == 1 && (!control.is_own() || control.0.is_sole()) && event.is_idle()
        });
        garbage._events.extend(gone.map(|(_, event)| event));
    }

    /// Forgets a slab of another process in which nothing lies any more but `storage`, which is being let go
    /// of. For a process that has not mapped the slab.
    pub(super) fn forget_slab_of(&mut self, storage: &Storage, garbage: &mut Garbage) {
        let slab = storage.slab();
        // The table and the storage have one reference each.
        if !slab.is_own() && Arc::strong_count(slab) == 2 {
            let gone = self.slabs.extract_if(|_, known| Arc::ptr_eq(known, slab));
            garbage._slabs.extend(gone.map(|(_, slab)| slab));
        }
    }

    pub(super) fn housekeep(&mut self, garbage: &mut Garbage) -> Option<Duration> {
        self.n_looks += 1;
        self.is_changed = false;
        self.is_unfinished = self.own_timelines.values().filter(|timeline| timeline.publish()).count() > 0;
        self.settle(garbage);
        self.trim(self.limits.free_bytes);
        let (busy, done) = std::mem::take(&mut self.dying).into_iter().partition(Dying::is_busy);
        self.dying = busy;
        garbage.dying = done;
        self.drop_unused(self.limits.idle_slabs, garbage);
        if self.is_unfinished || !self.leaving.is_empty() || !self.dying.is_empty() {
            return Some(TICK);
        }
        (!self.slabs.is_empty() || !self.timelines.is_empty() || !self.events.is_empty()).then_some(SLOW_TICK)
    }
}
