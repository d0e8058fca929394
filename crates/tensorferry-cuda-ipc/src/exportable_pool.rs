//! A memory pool whose memory can be shared with other processes.
//!
//! By default, a driver that finds no free memory in a pool may take memory that another stream has yet to
//! free, and make the allocating stream wait for that (`CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES` in
//! the CUDA reference). That dependency is between streams of this process, and says nothing about how
//! another process uses the memory. An allocation would wait for unrelated work: for example for a stream of
//! cudarc ([`use_exportable_pool`]) that itself waits for another process. So the attribute is switched off,
//! and the pool grows instead.

use std::sync::{Arc, Mutex, PoisonError};

use crate::capture::Relaxed;
use crate::context::PrimaryContext;
use crate::driver::Driver;
use crate::error::Result;
use crate::raw::POOL_ALLOWS_INTERNAL_DEPENDENCIES;
use crate::stream::Stream;

/// The exportable pool of this process for one context. It lives as long as the process.
#[derive(Debug)]
pub(crate) struct ExportablePool {
    handle: usize,
    /// Used only to allocate and free, so a wait for it is a wait for nothing else.
    stream: Stream,
}

static POOLS: Mutex<Vec<Arc<ExportablePool>>> = Mutex::new(Vec::new());

/// Makes an exportable pool the current pool of the context's device. What this process allocates from then
/// on with `cuMemAllocAsync`, for example through cudarc, can be shared without a copy (`CudaTensor::share`).
/// Memory that was allocated before stays as it is.
///
/// # Errors
/// The driver's error: not every device has such pools.
pub fn use_exportable_pool(context: &PrimaryContext) -> Result<()> {
    let pool = ExportablePool::of(context)?;
    context.device().driver().pool_make_current(context.device().ordinal(), pool.handle)
}

impl ExportablePool {
    /// The pool of this context, made on first use.
    pub(crate) fn of(context: &PrimaryContext) -> Result<Arc<Self>> {
        let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        let known = pools.iter().find(|pool| pool.stream.context().handle() == context.handle());
        if let Some(pool) = known {
            return Ok(Arc::clone(pool));
        }
        let stream = Stream::create(context)?;
        let driver = context.device().driver();
        let handle = driver.pool_create(context.device().ordinal())?;
        if let Err(error) = prepare(driver, handle) {
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

    /// Allocates memory. Every stream can use it when this returns.
    pub(crate) fn allocate(&self, len_bytes: usize) -> Result<u64> {
        let context = self.stream.context();
        // Allows waiting for the memory while another stream captures.
        let _relaxed = Relaxed::begin();
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

    /// Frees memory. Blocks until that is done, so that a process that learns of it may free its memory too.
    pub(crate) fn free(&self, address: u64) -> Result<()> {
        free_in(&self.stream, address)
    }
}

fn prepare(driver: &Driver, pool: usize) -> Result<()> {
    driver.set_pool_attribute(pool, POOL_ALLOWS_INTERNAL_DEPENDENCIES, 0)?;
    // From now on the driver exports pointers into it: `StoredPool` says why.
    driver.pool_export(pool).map(drop)
}

/// Frees memory of a pool, or this process's view of it, on a stream that has no other work.
pub(crate) fn free_in(stream: &Stream, address: u64) -> Result<()> {
    // Allows waiting for the free while another stream captures.
    let _relaxed = Relaxed::begin();
    let _current = stream.context().make_current()?;
    let driver = stream.context().device().driver();
    driver.pool_free(address, stream.handle())?;
    match driver.stream_synchronize(stream.handle()) {
        // If waiting is refused all the same, the free is queued and will happen. An error here would make
        // the caller free a second time.
        Err(error) if error.is_about_capture() => Ok(()),
        answer => answer,
    }
}
