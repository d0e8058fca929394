//! What a process has of device memory, in tables, and which of it is not needed any more.

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
/// Domain and context, and how the memory is shared.
pub(super) type PoolKey = (u64, usize, CudaStrategy);

#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) storages: HashMap<Key, Arc<Storage>>,
    /// Storages that no tensor here holds, to be let go of.
    pub(super) leaving: Vec<Key>,
    /// Slabs of other processes, mapped or not.
    pub(super) slabs: HashMap<Key, Arc<Slab>>,
    /// Of other processes, and our own.
    pub(super) timelines: HashMap<Key, Arc<Timeline>>,
    /// Our own: by domain, context and stream.
    pub(super) own_timelines: HashMap<(u64, usize, usize), Arc<Timeline>>,
    /// Of this process, for as long as anybody has them, and of others.
    pub(super) events: HashMap<Key, Arc<SharedEvent>>,
    pub(super) pools: HashMap<PoolKey, Pool>,
    /// Which strategy a context has when none is asked for, once it was found out.
    pub(super) preferred: HashMap<usize, CudaStrategy>,
    pub(super) dying: Vec<Dying>,
    /// How many threads are just dropping what was thrown away.
    pub(super) n_freeing: usize,
    /// When the last slab was freed that others may have mapped.
    pub(super) gave_up_at: Option<Instant>,
    /// Slabs that a device of this process may be at until the process ends: they are never unmapped, closed or freed.
    pub(super) leaked: Vec<Arc<Slab>>,
    pub(super) limits: CacheLimits,
    pub(super) n_spoilt: u64,
    pub(super) has_thread: bool,
    /// There is something new to look at.
    pub(super) is_stirred: bool,
    /// How often the thread has looked.
    pub(super) n_looks: u64,
    /// A stream was not done, when last looked at, with what others were told about.
    pub(super) is_unfinished: bool,
}

/// What is dropped once the tables are unlocked, because that calls the driver, or the tables.
#[derive(Debug)]
pub(super) struct Garbage {
    _storages: Vec<Arc<Storage>>,
    _slabs: Vec<Arc<Slab>>,
    _timelines: Vec<Arc<Timeline>>,
    _events: Vec<Arc<SharedEvent>>,
    pub(super) dying: Vec<Dying>,
    /// Goes last. What is asked of the driver about such things, and dropping them, disturbs nobody's capture.
    _relaxed: Relaxed,
}

impl Garbage {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        Self {
            _storages: Vec::new(),
            _slabs: Vec::new(),
            _timelines: Vec::new(),
            _events: Vec::new(),
            dying: Vec::new(),
            // What stands in the tables has loaded the driver before.
            _relaxed: Relaxed::begin(),
        }
    }
}

impl Tables {
    /// Lets go of a storage if no tensor here holds it, and nobody and no device is at it as far as we wait for them.
    /// Returns whether there is nothing more to do.
    pub(super) fn try_settle(&mut self, key: Key, garbage: &mut Garbage) -> bool {
        let Some(storage) = self.storages.get(&key).cloned() else { return true };
        let mut uses = storage.uses();
        if uses.is_held() {
            uses.is_listed = false;
            return true;
        }
        let is_unknown;
        if storage.slab().is_own() {
            // What a stream was told that has made no point yet may run still.
            if uses.is_late() || !storage.control().0.is_sole() {
                return false;
            }
            is_unknown = uses.is_unknown();
            let is_spoilt = is_unknown || storage.control().is_used();
            let points = uses.take_leaving();
            drop(uses);
            self.n_spoilt += u64::from(is_spoilt);
            let slab = storage.slab();
            if let Some(pool) = self.pool_of(key.0, slab) {
                pool.give_back(slab, storage.offset_bytes(), storage.len_bytes(), points, is_spoilt);
            } else {
                // Another library gave it away: it is freed when nobody has it open any more.
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

    /// Drops what came from others and is used by nobody here: what its owner gave up, and what is too much.
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
        // An opened event must not be used after its owner has destroyed it.
        let gone = self.events.extract_if(|_, event| {
            let control = event.control();
            Arc::strong_count(event) == 1 && (!control.is_own() || control.0.is_sole())
        });
        garbage._events.extend(gone.map(|(_, event)| event));
    }

    /// Forgets a slab of another process that nothing lies in any more but a storage that is just let go of. For a process that has
    /// not mapped it.
    pub(super) fn forget_slab_of(&mut self, storage: &Storage, garbage: &mut Garbage) {
        let slab = storage.slab();
        // The table has it, and the storage.
        if !slab.is_own() && Arc::strong_count(slab) == 2 {
            let gone = self.slabs.extract_if(|_, known| Arc::ptr_eq(known, slab));
            garbage._slabs.extend(gone.map(|(_, slab)| slab));
        }
    }

    pub(super) fn housekeep(&mut self, garbage: &mut Garbage) -> Option<Duration> {
        self.n_looks += 1;
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
