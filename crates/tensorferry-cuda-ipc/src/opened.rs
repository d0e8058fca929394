//! Memory of other processes that this one has opened, by legacy handles or through pools: each once, and counted.
//!
//! Some drivers refuse to open a handle twice, and a pool's pointer that was imported twice is gone with the first of the
//! two that is freed. So there is one table for the process, whichever domain a handle came through. What is opened and
//! closed is so under the lock of its own place in the table, so that nobody opens what is being closed. What could not be
//! closed counts as open: its owner is not told that this process does not need it any more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tensorferry_storage::Heap;

use crate::context::PrimaryContext;
use crate::control::SlabControl;
use crate::error::CudaError;
use crate::exportable_pool::free_in;
use crate::raw::{IPC_HANDLE_LEN_BYTES, IpcHandle};
use crate::refused;
use crate::strategy::CudaStrategy;
use crate::stream::Stream;
use crate::tensor_error::{CudaTensorError, Result};

/// Context; the pool here that it comes through, 0 for a legacy handle; handle. What a pool exports means something only
/// together with the pool: another one may export the same.
type Key = (usize, usize, [u8; IPC_HANDLE_LEN_BYTES]);

/// An address of this process for memory of another one. The last one that goes closes it: before that process is told that
/// this one does not need the memory any more.
#[derive(Debug)]
pub(crate) struct Opened {
    context: PrimaryContext,
    pool: Option<Arc<ImportedPool>>,
    key: Key,
    place: Arc<Place>,
    /// 0 where it is not open.
    address: u64,
    /// As long as this process has it, the owner of the memory must not free it.
    slab: SlabControl,
}

/// The place of a handle in the table.
#[derive(Debug, Default)]
struct Place {
    /// The address and how many there are; `None` while it is not open.
    open: Mutex<Option<(u64, usize)>>,
}

static OPENED: Mutex<Option<HashMap<Key, Arc<Place>>>> = Mutex::new(None);

/// Slabs of which it cannot be known whether they are closed.
static UNCLOSED: Mutex<Vec<SlabControl>> = Mutex::new(Vec::new());

/// How many slabs could not be closed. Those whose owners are gone are forgotten: nobody will free them.
pub(crate) fn count_unclosed() -> usize {
    let mut unclosed = lock(&UNCLOSED);
    unclosed.retain(|slab| !slab.is_owner_gone());
    unclosed.len()
}

impl Place {
    /// The place of a handle, for one more.
    fn of(key: Key) -> Arc<Self> {
        Arc::clone(lock(&OPENED).get_or_insert_default().entry(key).or_default())
    }

    /// One less: with the last one the place goes.
    fn leave(self: Arc<Self>, key: &Key) {
        let mut opened = lock(&OPENED);
        // While the table is locked, so that of two who leave at once one is the last.
        drop(self);
        let opened = opened.get_or_insert_default();
        if opened.get(key).is_some_and(|place| Arc::strong_count(place) == 1) {
            opened.remove(key);
        }
    }
}

impl Opened {
    /// Opens what the slab names in the context of its device, and refuses less memory than `len_bytes`, which the slab says
    /// that it has. Blocks for the descriptor store where a pool is opened the first time.
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

    /// How much memory lies behind the address; `None` where the driver does not tell of memory that was opened.
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

    /// Of the memory's device.
    pub(crate) fn context(&self) -> &PrimaryContext {
        &self.context
    }

    /// The pool here that it came through.
    pub(crate) fn pool(&self) -> Option<usize> {
        self.pool.as_ref().map(|pool| pool.handle)
    }

    /// Closes it if it is the last one.
    ///
    /// # Errors
    /// What the driver says. Unless that is about a capture, it cannot be known whether it is closed.
    fn close(&self) -> Result<(), CudaError> {
        // Nothing was opened when opening has failed.
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
            // It is open still, and closed when nothing captures any more.
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
    /// For freeing, and nothing else.
    stream: Stream,
}

/// Context, domain, owner, name. A name may be used again, but not by the same owner while anything of the pool is open.
type PoolKey = (usize, u64, u64, u64);

static POOLS: Mutex<Option<HashMap<PoolKey, Weak<ImportedPool>>>> = Mutex::new(None);

impl ImportedPool {
    fn of(heap: &Heap, slab: &SlabControl, context: &PrimaryContext) -> Result<Arc<Self>> {
        let key = (context.handle(), heap.domain().id(), slab.owner_word(), slab.pool_name());
        let find = || lock(&POOLS).get_or_insert_default().get(&key).and_then(Weak::upgrade);
        if let Some(pool) = find() {
            return Ok(pool);
        }
        // Not under the lock: the descriptor store may have to be waited for.
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
