//! The device addresses of one driver: which memory lies where, which devices may access it, and which rules
//! were broken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::arena::{Arena, Import};
use crate::mapping::Mapping;
use crate::vmm::AccessFlags;
use crate::{Answer, Status};

/// A device by its ordinal in this process.
pub(crate) type Ordinal = usize;

/// The kind of a range of device addresses, by the function that made it.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// `cuMemAlloc`.
    Malloc { arena: Arc<Arena>, slot: u32 },
    /// `cuMemAllocAsync`, `cuMemAllocFromPoolAsync`.
    Pool { pool: usize, arena: Arc<Arena>, slot: u32 },
    /// `cuIpcOpenMemHandle`.
    Ipc { import: Arc<Import>, n_opened: u32 },
    /// `cuMemPoolImportPointer`.
    PoolImport { pool: usize, import: Arc<Import> },
    /// `cuMemMap`.
    Vmm { handle: u64, access: Vec<(Ordinal, AccessFlags)> },
}

/// A range of device addresses.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) base: u64,
    pub(crate) len_bytes: usize,
    pub(crate) device: Ordinal,
    pub(crate) kind: Kind,
    /// Unique among all regions that were ever at this address.
    pub(crate) id: u64,
    /// Stays mapped as long as the region exists.
    pub(crate) memory: Arc<Mapping>,
}

impl Region {
    pub(crate) fn end(&self) -> u64 {
        self.base + self.len_bytes as u64
    }
}

/// An access to memory: by which device, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    pub(crate) device: Ordinal,
    pub(crate) is_write: bool,
    /// A kernel reaches memory of other devices only as a peer; the driver stages copies.
    pub(crate) is_kernel: bool,
}

/// The rules that were broken, for tests to read.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    is_strict: bool,
    all: Mutex<Vec<String>>,
}

impl Reports {
    pub(crate) fn new(is_strict: bool) -> Self {
        Self { is_strict, all: Mutex::default() }
    }

