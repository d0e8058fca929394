//! `cuMemAlloc`, and queries about device addresses.

use std::sync::Arc;

use crate::access::copying;
use crate::address_space::Kind;
use crate::arena::{self, Allocated, Arena, KEPT_BEGIN_BYTES, KEPT_END_BYTES};
use crate::driver::{Driver, Tables};
use crate::memory_file::{self, Purpose};
use crate::{Answer, Status};

/// The allocation or mapping around an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// The first address.
    pub base: u64,
    /// The length in bytes.
    pub len_bytes: usize,
}

/// The answer of `cuPointerGetAttribute`, before it is written in its C type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerAttribute {
    /// A handle, an address or a length.
    Word(u64),
    /// An enumeration or a bit mask.
    Unsigned(u32),
    /// An ordinal.
    Signed(i32),
    /// A truth value, one byte.
    Flag(bool),
}

// Numbers of `CUpointer_attribute`.
const CONTEXT: i32 = 1;
const MEMORY_TYPE: i32 = 2;
const DEVICE_POINTER: i32 = 3;
const BUFFER_ID: i32 = 7;
const DEVICE_ORDINAL: i32 = 9;
const IS_LEGACY_IPC_CAPABLE: i32 = 10;
const RANGE_START: i32 = 11;
const RANGE_LEN: i32 = 12;
const IS_MAPPED: i32 = 13;
const HANDLE_TYPES: i32 = 14;
const MEMPOOL: i32 = 17;

/// The contents of memory that was never used before: anything but zeros.
const FRESH: u8 = 0xa5;

/// `CU_MEMORYTYPE_DEVICE`.
const MEMORY_TYPE_DEVICE: u32 = 2;

impl Driver {
    pub(crate) fn arena(&self, tables: &mut Tables, device: usize) -> Answer<Arc<Arena>> {
        if let Some(arena) = tables.arenas.get(&device) {
            return Ok(Arc::clone(arena));
        }
        let arena =
            Arc::new(Arena::create(&self.settings.world, Purpose::Malloc, self.physical(device), false)?);
        tables.arenas.insert(device, Arc::clone(&arena));
        Ok(arena)
    }

    /// # Errors
    /// OUT_OF_MEMORY if `len_bytes` more exceed the limit in the settings.
    pub(crate) fn check_limit(&self, device: usize, len_bytes: usize) -> Answer {
        let Some(limit) = self.settings.memory_bytes else { return Ok(()) };
        let used = self.used_bytes(device).saturating_add(len_bytes);
        if used > limit { Err(Status::OUT_OF_MEMORY) } else { Ok(()) }
    }

    /// How many bytes of a device all processes together use, as the kernel counts them.
    fn used_bytes(&self, device: usize) -> usize {
        let physical = self.physical(device);
        let files = memory_file::all_of(&self.settings.world);
        let here = files.into_iter().filter(|(label, _)| label.device == physical);
        here.map(|(label, path)| match label.purpose {
            Purpose::Malloc | Purpose::Pool => arena::used_bytes(&path),
            Purpose::Vmm | Purpose::Context => label.len_bytes,
            Purpose::Event => 0,
        })
        .sum()
    }

    /// `cuMemAlloc`.
    pub(crate) fn mem_alloc(&self, len_bytes: usize) -> Answer<u64> {
        let device = self.current()?.device;
        if len_bytes == 0 {
            return Err(Status::INVALID_VALUE);
        }
        self.check_limit(device, len_bytes)?;
        let arena = self.arena(&mut self.tables(), device)?;
        let allocated = arena.allocate(len_bytes)?;
        let slot = allocated.slot;
        self.add_allocated(&allocated, len_bytes, device, Kind::Malloc { arena, slot })
    }

