//! Virtual memory management: physical memory, addresses and access, each separate.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::address_space::{Kind, Ordinal};
use crate::arena::GRANULE_BYTES;
use crate::driver::{Driver, Tables, next_id};
use crate::mapping::Mapping;
use crate::memory_file::{Label, MemoryFile, Purpose};
use crate::{Answer, Status};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`, the only supported handle type.
pub(crate) const POSIX_FILE_DESCRIPTOR: u32 = 1;

/// `CUmemAccess_flags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessFlags {
    /// 0.
    None,
    /// 1.
    Read,
    /// 3.
    ReadWrite,
}

impl AccessFlags {
    pub(crate) fn from_code(code: u32) -> Answer<Self> {
        match code {
            0 => Ok(Self::None),
            1 => Ok(Self::Read),
            3 => Ok(Self::ReadWrite),
            _ => Err(Status::INVALID_VALUE),
        }
    }

    pub(crate) fn code(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Read => 1,
            Self::ReadWrite => 3,
        }
    }
}

/// Physical memory, made in this process or imported.
#[derive(Debug)]
pub(crate) struct Physical {
    file: Arc<MemoryFile>,
    pub(crate) device: Ordinal,
    pub(crate) handle_types: u32,
    is_imported: bool,
    n_handles: u32,
    n_mapped: u32,
}

impl Tables {
    /// A handle that was not released.
    fn physical(&mut self, handle: u64) -> Answer<&mut Physical> {
        self.physical.get_mut(&handle).filter(|physical| physical.n_handles > 0).ok_or(Status::INVALID_VALUE)
    }

    /// Removes memory without handles and mappings.
    fn forget_if_unused(&mut self, handle: u64) {
        if self
            .physical
            .get(&handle)
            .is_some_and(|physical| physical.n_handles == 0 && physical.n_mapped == 0)
        {
            self.physical.remove(&handle);
        }
    }
}

fn is_granular(len_bytes: usize) -> bool {
    len_bytes > 0 && len_bytes.is_multiple_of(GRANULE_BYTES)
}

impl Driver {
    fn check_vmm(&self) -> Answer {
        self.check_process()?;
        if self.settings.has_vmm { Ok(()) } else { Err(Status::NOT_SUPPORTED) }
    }

    pub(crate) fn check_ordinal(&self, device: i32) -> Answer<Ordinal> {
        let ordinal = usize::try_from(device).map_err(|_| Status::INVALID_DEVICE)?;
        if ordinal < self.devices.len() { Ok(ordinal) } else { Err(Status::INVALID_DEVICE) }
    }

    /// `cuMemGetAllocationGranularity`, in bytes.
    pub(crate) fn granularity_bytes(&self, device: i32) -> Answer<usize> {
        self.check_vmm()?;
        self.check_ordinal(device).map(|_| GRANULE_BYTES)
    }

    /// `cuMemCreate`.
    pub(crate) fn vmm_create(&self, len_bytes: usize, device: i32, handle_types: u32) -> Answer<u64> {
        self.check_vmm()?;
        if !is_granular(len_bytes) {
            return Err(Status::INVALID_VALUE);
        }
        let device = self.check_ordinal(device)?;
        if handle_types & !POSIX_FILE_DESCRIPTOR != 0 {
            return Err(Status::NOT_SUPPORTED);
        }
        self.check_limit(device, len_bytes)?;
        let world = self.settings.world.clone();
        let label = Label { world, purpose: Purpose::Vmm, device: self.physical(device), len_bytes };
        Ok(self.add_physical(MemoryFile::create(label, 0)?, device, handle_types, false))
    }

    fn add_physical(&self, file: MemoryFile, device: Ordinal, handle_types: u32, is_imported: bool) -> u64 {
        let handle = next_id() as u64;
        let (file, n_handles, n_mapped) = (Arc::new(file), 1, 0);
        let physical = Physical { file, device, handle_types, is_imported, n_handles, n_mapped };
        self.tables().physical.insert(handle, physical);
        handle
    }