    #[expect(clippy::print_stderr, reason = "a broken rule must be seen in the output of the test")]
    pub(crate) fn add(&self, what: &str) {
        eprintln!("sim-cuda: rule broken in process {}: {what}", std::process::id());
        self.all.lock().unwrap_or_else(PoisonError::into_inner).push(what.to_owned());
        if self.is_strict {
            std::process::abort();
        }
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The device addresses of one driver. Code that reads or writes device memory holds its lock.
#[derive(Debug, Default)]
pub(crate) struct AddressSpace {
    regions: BTreeMap<u64, Region>,
    /// (device, device whose memory it reaches).
    pub(crate) peers: BTreeSet<(Ordinal, Ordinal)>,
    /// (pool, device): devices that reach the memory of a pool on another device.
    pub(crate) pool_users: BTreeSet<(usize, Ordinal)>,
    pub(crate) reports: Arc<Reports>,
    next_id: u64,
}

/// The address space as streams share it.
pub(crate) type Shared = Arc<Mutex<AddressSpace>>;

pub(crate) fn lock(space: &Shared) -> MutexGuard<'_, AddressSpace> {
    space.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AddressSpace {
    pub(crate) fn new(reports: Arc<Reports>) -> Self {
        Self { reports, ..Self::default() }
    }

    pub(crate) fn add(
        &mut self,
        base: u64,
        len_bytes: usize,
        device: Ordinal,
        kind: Kind,
        memory: Arc<Mapping>,
    ) {
        self.next_id += 1;
        self.regions.insert(base, Region { base, len_bytes, device, kind, id: self.next_id, memory });
    }

    /// The region that begins at `base`.
    pub(crate) fn at(&self, base: u64) -> Option<&Region> {
        self.regions.get(&base)
    }

    pub(crate) fn at_mut(&mut self, base: u64) -> Option<&mut Region> {
        self.regions.get_mut(&base)
    }

    /// The region that contains the address.
    pub(crate) fn around(&self, address: u64) -> Option<&Region> {
        self.regions
            .range(..=address)
            .next_back()
            .map(|(_, region)| region)
            .filter(|region| address < region.end())
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Region> {
        self.regions.values()
    }

    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Region> {
        self.regions.values_mut()
    }

    /// The bases of the regions that overlap a range.
    pub(crate) fn touching(&self, begin: u64, len_bytes: usize) -> Vec<u64> {
        let end = begin.saturating_add(len_bytes as u64);
        let inside = self.regions.range(..end).rev().take_while(|(_, region)| region.end() > begin);
        let mut bases: Vec<u64> = inside.map(|(&base, _)| base).collect();
        bases.reverse();
        bases
    }

    pub(crate) fn remove(&mut self, base: u64) -> Option<Region> {
        self.regions.remove(&base)
    }

    /// Removes all regions that belong to a context of this device.
    pub(crate) fn remove_of_context(&mut self, device: Ordinal) -> Vec<Region> {
        let is_of = |region: &Region| {
            region.device == device && matches!(region.kind, Kind::Malloc { .. } | Kind::Ipc { .. })
        };
        let bases: Vec<u64> = self.all().filter(|region| is_of(region)).map(|region| region.base).collect();
        bases.into_iter().filter_map(|base| self.regions.remove(&base)).collect()
    }

    /// Checks that the whole range is device memory that may be accessed this way.
    ///
    /// # Errors
    /// INVALID_VALUE if part of the range is no device memory; ILLEGAL_ADDRESS if part of it may not be
    /// accessed.
    pub(crate) fn check(&self, begin: u64, len_bytes: usize, touch: Touch) -> Answer {
        let end = begin.checked_add(len_bytes as u64).ok_or(Status::INVALID_VALUE)?;
        let mut at = begin;
        loop {
            let region = self.around(at).ok_or(Status::INVALID_VALUE)?;
            self.check_region(region, touch)?;
            at = region.end();
            if at >= end {
                return Ok(());
            }
            // A range may cover several mappings, but not several allocations that happen to be adjacent.
            let is_mapped = |region: &Region| matches!(region.kind, Kind::Vmm { .. });
            if !is_mapped(region) || !self.around(at).is_some_and(is_mapped) {
                return Err(Status::INVALID_VALUE);
            }
        }
    }

    fn check_region(&self, region: &Region, touch: Touch) -> Answer {
        match &region.kind {
            Kind::Vmm { access, .. } => {
                let granted =
                    access.iter().find(|(device, _)| *device == touch.device).map(|(_, flags)| *flags);
                let is_enough = match granted {
                    Some(AccessFlags::ReadWrite) => true,
                    Some(AccessFlags::Read) => !touch.is_write,
                    Some(AccessFlags::None) | None => false,
                };
                return if is_enough { Ok(()) } else { Err(Status::ILLEGAL_ADDRESS) };
            }
            Kind::Ipc { import, .. } | Kind::PoolImport { import, .. } => {
                let broken = if !import.token.owner.is_alive() {
                    Some("imported memory was used after its exporter died")
                } else if import.is_freed() {
                    Some("imported memory was used after its exporter freed it")
                } else {
                    None
                };
                if let Some(broken) = broken {
                    // NVIDIA calls it undefined. The memory is there as long as it is open.
                    self.reports.add(broken);
                }
            }
            Kind::Malloc { .. } | Kind::Pool { .. } => (),
        }
        let is_reachable = region.device == touch.device
            || match &region.kind {
                // Peer access between contexts does not apply to pools.
                Kind::Pool { pool, .. } | Kind::PoolImport { pool, .. } => {
                    self.pool_users.contains(&(*pool, touch.device))
                }
                _ => self.peers.contains(&(touch.device, region.device)),
            };
        if touch.is_kernel && !is_reachable { Err(Status::ILLEGAL_ADDRESS) } else { Ok(()) }
    }
}
