//! The device memory of this process, and the service thread that waits for other processes and devices.
//!
//! The tables are locked only briefly: nothing is mapped, unmapped or waited for under the lock. The lock
//! order is: tables, then the uses of a storage or the last point of a timeline. Whoever has one of those
//! does not come back here.

mod full;
mod tables;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tensorferry_storage::Heap;

use self::tables::{Garbage, Key, PoolKey, Tables};
use crate::backing::{Lent, PIECE_BYTES};
use crate::capture::Relaxed;
use crate::context::PrimaryContext;
use crate::control::{Control, SlabControl, StorageControl, TimelineControl};
use crate::driver::Driver;
use crate::error::CudaError;
use crate::ipc_event::SharedEvent;
use crate::opened;
use crate::pinning::Pinning;
use crate::pool::{Dying, Part, Pool, part_len_bytes};
use crate::refused;
use crate::slab::Slab;
use crate::stats::{CacheLimits, DeviceStats};
use crate::storage::{Hold, Storage};
use crate::strategy::{CudaStrategy, get_cuda_strategy};
use crate::stream::Stream;
use crate::tensor_error::{CudaTensorError, Result};
use crate::tick::{SLOW_TICK, TICK, next_tick};
use crate::timeline::Timeline;

/// How long a process that ends waits for its device to finish work that other processes know of.
const LAST_WORK: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Registry {
    tables: Mutex<Tables>,
    stirred: Condvar,
    /// Signalled when the thread has done a round of housekeeping, or a thread has freed what was no longer
    /// needed.
    looked: Condvar,
}

/// The registry of this process.
pub(crate) fn get() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(Registry::default)
}

/// Makes this process finish its last work when it ends. Must be called after the driver is loaded: exit
/// handlers run in reverse order, and after its own the driver no longer answers.
pub(crate) fn finish_at_exit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // If this fails, a receiver may get an error for what this process sends just before it ends.
        let _ = tensorferry_os::child::at_exit(at_exit);
    });
}

extern "C" fn at_exit() {
    // A process that was forked from this one has neither the thread nor the driver.
    if Driver::loaded().is_some_and(|driver| driver.check_process().is_ok()) {
        get().finish_last_work();
    }
}

fn key_of(control: &Control) -> Result<(Key, &Heap)> {
    let heap = control.heap().ok_or(CudaTensorError::BadMessage { what: "a handle without a block" })?;
    Ok(((heap.domain().id(), control.id()), heap))
}

/// The memory that was found for a tensor.
enum Found {
    Part(Part),
    Slab(Slab),
}

impl Registry {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the tables, and makes a place for what is no longer needed. The garbage is dropped after the
    /// lock, because it calls the driver.
    fn clean_up(&self) -> (Garbage, MutexGuard<'_, Tables>) {
        let tables = self.tables();
        (Garbage::new(), tables)
    }

    /// Allocates memory of this process for a tensor of `len_bytes`, to be written on `stream`.
    pub(crate) fn allocate(
        &'static self,
        heap: &Heap,
        stream: &Stream,
        len_bytes: usize,
        strategy: Option<CudaStrategy>,
    ) -> Result<Arc<Hold>> {
        let context = stream.context();
        let strategy = strategy.map_or_else(|| self.preferred_strategy(context), Ok)?;
        let pool = (heap.domain().id(), context.handle(), strategy);
        let part_len = part_len_bytes(len_bytes).ok_or_else(|| too_large(len_bytes))?;
        let part = match self.take_part(pool, part_len) {
            Some(part) => part,
            None => self.add_slab(heap, context, strategy, part_len)?,
        };
        let control = part.hold_up(stream).and_then(|()| {
            Ok(StorageControl::create(heap, part.slab.control(), part.offset_bytes, part_len)?)
        });
        let control = match control {
            Ok(control) => control,
            Err(error) => {
                // Given back as it was taken: its last users may still use it.
                let (_garbage, mut tables) = self.clean_up();
                if let Some(pool) = tables.pools.get_mut(&pool) {
                    pool.give_back(&part.slab, part.offset_bytes, part_len, part.points, false);
                }
                return Err(error);
            }
        };
        let is_held_up = !part.points.is_empty();
        let hold = self.add_storage(control, part.slab, part.offset_bytes, part_len)?;
        if is_held_up {
            // So that whoever receives the tensor before it was used here waits for those users, too.
            hold.note(stream);
        }
        Ok(hold)
    }

