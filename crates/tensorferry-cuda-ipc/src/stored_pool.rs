//! Pools as other processes see them: a block of the domain. The descriptor store has the pool's descriptor
//! under the name of that block.
//!
//! The driver exports a pointer only "from an already shared memory pool" (`cuMemPoolExportPointer` in the
//! CUDA reference): before the pool itself was exported once, that is an invalid value. So whoever wants the
//! pointer asks for the entry first.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tensorferry_storage::Heap;

use crate::control::PoolControl;
use crate::driver::Driver;
use crate::tensor_error::{CudaTensorError, Result};

/// A pool of this process, made by this crate or by another library, whose memory is shared in a domain.
#[derive(Debug)]
pub(crate) struct StoredPool {
    driver: Driver,
    handle: usize,
    control: PoolControl,
    /// The pool's descriptor, until it is on its way to the descriptor store.
    fd: Mutex<Option<OwnedFd>>,
    /// Whether the descriptor store has it.
    is_stored: AtomicBool,
}

type Pools = HashMap<(u64, usize), Weak<StoredPool>>;

/// By domain and handle.
static POOLS: Mutex<Option<Pools>> = Mutex::new(None);

impl StoredPool {
    /// The entry for this pool, made on first use; pointers into the pool can be exported from then on. The
    /// entry lives as long as memory from the pool is shared.
    pub(crate) fn of(heap: &Heap, driver: &Driver, handle: usize) -> Result<Arc<Self>> {
        let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        let pools = pools.get_or_insert_default();
        pools.retain(|_, pool| pool.strong_count() > 0);
        let key = (heap.domain().id(), handle);
        if let Some(pool) = pools.get(&key).and_then(Weak::upgrade) {
            return Ok(pool);
        }
        let control = PoolControl::create(heap)?;
        let fd = Mutex::new(Some(driver.pool_export(handle)?));
        let is_stored = AtomicBool::new(false);
        let pool = Arc::new(Self { driver: driver.clone(), handle, control, fd, is_stored });
        pools.insert(key, Arc::downgrade(&pool));
        Ok(pool)
    }

    pub(crate) fn handle(&self) -> usize {
        self.handle
    }

    /// The pool's name in the descriptor store.
    pub(crate) fn name(&self) -> u64 {
        self.control.name()
    }

    /// Makes sure that the descriptor store has the pool's descriptor. If two threads come here at once, both
    /// store it, which does no harm.
    pub(crate) fn store(&self) -> Result<()> {
        if self.is_stored.load(Ordering::Acquire) {
            return Ok(());
        }
        let heap = self.control.0.heap();
        let heap = heap.ok_or(CudaTensorError::BadMessage { what: "a pool without a block" })?;
        let first = self.fd.lock().unwrap_or_else(PoisonError::into_inner).take();
        let fd = first.map_or_else(|| self.driver.pool_export(self.handle), Ok)?;
        heap.domain().store_fd(self.name(), fd)?;
        self.is_stored.store(true, Ordering::Release);
        Ok(())
    }
}
