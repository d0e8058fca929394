//! Page-locked memory of the host.

use crate::access::HostMemory;
use crate::driver::Driver;
use crate::mapping::Mapping;
use crate::{Answer, Status};

/// A page-locked range.
#[derive(Debug)]
pub(crate) struct Pinned {
    pub(crate) len_bytes: usize,
    /// `None` when the caller's own memory was registered.
    memory: Option<Mapping>,
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
        self.tables().pinned.insert(address, Pinned { len_bytes, memory: Some(memory) });
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

    /// `cuMemHostRegister`.
    pub(crate) fn host_register(&self, memory: HostMemory) -> Answer {
        self.current()?;
        if memory.len_bytes == 0 {
            return Err(Status::INVALID_VALUE);
        }
        let mut tables = self.tables();
        let (begin, end) = (memory.address(), memory.address() + memory.len_bytes as u64);
        let overlaps =
            |(&base, pinned): (&u64, &Pinned)| base < end && begin < base + pinned.len_bytes as u64;
        if tables.pinned.iter().any(overlaps) {
            return Err(Status::HOST_MEMORY_ALREADY_REGISTERED);
        }
        tables.pinned.insert(begin, Pinned { len_bytes: memory.len_bytes, memory: None });
        Ok(())
    }

    /// `cuMemHostUnregister`.
    pub(crate) fn host_unregister(&self, address: u64) -> Answer {
        self.ctx_synchronize()?;
        let mut tables = self.tables();
        let is_registered = tables.pinned.get(&address).is_some_and(|pinned| pinned.memory.is_none());
        if !is_registered {
            return Err(Status::HOST_MEMORY_NOT_REGISTERED);
        }
        tables.pinned.remove(&address);
        Ok(())
    }

    /// Whether copies from and to this range are asynchronous.
    pub(crate) fn is_pinned(&self, memory: HostMemory) -> bool {
        let tables = self.tables();
        let around = tables.pinned.range(..=memory.address()).next_back();
        let end = memory.address() + memory.len_bytes as u64;
        around.is_some_and(|(base, pinned)| end <= base + pinned.len_bytes as u64)
    }
}
