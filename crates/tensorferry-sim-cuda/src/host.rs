//! Page-locked memory of the host.

use std::ops::Range;
use std::sync::Arc;

use crate::access::HostMemory;
use crate::driver::Driver;
use crate::mapping::Mapping;
use crate::{Answer, Status};

const PAGE_BYTES: u64 = 4096;

/// Page-locked memory.
#[derive(Debug)]
pub(crate) struct Pinned {
    range: Range<u64>,
    /// `None` if the caller registered memory of its own.
    memory: Option<Mapping>,
    /// Each copy that is not done has a clone.
    in_use: Arc<()>,
}

fn range_of(address: u64, len_bytes: usize) -> Range<u64> {
    address..address.saturating_add(len_bytes as u64)
}

/// The pages that contain a range. Everything else in these pages is page-locked with the range.
fn pages_of(range: &Range<u64>) -> Range<u64> {
    let end = range.end.checked_next_multiple_of(PAGE_BYTES).unwrap_or(range.end);
    range.start - range.start % PAGE_BYTES..end
}

impl Driver {
    /// `cuMemHostAlloc`.
    pub(crate) fn host_alloc(&self, len_bytes: usize) -> Answer<u64> {
        self.current()?;
        if len_bytes == 0 {
            return Err(Status::INVALID_VALUE);
        }
        let memory = Mapping::private(len_bytes)?;
        let address = memory.address();
        let range = range_of(address, len_bytes);
        self.tables().pinned.insert(address, Pinned { range, memory: Some(memory), in_use: Arc::default() });
        Ok(address)
    }

    /// `cuMemFreeHost`.
    pub(crate) fn host_free(&self, address: u64) -> Answer {
        self.ctx_synchronize()?;
        let mut tables = self.tables();
        let is_ours = tables.pinned.get(&address).is_some_and(|pinned| pinned.memory.is_some());
        if !is_ours {
            return Err(Status::INVALID_VALUE);
        }
        tables.pinned.remove(&address);
        Ok(())
    }

    /// `cuMemHostRegister`. Ranges may share a page, and may not overlap.
    pub(crate) fn host_register(&self, memory: HostMemory) -> Answer {
        self.current()?;
        if memory.len_bytes == 0 {
            return Err(Status::INVALID_VALUE);
        }
        let range = range_of(memory.address(), memory.len_bytes);
        let mut tables = self.tables();
        let mut pinned = tables.pinned.values();
        if pinned.any(|pinned| pinned.range.start < range.end && range.start < pinned.range.end) {
            return Err(Status::HOST_MEMORY_ALREADY_REGISTERED);
        }
        tables.pinned.insert(memory.address(), Pinned { range, memory: None, in_use: Arc::default() });
        Ok(())
    }

    /// `cuMemHostUnregister`.
    pub(crate) fn host_unregister(&self, address: u64) -> Answer {
        let is_registered = |pinned: &&Pinned| pinned.memory.is_none();
        let in_use =
            self.tables().pinned.get(&address).filter(is_registered).map(|p| Arc::downgrade(&p.in_use));
        let in_use = in_use.ok_or(Status::HOST_MEMORY_NOT_REGISTERED)?;
        if in_use.strong_count() > 1 {
            self.reports.add("host memory was unregistered under a copy");
        }
        self.ctx_synchronize()?;
        self.tables().pinned.remove(&address);
        Ok(())
    }

    /// `Some` if all of this range was registered, or allocated, at once. Each operation on it keeps a clone
    /// of the returned `Arc` until it is done.
    pub(crate) fn registered_around(&self, memory: HostMemory) -> Option<Arc<()>> {
        let range = range_of(memory.address(), memory.len_bytes);
        let tables = self.tables();
        let mut pinned = tables.pinned.values();
        let around =
            pinned.find(|pinned| pinned.range.start <= range.start && range.end <= pinned.range.end)?;
        Some(Arc::clone(&around.in_use))
    }

    /// `Some` if copies from and to this range are asynchronous. Each such copy keeps a clone of the returned
    /// `Arc` until it is done.
    pub(crate) fn pinned_around(&self, memory: HostMemory) -> Option<Arc<()>> {
        let range = range_of(memory.address(), memory.len_bytes);
        let tables = self.tables();
        let mut pinned = tables.pinned.values();
        let around = pinned.find(|pinned| {
            let pages = pages_of(&pinned.range);
            pages.start <= range.start && range.end <= pages.end
        })?;
        Some(Arc::clone(&around.in_use))
    }
}
