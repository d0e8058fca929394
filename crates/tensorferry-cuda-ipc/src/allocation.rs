//! Memory of `cuMemAlloc`, and of pools: it has an address from the beginning, and goes with its process.

use std::sync::Arc;

use crate::context::PrimaryContext;
use crate::error::Result;
use crate::exportable_pool::ExportablePool;
use crate::raw::IpcHandle;

/// Memory of a device that this process has allocated. Dropping it frees it: no other process may have it open by then.
#[derive(Debug)]
pub(crate) struct Allocation {
    context: PrimaryContext,
    address: u64,
    pool: Option<Arc<ExportablePool>>,
}

impl Allocation {
    /// By `cuMemAlloc`.
    pub(crate) fn create(context: &PrimaryContext, len_bytes: usize) -> Result<Self> {
        let _current = context.make_current()?;
        let address = context.device().driver().allocate(len_bytes)?;
        Ok(Self { context: context.clone(), address, pool: None })
    }

    /// From the pool of this process that can be exported.
    pub(crate) fn create_in_pool(context: &PrimaryContext, len_bytes: usize) -> Result<Self> {
        let pool = ExportablePool::of(context)?;
        let address = pool.allocate(len_bytes)?;
        Ok(Self { context: context.clone(), address, pool: Some(pool) })
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

    /// For memory that is from no pool.
    pub(crate) fn legacy_handle(&self) -> Result<IpcHandle> {
        let _current = self.context.make_current()?;
        self.context.device().driver().memory_handle(self.address)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            let _ = pool.free(self.address);
        } else if let Ok(_current) = self.context.make_current() {
            let _ = self.context.device().driver().free(self.address);
        }
    }
}