    fn add_storage(
        &self,
        control: StorageControl,
        slab: Arc<Slab>,
        offset_bytes: usize,
        len_bytes: usize,
    ) -> Result<Arc<Hold>> {
        let (key, _) = key_of(&control.0)?;
        let storage = Storage::new(control, slab, offset_bytes, len_bytes);
        storage.uses().add_hold();
        self.tables().storages.insert(key, Arc::clone(&storage));
        Ok(Hold::counted(storage))
    }

    /// Makes a storage of a part of an allocation of another library. That library is to give the allocation
    /// away afterwards ([`Slab::take_over`]).
    pub(crate) fn lend(
        &'static self,
        heap: &Heap,
        lent: Lent,
        offset_bytes: usize,
        len_bytes: usize,
    ) -> Result<Arc<Hold>> {
        let slab = Slab::lent(heap, lent)?;
        let control = StorageControl::create(heap, slab.control(), offset_bytes, len_bytes)?;
        self.add_storage(control, Arc::new(slab), offset_bytes, len_bytes)
    }

    /// Copies `len_bytes` at an address of the stream's device into shared memory of the host, as a staged
    /// storage.
    pub(crate) fn stage(
        &'static self,
        heap: &Heap,
        stream: &Stream,
        address: u64,
        len_bytes: usize,
    ) -> Result<Arc<Hold>> {
        let context = stream.context();
        let slab = SlabControl::create_staged(heap, context.device().uuid()?, len_bytes)?;
        // Allows waiting for the copy while another stream captures.
        let _relaxed = Relaxed::begin();
        let _current = context.make_current()?;
        let driver = context.device().driver();
        let pinning = Pinning::default();
        driver.copy_to_shared(pinning.pin(driver, &slab), address, len_bytes, stream.handle())?;
        let storage = StorageControl::create(heap, &slab, 0, len_bytes)?;
        self.hold(storage, slab)
    }

    fn preferred_strategy(&self, context: &PrimaryContext) -> Result<CudaStrategy> {
        if let Some(strategy) = get_cuda_strategy() {
            return Ok(strategy);
        }
        let known = self.tables().preferred.get(&context.handle()).copied();
        if let Some(strategy) = known {
            return Ok(strategy);
        }
        let (strategy, is_certain) = CudaStrategy::preferred(context)?;
        if is_certain {
            self.tables().preferred.insert(context.handle(), strategy);
        }
        Ok(strategy)
    }

    fn take_part(&self, id: PoolKey, part_len: usize) -> Option<Part> {
        let (mut garbage, mut tables) = self.clean_up();
        if let Some(part) = tables.pools.get_mut(&id).and_then(|pool| pool.take(part_len)) {
            return Some(part);
        }
        tables.settle(&mut garbage);
        let part = tables.pools.get_mut(&id).and_then(|pool| pool.take(part_len));
        drop(tables);
        part
    }

    /// Takes a part of a new slab.
    fn add_slab(
        &'static self,
        heap: &Heap,
        context: &PrimaryContext,
        strategy: CudaStrategy,
        part_len: usize,
    ) -> Result<Part> {
        let granularity = match strategy {
            CudaStrategy::Vmm => context.device().granularity_bytes()?,
            CudaStrategy::Legacy | CudaStrategy::Pool | CudaStrategy::Staged => PIECE_BYTES,
        };
        let len_bytes = Pool::slab_len_bytes(part_len, granularity).ok_or_else(|| too_large(part_len))?;
        let id = (heap.domain().id(), context.handle(), strategy);
        let make = || match self.take_part(id, part_len) {
            // A part came back while this thread waited for room.
            Some(part) => Ok(Found::Part(part)),
            None => Slab::create(heap, context, len_bytes, strategy).map(Found::Slab),
        };
        let slab = match self.make_room_for(context, len_bytes, make)? {
            Found::Part(part) => return Ok(part),
            Found::Slab(slab) => slab,
        };
        // Mapped now and not under the lock. A slab that cannot be mapped is of no use.
        slab.address(context)?;
        let mut tables = self.tables();
        let pool = tables.pools.entry(id).or_default();
        Ok(pool.add(slab, part_len))
    }

