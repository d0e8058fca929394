//! Memory of other processes that this process has opened, by legacy handles or through pools. Each is opened
//! once, and counted.
//!
//! Some drivers refuse to open a handle twice. And if a pool's pointer is imported twice, freeing one import
//! invalidates the other. So there is one table for the process, whichever domain a handle came through.
//! Opening and closing happen under the lock of the handle's entry, so that no thread opens what another is
//! closing. Memory that could not be closed counts as open: its owner is not told that this process no longer
//! needs it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tensorferry_storage::Heap;

use crate::capture::Relaxed;
use crate::context::PrimaryContext;
use crate::control::SlabControl;
use crate::error::CudaError;
use crate::exportable_pool::free_in;
use crate::raw::{IPC_HANDLE_LEN_BYTES, IpcHandle};
use crate::refused;
use crate::strategy::CudaStrategy;
use crate::stream::Stream;
use crate::tensor_error::{CudaTensorError, Result};

/// Context; the imported pool that it comes through, or 0 for a legacy handle; handle. A handle that a pool
/// exports means something only together with the pool: another pool may export the same bytes.
type Key = (usize, usize, [u8; IPC_HANDLE_LEN_BYTES]);

/// An address of this process for memory of another one. Dropping the last one closes the memory, before the
/// other process is told that this one does not need it any more.
#[derive(Debug)]
pub(crate) struct Opened {
    context: PrimaryContext,
    pool: Option<Arc<ImportedPool>>,
    key: Key,
    place: Arc<Place>,
    /// 0 if it is not open.
    address: u64,
    /// While this process holds the slab's block, the owner must not free the memory.
    slab: SlabControl,
}

/// The table's entry for a handle.
#[derive(Debug, Default)]
struct Place {
    /// The address, and how often it is in use; `None` while it is not open.
    open: Mutex<Option<(u64, usize)>>,
}

static OPENED: Mutex<Option<HashMap<Key, Arc<Place>>>> = Mutex::new(None);

/// Slabs of which it cannot be known whether they are closed.
static UNCLOSED: Mutex<Vec<SlabControl>> = Mutex::new(Vec::new());

/// The number of slabs that could not be closed. A slab whose owner has ended is forgotten: there is no
/// process left to free it.
pub(crate) fn count_unclosed() -> usize {
    let mut unclosed = lock(&UNCLOSED);
    unclosed.retain(|slab| !slab.is_owner_gone());
    unclosed.len()
}

impl Place {
    /// The entry for a handle, with one more reference.
    fn of(key: Key) -> Arc<Self> {
        Arc::clone(lock(&OPENED).get_or_insert_default().entry(key).or_default())
    }

    /// Drops a reference to the entry, and removes the entry with the last one.
    fn leave(self: Arc<Self>, key: &Key) {
        let mut opened = lock(&OPENED);
        // Dropped while the table is locked, so that of two threads that leave at once one is the last.
        drop(self);
        let opened = opened.get_or_insert_default();
        if opened.get(key).is_some_and(|place| Arc::strong_count(place) == 1) {
            opened.remove(key);
        }
    }
}

impl Opened {
    /// Opens the memory that the slab names, in the context of its device. Refuses memory that is shorter
    /// than `len_bytes`, the length in the slab's block. Blocks on the descriptor store when a pool is opened
    /// for the first time.
    pub(crate) fn open(
        heap: &Heap,
        slab: &SlabControl,
        (strategy, len_bytes): (CudaStrategy, usize),
        context: &PrimaryContext,
    ) -> Result<Self> {
        let pool = match strategy {
            CudaStrategy::Pool => Some(ImportedPool::of(heap, slab, context)?),
            _ => None,
        };
        let handle = slab.handle();
        let key = (context.handle(), pool.as_ref().map_or(0, |pool| pool.handle), handle.0);
        let (context, place, slab) = (context.clone(), Place::of(key), slab.clone());
        let mut this = Self { context, pool, key, place, address: 0, slab };
        this.address = this.open_once(handle)?;
        if this.room_bytes().is_some_and(|room_bytes| room_bytes < len_bytes) {
            return Err(CudaTensorError::BadMessage {
                what: "a slab is longer than the memory that it names",
            });
        }
        Ok(this)
    }

    /// How much memory follows the address; `None` if the driver does not tell this for opened memory.
    fn room_bytes(&self) -> Option<usize> {
        let _current = self.context.make_current().ok()?;
        let (base, len_bytes) = self.context.device().driver().address_range(self.address).ok()?;
        len_bytes.checked_sub(usize::try_from(self.address.checked_sub(base)?).ok()?)
    }