    /// `cuMemRelease`. Mapped memory stays.
    pub(crate) fn vmm_release(&self, handle: u64) -> Answer {
        self.check_vmm()?;
        let mut tables = self.tables();
        tables.physical(handle)?.n_handles -= 1;
        tables.forget_if_unused(handle);
        Ok(())
    }

    /// `cuMemExportToShareableHandle`, of memory that was made in this process. The caller owns the
    /// descriptor.
    pub(crate) fn vmm_export(&self, handle: u64, handle_type: u32) -> Answer<OwnedFd> {
        self.check_vmm()?;
        let mut tables = self.tables();
        let physical = tables.physical(handle)?;
        let has_type = physical.handle_types & handle_type != 0;
        if handle_type != POSIX_FILE_DESCRIPTOR || !has_type || physical.is_imported {
            return Err(Status::INVALID_VALUE);
        }
        physical.file.share()
    }

    /// `cuMemImportFromShareableHandle`. The caller keeps the descriptor.
    pub(crate) fn vmm_import(&self, fd: i32, handle_type: u32) -> Answer<u64> {
        self.check_vmm()?;
        if handle_type != POSIX_FILE_DESCRIPTOR {
            return Err(Status::NOT_SUPPORTED);
        }
        let file = MemoryFile::reopen(fd).map_err(|_| Status::UNKNOWN)?;
        if file.label().purpose != Purpose::Vmm {
            return Err(Status::NOT_SUPPORTED);
        }
        if file.label().world != self.settings.world {
            return Err(Status::INVALID_VALUE);
        }
        let device = self.ordinal_of(file.label().device)?;
        Ok(self.add_physical(file, device, POSIX_FILE_DESCRIPTOR, true))
    }

    /// `cuMemRetainAllocationHandle`.
    pub(crate) fn vmm_retain(&self, address: u64) -> Answer<u64> {
        self.check_vmm()?;
        let mut tables = self.tables();
        let Some(Kind::Vmm { handle, .. }) = self.space().around(address).map(|region| region.kind.clone())
        else {
            return Err(Status::INVALID_VALUE);
        };
        tables.physical.get_mut(&handle).ok_or(Status::INVALID_VALUE)?.n_handles += 1;
        Ok(handle)
    }

    /// `cuMemGetAllocationPropertiesFromHandle`: the device and the handle types.
    pub(crate) fn vmm_properties(&self, handle: u64) -> Answer<(i32, u32)> {
        self.check_vmm()?;
        let mut tables = self.tables();
        let physical = tables.physical(handle)?;
        Ok((i32::try_from(physical.device).map_err(|_| Status::UNKNOWN)?, physical.handle_types))
    }

    /// `cuMemAddressReserve`.
    pub(crate) fn vmm_reserve(&self, len_bytes: usize, align_bytes: usize) -> Answer<u64> {
        self.check_vmm()?;
        if !is_granular(len_bytes) || !(align_bytes == 0 || align_bytes.is_power_of_two()) {
            return Err(Status::INVALID_VALUE);
        }
        let reservation = Mapping::reserve(len_bytes, align_bytes.max(GRANULE_BYTES))?;
        let address = reservation.address();
        self.tables().reservations.insert(address, Arc::new(reservation));
        Ok(address)
    }

    /// `cuMemAddressFree`: frees a whole reservation in which nothing is mapped.
    pub(crate) fn vmm_address_free(&self, address: u64, len_bytes: usize) -> Answer {
        self.check_vmm()?;
        let mut tables = self.tables();
        let reservation = tables.reservations.get(&address).ok_or(Status::INVALID_VALUE)?;
        if reservation.len_bytes() != len_bytes || !self.space().touching(address, len_bytes).is_empty() {
            return Err(Status::INVALID_VALUE);
        }
        tables.reservations.remove(&address);
        Ok(())
    }