    /// The storage that a message names. It is one in this process, whichever process sent the message.
    pub(crate) fn hold(&'static self, storage: StorageControl, slab: SlabControl) -> Result<Arc<Hold>> {
        let (key, _) = key_of(&storage.0)?;
        let (slab_key, _) = key_of(&slab.0)?;
        let bad = || CudaTensorError::BadMessage { what: "a tensor that does not lie in its slab" };
        let mut tables = self.tables();
        if let Some(known) = tables.storages.get(&key) {
            let known = Arc::clone(known);
            known.uses().add_hold();
            return Ok(Hold::counted(known));
        }
        let known = tables.slabs.get(&slab_key).cloned();
        let slab = known.map_or_else(|| Slab::of_another(slab).map(Arc::new), Ok)?;
        // Checked against the length that was read when this process learned of the slab, and is used from
        // then on.
        let (offset_bytes, len_bytes) = storage.range_in(slab.control(), slab.len_bytes()).ok_or_else(bad)?;
        tables.slabs.insert(slab_key, Arc::clone(&slab));
        let storage = Storage::new(storage, slab, offset_bytes, len_bytes);
        storage.uses().add_hold();
        tables.storages.insert(key, Arc::clone(&storage));
        Ok(Hold::counted(storage))
    }

    /// The timeline that a message names.
    pub(crate) fn timeline(&self, control: TimelineControl) -> Result<Arc<Timeline>> {
        let (key, _) = key_of(&control.0)?;
        let mut tables = self.tables();
        let timeline = tables.timelines.entry(key).or_insert_with(|| Arc::new(Timeline::of_another(control)));
        Ok(Arc::clone(timeline))
    }

    /// The timeline of a stream of this process, made on first use.
    pub(crate) fn own_timeline(&'static self, heap: &Heap, stream: &Stream) -> Result<Arc<Timeline>> {
        let id = (heap.domain().id(), stream.context().handle(), stream.handle());
        let known = self.tables().own_timelines.get(&id).cloned();
        if let Some(known) = known {
            // The timeline cannot be retired from here on, because this function holds it too.
            known.revive();
            if known.has_to_be_published() {
                self.stir();
            } else {
                self.stir_for_later();
            }
            return Ok(known);
        }
        let fresh = Arc::new(Timeline::create(heap, stream)?);
        let (key, _) = key_of(&fresh.control().0)?;
        let mut tables = self.tables();
        // If two threads come here at once, one of their timelines is used.
        let timeline = Arc::clone(tables.own_timelines.entry(id).or_insert_with(|| Arc::clone(&fresh)));
        if Arc::ptr_eq(&timeline, &fresh) {
            tables.timelines.insert(key, fresh);
        }
        drop(tables);
        self.stir();
        Ok(timeline)
    }

    /// The entry of this process for an event: the known one, or this one.
    pub(crate) fn keep_event(&'static self, event: SharedEvent) -> Result<Arc<SharedEvent>> {
        let (key, _) = key_of(&event.control().0)?;
        let mut tables = self.tables();
        let known = Arc::clone(tables.events.entry(key).or_insert_with(|| Arc::new(event)));
        drop(tables);
        self.stir();
        Ok(known)
    }

    /// Called when the last tensor of this process has let go of the storage. `is_busy`: a device still uses
    /// it, as far as is known.
    pub(crate) fn let_go(&'static self, storage: &Arc<Storage>, is_busy: bool) {
        let Ok((key, _)) = key_of(&storage.control().0) else { return };
        if is_busy {
            let mut tables = self.tables();
            tables.list(key, storage);
            drop(tables);
            self.stir();
            return;
        }
        let (mut garbage, mut tables) = self.clean_up();
        let is_done = tables.try_settle(key, &mut garbage);
        if !is_done {
            tables.list(key, storage);
        }
        if is_done && Driver::loaded().is_none() {
            tables.forget_slab_of(storage, &mut garbage);
        }
        drop(tables);
        if !is_done || storage.slab().is_lent() {
            self.stir();
        } else if !storage.slab().is_own() {
            // The slab is kept for later.
            self.stir_for_later();
        }
    }