    fn open_once(&self, handle: IpcHandle) -> Result<u64, CudaError> {
        let mut open = lock(&self.place.open);
        if let Some((address, n_opened)) = &mut *open {
            *n_opened += 1;
            return Ok(*address);
        }
        let driver = self.context.device().driver();
        let _relaxed = Relaxed::begin();
        let _current = self.context.make_current()?;
        let address = match &self.pool {
            Some(pool) => driver.pointer_import(pool.handle, handle)?,
            None => driver.open_memory(handle)?,
        };
        *open = Some((address, 1));
        Ok(address)
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// The context of the memory's device.
    pub(crate) fn context(&self) -> &PrimaryContext {
        &self.context
    }

    /// The imported pool that it came through.
    pub(crate) fn pool(&self) -> Option<usize> {
        self.pool.as_ref().map(|pool| pool.handle)
    }

    /// Closes the memory if this is its last use.
    ///
    /// # Errors
    /// The driver's error. Unless that is about a capture, it cannot be known whether the memory is closed.
    fn close(&self) -> Result<(), CudaError> {
        // Opening has failed, so there is nothing to close.
        if self.address == 0 {
            return Ok(());
        }
        let mut open = lock(&self.place.open);
        if let Some((_, n_opened)) = &mut *open
            && *n_opened > 1
        {
            *n_opened -= 1;
            return Ok(());
        }
        let answer = match &self.pool {
            Some(pool) => free_in(&pool.stream, self.address),
            None => {
                let _relaxed = Relaxed::begin();
                let current = self.context.make_current();
                current.and_then(|_current| self.context.device().driver().close_memory(self.address))
            }
        };
        if !answer.as_ref().is_err_and(CudaError::is_about_capture) {
            *open = None;
        }
        answer
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        match self.close() {
            Ok(()) => {}
            // It is still open, and is closed when no stream captures any more.
            Err(error) if error.is_about_capture() => refused::keep(Self {
                context: self.context.clone(),
                pool: self.pool.clone(),
                key: self.key,
                place: Arc::clone(&self.place),
                address: self.address,
                slab: self.slab.clone(),
            }),
            Err(_) => lock(&UNCLOSED).push(self.slab.clone()),
        }
        std::mem::take(&mut self.place).leave(&self.key);
    }
}

/// A pool of another process, imported once.
#[derive(Debug)]
struct ImportedPool {
    handle: usize,
    /// Used only for freeing.
    stream: Stream,
}

/// Context, domain, owner, name. A name may be used again, but not by the same owner while anything of the
/// pool is open.
type PoolKey = (usize, u64, u64, u64);

static POOLS: Mutex<Option<HashMap<PoolKey, Weak<ImportedPool>>>> = Mutex::new(None);

impl ImportedPool {
    fn of(heap: &Heap, slab: &SlabControl, context: &PrimaryContext) -> Result<Arc<Self>> {
        let key = (context.handle(), heap.domain().id(), slab.owner_word(), slab.pool_name());
        let find = || lock(&POOLS).get_or_insert_default().get(&key).and_then(Weak::upgrade);
        if let Some(pool) = find() {
            return Ok(pool);
        }
        // Not under the lock, because this may wait for the descriptor store.
        let fd = heap.domain().fetch_fd(slab.pool_name())?;
        let stream = Stream::create(context)?;
        let mut pools = lock(&POOLS);
        let pools = pools.get_or_insert_default();
        if let Some(pool) = pools.get(&key).and_then(Weak::upgrade) {
            return Ok(pool);
        }
        pools.retain(|_, pool| pool.strong_count() > 0);
        let handle = context.device().driver().pool_import(std::os::fd::AsFd::as_fd(&fd))?;
        let pool = Arc::new(Self { handle, stream });
        pools.insert(key, Arc::downgrade(&pool));
        Ok(pool)
    }
}

impl Drop for ImportedPool {
    fn drop(&mut self) {
        let _ = self.stream.context().device().driver().pool_destroy(self.handle);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_goes_with_the_last_of_those_who_leave_it_at_once() {
        let key = (1, 2, [3; IPC_HANDLE_LEN_BYTES]);
        let (one, other) = (Place::of(key), Place::of(key));
        assert!(Arc::ptr_eq(&one, &other));
        one.leave(&key);
        assert!(lock(&OPENED).as_ref().is_some_and(|opened| opened.contains_key(&key)));
        other.leave(&key);
        assert!(lock(&OPENED).as_ref().is_some_and(|opened| !opened.contains_key(&key)));
    }
}
