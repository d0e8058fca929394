//! A memory pool whose memory can leave the process.
//!
//! By default a driver that finds no free memory in a pool may take what another stream has yet to free, and have the allocating
//! stream wait for that (`CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES` in the CUDA reference). The dependency is one between
//! streams of this process: it says nothing about what another process does with the memory, and whoever allocates would wait
//! here for work that has nothing to do with it, such as a stream of cudarc's ([`use_exportable_pool`]) that itself waits for
//! another process. So it is switched off, and the pool grows instead.

use std::sync::{Arc, Mutex, PoisonError};

use crate::capture::Relaxed;
use crate::context::PrimaryContext;
use crate::error::Result;
use crate::raw::POOL_ALLOWS_INTERNAL_DEPENDENCIES;
use crate::stream::Stream;

/// The pool of this process for one context. It stays as long as the process does.
#[derive(Debug)]
pub(crate) struct ExportablePool {
    handle: usize,
    /// Nothing else is ever queued here, so nobody waits for anything but allocating and freeing.
    stream: Stream,
}

static POOLS: Mutex<Vec<Arc<ExportablePool>>> = Mutex::new(Vec::new());

/// Makes a pool that can be exported the current one of the context's device: what is allocated from then on in this process
/// with `cuMemAllocAsync`, by cudarc for example, can be shared without a copy ([`CudaTensor::share`](crate::CudaTensor)).
/// Memory that was allocated before stays as it is.
///
/// # Errors
/// What the driver says: not every device has such pools.
pub fn use_exportable_pool(context: &PrimaryContext) -> Result<()> {
    let pool = ExportablePool::of(context)?;
    context.device().driver().pool_make_current(context.device().ordinal(), pool.handle)
}

impl ExportablePool {
    /// The one of this context, made the first time.
    pub(crate) fn of(context: &PrimaryContext) -> Result<Arc<Self>> {
        let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        let known = pools.iter().find(|pool| pool.stream.context().handle() == context.handle());
        if let Some(pool) = known {
            return Ok(Arc::clone(pool));
        }
        let stream = Stream::create(context)?;
        let driver = context.device().driver();
        let handle = driver.pool_create(context.device().ordinal())?;
        if let Err(error) = driver.set_pool_attribute(handle, POOL_ALLOWS_INTERNAL_DEPENDENCIES, 0) {
            let _ = driver.pool_destroy(handle);
            return Err(error);
        }
        let pool = Arc::new(Self { handle, stream });
        pools.push(Arc::clone(&pool));
        Ok(pool)
    }

    pub(crate) fn handle(&self) -> usize {
        self.handle
    }

    /// Memory that is there for every stream when this returns.
    pub(crate) fn allocate(&self, len_bytes: usize) -> Result<u64> {
        let context = self.stream.context();
        let _current = context.make_current()?;
        let driver = context.device().driver();
        let address = driver.pool_allocate(self.handle, len_bytes, self.stream.handle())?;
        match driver.stream_synchronize(self.stream.handle()) {
            Ok(()) => Ok(address),
            Err(error) => {
                let _ = driver.pool_free(address, self.stream.handle());
                Err(error)
            }
        }
    }

    /// Blocks until it is done: then whoever learns of it may free, too.
    pub(crate) fn free(&self, address: u64) -> Result<()> {
        free_in(&self.stream, address)
    }
}

/// Frees memory of a pool, or this process's view of it, in a stream that has nothing else to do.
pub(crate) fn free_in(stream: &Stream, address: u64) -> Result<()> {
    // So that it can be waited for beside a capture.
    let _relaxed = Relaxed::begin();
    let _current = stream.context().make_current()?;
    let driver = stream.context().device().driver();
    driver.pool_free(address, stream.handle())?;
    match driver.stream_synchronize(stream.handle()) {
        // Where it is refused all the same it is queued, and comes to pass. Who was told of an error would free it a second time.
        Err(error) if error.is_about_capture() => Ok(()),
        answer => answer,
    }
}