    /// Called when a handle on the event is dropped, perhaps the last one of this process. If a driver is
    /// loaded, the service thread finds that out instead.
    pub(crate) fn let_go_of_event(&self, event: &Arc<SharedEvent>) {
        let Ok((key, _)) = key_of(&event.control().0) else { return };
        if Driver::loaded().is_some() {
            return;
        }
        let mut tables = self.tables();
        // The handle and the table have one reference each.
        let gone = if Arc::strong_count(event) == 2 { tables.events.remove(&key) } else { None };
        drop(tables);
        drop(gone);
    }

    /// Wakes the service thread, and starts it on first use. A process without a driver has no such thread,
    /// because it may need to be forked. It has nothing to wait for either, so what it no longer needs is
    /// dropped at once.
    pub(crate) fn stir(&'static self) {
        if Driver::loaded().is_none() {
            let (mut garbage, mut tables) = self.clean_up();
            tables.drop_unused(0, &mut garbage);
            drop(tables);
            return;
        }
        let mut tables = self.tables();
        tables.is_stirred = true;
        self.wake(tables);
    }

    /// As [`Registry::stir`], where the next look of the service thread is soon enough, if it will take one
    /// anyway. So a busy process does not wake it for each message.
    pub(crate) fn stir_for_later(&'static self) {
        if Driver::loaded().is_none() {
            self.stir();
            return;
        }
        let mut tables = self.tables();
        tables.is_changed = true;
        if !tables.is_ticking {
            self.wake(tables);
        }
    }

    fn wake(&'static self, mut tables: MutexGuard<'_, Tables>) {
        if !tables.has_thread {
            let named = std::thread::Builder::new().name("tensorferry-cuda".to_owned());
            // Without the thread, memory comes back when more is needed, and with `ipc_collect`.
            tables.has_thread = named.spawn(move || self.look_after()).is_ok();
        }
        // To notify nobody costs a system call, too.
        let is_waiting = tables.is_waiting;
        drop(tables);
        if is_waiting {
            self.stirred.notify_one();
        }
    }