    /// `cuMemMap`: a reserved range with nothing mapped in it; maps the memory from its beginning.
    pub(crate) fn vmm_map(&self, address: u64, len_bytes: usize, offset_bytes: usize, handle: u64) -> Answer {
        self.check_vmm()?;
        if !is_granular(len_bytes) {
            return Err(Status::INVALID_VALUE);
        }
        if offset_bytes != 0 || !address.is_multiple_of(GRANULE_BYTES as u64) {
            return Err(Status::NOT_SUPPORTED);
        }
        let mut tables = self.tables();
        let around = tables.reservations.range(..=address).next_back();
        let (base, reservation) =
            around.map(|(&base, mapping)| (base, Arc::clone(mapping))).ok_or(Status::INVALID_VALUE)?;
        let mut space = self.space();
        if !space.touching(address, len_bytes).is_empty() {
            return Err(Status::INVALID_VALUE);
        }
        let physical = tables.physical(handle)?;
        if len_bytes > physical.file.label().len_bytes {
            return Err(Status::NOT_SUPPORTED);
        }
        let offset = usize::try_from(address - base).map_err(|_| Status::INVALID_VALUE)?;
        reservation.place(offset, len_bytes, &physical.file)?;
        physical.n_mapped += 1;
        let kind = Kind::Vmm { handle, access: Vec::new() };
        space.add(address, len_bytes, physical.device, kind, reservation);
        Ok(())
    }

    /// `cuMemUnmap`: whole mappings. Does not wait for streams.
    pub(crate) fn vmm_unmap(&self, address: u64, len_bytes: usize) -> Answer {
        self.check_vmm()?;
        let mut tables = self.tables();
        let mut space = self.space();
        let bases = space.touching(address, len_bytes);
        let mut at = address;
        for base in &bases {
            let region = space.at(*base).filter(|region| matches!(region.kind, Kind::Vmm { .. }));
            let region = region.filter(|region| region.base == at).ok_or(Status::INVALID_VALUE)?;
            at = region.end();
        }
        if bases.is_empty() || at != address + len_bytes as u64 {
            return Err(Status::INVALID_VALUE);
        }
        for base in bases {
            let Some(region) = space.remove(base) else { continue };
            let offset =
                usize::try_from(region.base - region.memory.address()).map_err(|_| Status::UNKNOWN)?;
            region.memory.clear(offset, region.len_bytes)?;
            if let Kind::Vmm { handle, .. } = region.kind {
                if let Some(physical) = tables.physical.get_mut(&handle) {
                    physical.n_mapped -= 1;
                }
                tables.forget_if_unused(handle);
            }
        }
        Ok(())
    }

    /// `cuMemSetAccess`: for whole mappings.
    pub(crate) fn vmm_set_access(
        &self,
        address: u64,
        len_bytes: usize,
        grants: &[(i32, AccessFlags)],
    ) -> Answer {
        self.check_vmm()?;
        let mut space = self.space();
        let bases = space.touching(address, len_bytes);
        let covered: usize =
            bases.iter().filter_map(|base| space.at(*base)).map(|region| region.len_bytes).sum();
        if bases.first() != Some(&address) || covered != len_bytes {
            return Err(Status::INVALID_VALUE);
        }
        for &(device, flags) in grants {
            let device = self.check_ordinal(device)?;
            for base in &bases {
                let region = space.at_mut(*base).ok_or(Status::INVALID_VALUE)?;
                if region.device != device && !self.settings.has_peers {
                    return Err(Status::INVALID_DEVICE);
                }
                let Kind::Vmm { access, .. } = &mut region.kind else { return Err(Status::INVALID_VALUE) };
                access.retain(|(granted, _)| *granted != device);
                access.push((device, flags));
            }
        }
        Ok(())
    }

    /// `cuMemGetAccess`.
    pub(crate) fn vmm_access(&self, device: i32, address: u64) -> Answer<AccessFlags> {
        self.check_vmm()?;
        let device = self.check_ordinal(device)?;
        let space = self.space();
        let Some(Kind::Vmm { access, .. }) = space.around(address).map(|region| &region.kind) else {
            return Err(Status::INVALID_VALUE);
        };
        Ok(access
            .iter()
            .find(|(granted, _)| *granted == device)
            .map_or(AccessFlags::None, |(_, flags)| *flags))
    }
}
