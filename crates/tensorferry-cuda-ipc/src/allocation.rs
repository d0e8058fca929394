//! Memory of `cuMemAlloc` and of pools. It has an address from the beginning, and ends with its process.
//!
//! It is freed on no stream of the program or of another library: if such a stream captured, the free would
//! be in its graph.

use std::sync::Arc;

use crate::capture::Relaxed;
use crate::context::PrimaryContext;
use crate::error::Result;
use crate::exportable_pool::ExportablePool;
use crate::raw::IpcHandle;
use crate::refused;

/// Device memory that this process has allocated. Dropping it frees it; no other process may have it open by
/// then.
#[derive(Debug)]
pub(crate) struct Allocation {
    context: PrimaryContext,
    address: u64,
    pool: Option<Arc<ExportablePool>>,
}

impl Allocation {
    /// Allocates by `cuMemAlloc`.
    pub(crate) fn create(context: &PrimaryContext, len_bytes: usize) -> Result<Self> {
        let _relaxed = Relaxed::begin();
        let _current = context.make_current()?;
        let address = context.device().driver().allocate(len_bytes)?;
        Ok(Self { context: context.clone(), address, pool: None })
    }

    /// Allocates from the exportable pool of this process.
    pub(crate) fn create_in_pool(context: &PrimaryContext, len_bytes: usize) -> Result<Self> {
        let pool = ExportablePool::of(context)?;
        let address = pool.allocate(len_bytes)?;
        Ok(Self { context: context.clone(), address, pool: Some(pool) })
    }

    /// Memory that another library has allocated and gives away.
    pub(crate) fn given(context: &PrimaryContext, address: u64, is_of_pool: bool) -> Self {
        // Without a pool of this crate, cuMemFree frees it as well.
        let pool = is_of_pool.then(|| ExportablePool::of(context).ok()).flatten();
        Self { context: context.clone(), address, pool }
    }

    pub(crate) fn context(&self) -> &PrimaryContext {
        &self.context
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// The pool that it is from.
    pub(crate) fn pool(&self) -> Option<&Arc<ExportablePool>> {
        self.pool.as_ref()
    }

    /// The legacy handle. For memory that is from no pool.
    pub(crate) fn legacy_handle(&self) -> Result<IpcHandle> {
        let _current = self.context.make_current()?;
        self.context.device().driver().memory_handle(self.address)
    }

    fn free(&self) -> Result<()> {
        if let Some(pool) = &self.pool {
            return pool.free(self.address);
        }
        let _relaxed = Relaxed::begin();
        let _current = self.context.make_current()?;
        self.context.device().driver().free(self.address)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.free().is_err_and(|error| error.is_about_capture()) {
            let (context, pool) = (self.context.clone(), self.pool.clone());
            refused::keep(Self { context, address: self.address, pool });
        }
    }
}