    fn look_after(&self) {
        let mut tick = Some(TICK);
        loop {
            let mut tables = self.tables();
            while !tables.is_stirred {
                tick = tick.or_else(|| tables.is_changed.then_some(SLOW_TICK));
                tables.is_ticking = tick.is_some();
                tables.is_waiting = true;
                let is_time;
                (tables, is_time) = match tick {
                    None => (self.stirred.wait(tables).unwrap_or_else(PoisonError::into_inner), false),
                    Some(pause) => {
                        let waited = self.stirred.wait_timeout(tables, pause);
                        let (tables, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                        (tables, timeout.timed_out())
                    }
                };
                tables.is_waiting = false;
                if is_time {
                    break;
                }
            }
            let is_stirred = std::mem::take(&mut tables.is_stirred);
            drop(tables);
            let wanted = self.housekeep();
            if wanted == Some(TICK) {
                // A request that arrives meanwhile is served after the pause, so a busy process does not do a
                // round for each message.
                let pause = Instant::now() + TICK;
                while let Some(left) = pause.checked_duration_since(Instant::now()).filter(|l| !l.is_zero()) {
                    std::thread::park_timeout(left);
                }
            }
            tick = wanted.map(|wanted| next_tick(wanted, tick, is_stirred));
        }
    }

    /// Lets go of what is no longer needed. Returns when to look again, unless the thread is woken before.
    fn housekeep(&self) -> Option<Duration> {
        let (mut garbage, mut tables) = self.clean_up();
        let tick = tables.housekeep(&mut garbage);
        self.looked.notify_all();
        if self.throw_away(tables, garbage) {
            return Some(TICK);
        }
        // Their owners may end, and then they no longer count.
        tick.or_else(|| (opened::count_unclosed() > 0).then_some(SLOW_TICK))
    }

    /// Drops what is no longer needed, without the lock, once no device uses it. A thread that waits for
    /// memory meanwhile knows that some is coming. Returns whether something is left that has to be looked at
    /// again soon.
    fn throw_away(&self, mut tables: MutexGuard<'_, Tables>, mut garbage: Garbage) -> bool {
        tables.n_freeing += 1;
        drop(tables);
        garbage.dying.iter().for_each(Dying::synchronize);
        // The driver did not say that a device is done with these.
        let busy: Vec<Dying> = garbage.dying.extract_if(.., |dying| dying.is_busy()).collect();
        let has_travelled = garbage.dying.iter().any(|dying| dying.slab().is_stored());
        drop(garbage);
        let is_refused = refused::offer_again();
        let mut tables = self.tables();
        tables.n_freeing -= 1;
        tables.dying.extend(busy);
        if has_travelled {
            tables.gave_up_at = Some(Instant::now());
        }
        let is_any_dying = !tables.dying.is_empty();
        drop(tables);
        self.looked.notify_all();
        is_refused || is_any_dying
    }

    /// Lets go of what is done by now, and gives up free slabs beyond `keep_bytes`.
    pub(crate) fn trim(&'static self, keep_bytes: usize) {
        let (mut garbage, mut tables) = self.clean_up();
        tables.settle(&mut garbage);
        tables.trim(keep_bytes);
        // A slab that others have open is freed when they have closed it, which may take long. It is not
        // waited for.
        garbage.dying = tables.dying.extract_if(.., |dying| dying.is_closed_elsewhere()).collect();
        tables.drop_unused(0, &mut garbage);
        if self.throw_away(tables, garbage) {
            self.stir();
        }
    }

    pub(crate) fn collect(&'static self) {
        if self.housekeep() == Some(TICK) {
            self.stir();
        }
    }

    pub(crate) fn set_limits(&self, limits: CacheLimits) {
        self.tables().limits = limits;
    }

    pub(crate) fn stats(&self) -> DeviceStats {
        let slabs_unclosed = opened::count_unclosed();
        let tables = self.tables();
        let pools = || tables.pools.values();
        DeviceStats {
            slabs_owned: pools().map(Pool::n_slabs).sum(),
            owned_bytes: pools().map(Pool::len_bytes).sum(),
            free_bytes: pools().map(Pool::free_bytes).sum(),
            slabs_received: tables.slabs.len(),
            slabs_mapped: tables.slabs.values().filter(|slab| slab.is_mapped()).count(),
            tensors: tables.storages.values().filter(|storage| storage.uses().is_held()).count(),
            tensors_leaving: tables.leaving.len(),
            timelines: tables.timelines.len(),
            slabs_poisoned: tables.n_poisoned,
            slabs_lent: tables.storages.values().filter(|storage| storage.slab().is_lent()).count(),
            slabs_dying: tables.dying.len(),
            slabs_leaked: tables.leaked.len(),
            slabs_unclosed,
        }
    }

    /// Called before the process ends: waits until work that other processes know of is done, and that is
    /// noted for them. The service thread does the checks, because the calling thread has lost its
    /// thread-local variables, including the driver's.
    fn finish_last_work(&self) {
        let begin = Instant::now();
        let mut tables = self.tables();
        let n_looks = tables.n_looks;
        while tables.has_thread
            && !tables.own_timelines.is_empty()
            && (tables.is_unfinished || tables.n_looks == n_looks)
        {
            let left = LAST_WORK.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return;
            }
            tables.is_stirred = true;
            self.stirred.notify_one();
            tables = self.looked.wait_timeout(tables, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn too_large(len_bytes: usize) -> CudaTensorError {
    CudaError::TooLarge { len_bytes }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_that_overflows_is_said_to_be_too_large() {
        let refused = part_len_bytes(usize::MAX).ok_or_else(|| too_large(usize::MAX));
        let Err(CudaTensorError::Cuda(error)) = refused else { panic!("no multiple of anything fits") };
        assert_eq!(error, CudaError::TooLarge { len_bytes: usize::MAX });
    }
}