    /// Makes device memory of an allocation. It is filled with a byte other than zero, so that callers do not
    /// rely on zeros.
    pub(crate) fn add_allocated(
        &self,
        allocated: &Allocated,
        len_bytes: usize,
        device: usize,
        kind: Kind,
    ) -> Answer<u64> {
        let (Kind::Malloc { arena, .. } | Kind::Pool { arena, .. }) = &kind else {
            return Err(Status::UNKNOWN);
        };
        let memory = Arc::clone(arena.payload().ok_or(Status::UNKNOWN)?);
        let mut space = self.space();
        space.add(allocated.address, len_bytes, device, kind, memory);
        let begin = 0..len_bytes.min(KEPT_BEGIN_BYTES);
        let end = len_bytes.saturating_sub(KEPT_END_BYTES).max(begin.end)..len_bytes;
        for part in [begin, end] {
            let part = part.start.max(allocated.fresh.start)..part.end;
            if !part.is_empty() {
                space.fill(allocated.address + part.start as u64, &[FRESH], part.len(), copying(device))?;
            }
        }
        Ok(allocated.address)
    }

    /// `cuMemFree`: waits for the context, then frees. Null is allowed.
    pub(crate) fn mem_free(&self, address: u64) -> Answer {
        self.ctx_synchronize()?;
        if address == 0 {
            return Ok(());
        }
        let region = {
            let mut space = self.space();
            let region = space.at(address).ok_or(Status::INVALID_VALUE)?;
            if matches!(region.kind, Kind::Ipc { .. } | Kind::Vmm { .. }) {
                return Err(Status::INVALID_VALUE);
            }
            // Before the memory is free: another thread may get the same address at once.
            space.remove(address)
        };
        match region.map(|region| region.kind) {
            Some(Kind::Malloc { arena, slot } | Kind::Pool { arena, slot, .. }) => self.free_in(&arena, slot),
            _ => Ok(()),
        }
    }

    /// Frees a slot of an arena of this process, and reports if another process still had it open.
    pub(crate) fn free_in(&self, arena: &Arena, slot: u32) -> Answer {
        if arena.free(slot)? {
            self.reports.add("memory was freed by its exporter while another process had it open");
        }
        Ok(())
    }

    /// `cuMemGetInfo`: free and total bytes of the current device.
    pub(crate) fn mem_info(&self) -> Answer<(usize, usize)> {
        let device = self.current()?.device;
        let total = self.total_bytes();
        Ok((total.saturating_sub(self.used_bytes(device)), total))
    }

    /// `cuMemGetAddressRange`.
    pub(crate) fn address_range(&self, address: u64) -> Answer<AddressRange> {
        self.current()?;
        let space = self.space();
        let region = space.around(address).ok_or(Status::NOT_FOUND)?;
        Ok(AddressRange { base: region.base, len_bytes: region.len_bytes })
    }

    /// `cuPointerGetAttribute`.
    pub(crate) fn pointer_attribute(&self, attribute: i32, address: u64) -> Answer<PointerAttribute> {
        self.check_process()?;
        let tables = self.tables();
        let space = self.space();
        let region = space.around(address).ok_or(Status::INVALID_VALUE)?;
        Ok(match attribute {
            CONTEXT => PointerAttribute::Word(self.contexts[region.device].id as u64),
            MEMORY_TYPE => PointerAttribute::Unsigned(MEMORY_TYPE_DEVICE),
            DEVICE_POINTER => PointerAttribute::Word(address),
            BUFFER_ID => PointerAttribute::Word(region.id),
            DEVICE_ORDINAL => PointerAttribute::Signed(i32::try_from(region.device).unwrap_or(-1)),
            IS_LEGACY_IPC_CAPABLE => PointerAttribute::Flag(matches!(region.kind, Kind::Malloc { .. })),
            RANGE_START => PointerAttribute::Word(region.base),
            RANGE_LEN => PointerAttribute::Word(region.len_bytes as u64),
            IS_MAPPED => PointerAttribute::Flag(true),
            HANDLE_TYPES => PointerAttribute::Unsigned(match &region.kind {
                Kind::Vmm { handle, .. } => {
                    tables.physical.get(handle).map_or(0, |physical| physical.handle_types)
                }
                Kind::Pool { pool, .. } => tables.pools.get(pool).map_or(0, |pool| pool.handle_types),
                _ => 0,
            }),
            MEMPOOL => PointerAttribute::Word(match &region.kind {
                Kind::Pool { pool, .. } | Kind::PoolImport { pool, .. } => *pool as u64,
                _ => 0,
            }),
            _ => return Err(Status::INVALID_VALUE),
        })
    }
}
