//! Memory pools, and how their memory is shared with other processes.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::{FdFlags, fcntl_setfd};

use crate::address_space::{self, Kind, Ordinal};
use crate::arena::{Arena, Import};
use crate::driver::{Driver, Tables, next_id};
use crate::memory_file::{MemoryFile, Purpose};
use crate::stream::Stream;
use crate::token::{self, TOKEN_BYTES, Token};
use crate::vmm::{AccessFlags, POSIX_FILE_DESCRIPTOR};
use crate::{Answer, Status};

/// A pool of this process, or an imported one of another process.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) device: Ordinal,
    pub(crate) handle_types: u32,
    arena: Arc<Arena>,
    is_imported: bool,
    /// Whether it was exported. Before that, the driver exports no pointer into it.
    is_exported: bool,
    /// By `CUmemPool_attribute`. They have no effect: memory is never reused early here. What is kept is kept
    /// whatever the threshold, as NVIDIA says of exportable pools.
    attributes: BTreeMap<i32, u64>,
}

/// The attributes that can be set, with their first values. The first three say whether the pool may reuse
/// memory that another stream frees: if the stream is known to wait for the free (1), if the free has been
/// reached (2), or by making the stream wait (3). The last is the threshold of bytes to keep.
const ATTRIBUTES: [(i32, u64); 4] = [(1, 1), (2, 1), (3, 1), (4, 0)];

impl Tables {
    fn pool(&mut self, pool: usize) -> Answer<&mut Pool> {
        self.pools.get_mut(&pool).ok_or(Status::INVALID_VALUE)
    }
}

impl Driver {
    fn check_pools(&self) -> Answer {
        self.check_process()?;
        if self.settings.has_pools { Ok(()) } else { Err(Status::NOT_SUPPORTED) }
    }

    fn add_pool(&self, tables: &mut Tables, device: Ordinal, handle_types: u32) -> Answer<usize> {
        let (world, physical) = (&self.settings.world, self.physical(device));
        let keeps = self.settings.pools_keep && handle_types != 0;
        let arena = Arc::new(Arena::create(world, Purpose::Pool, physical, keeps)?);
        let id = next_id();
        let (is_imported, is_exported, attributes) = (false, false, ATTRIBUTES.into());
        let pool = Pool { device, handle_types, arena, is_imported, is_exported, attributes };
        tables.pools.insert(id, pool);
        Ok(id)
    }

    /// `cuMemPoolCreate`.
    pub(crate) fn pool_create(&self, device: i32, handle_types: u32) -> Answer<usize> {
        self.check_pools()?;
        let device = self.check_ordinal(device)?;
        if handle_types & !POSIX_FILE_DESCRIPTOR != 0 {
            return Err(Status::NOT_SUPPORTED);
        }
        self.add_pool(&mut self.tables(), device, handle_types)
    }

    /// `cuMemPoolDestroy`. Memory of the pool that is in use stays until it is freed.
    pub(crate) fn pool_destroy(&self, pool: usize) -> Answer {
        self.check_pools()?;
        let mut tables = self.tables();
        if tables.default_pools.values().any(|id| *id == pool) {
            return Err(Status::INVALID_VALUE);
        }
        tables.pools.remove(&pool).ok_or(Status::INVALID_VALUE)?;
        tables.current_pools.retain(|_, id| *id != pool);
        Ok(())
    }

    /// `cuDeviceGetDefaultMemPool`: a pool that cannot be exported.
    pub(crate) fn default_pool(&self, device: i32) -> Answer<usize> {
        self.check_pools()?;
        let device = self.check_ordinal(device)?;
        let mut tables = self.tables();
        if let Some(pool) = tables.default_pools.get(&device) {
            return Ok(*pool);
        }
        let pool = self.add_pool(&mut tables, device, 0)?;
        tables.default_pools.insert(device, pool);
        Ok(pool)
    }

    /// `cuDeviceGetMemPool`.
    pub(crate) fn current_pool(&self, device: i32) -> Answer<usize> {
        let default = self.default_pool(device)?;
        let device = self.check_ordinal(device)?;
        Ok(self.tables().current_pools.get(&device).copied().unwrap_or(default))
    }

    /// `cuDeviceSetMemPool`.
    pub(crate) fn set_current_pool(&self, device: i32, pool: usize) -> Answer {
        self.check_pools()?;
        let device = self.check_ordinal(device)?;
        let mut tables = self.tables();
        let chosen = tables.pool(pool)?;
        if chosen.device != device || chosen.is_imported {
            return Err(Status::INVALID_VALUE);
        }
        tables.current_pools.insert(device, pool);
        Ok(())
    }

    /// `cuMemPoolTrimTo`. It has nothing to do: a pool either keeps nothing, or keeps all memory until it is
    /// destroyed.
    pub(crate) fn pool_trim(&self, pool: usize) -> Answer {
        self.check_pools()?;
        self.tables().pool(pool).map(|_| ())
    }

    /// `cuMemPoolSetAttribute`.
    pub(crate) fn pool_set_attribute(&self, pool: usize, attribute: i32, value: u64) -> Answer {
        self.check_pools()?;
        let mut tables = self.tables();
        let known = tables.pool(pool)?.attributes.get_mut(&attribute);
        *known.ok_or(Status::INVALID_VALUE)? = value;
        Ok(())
    }

    /// `cuMemPoolGetAttribute`.
    pub(crate) fn pool_attribute(&self, pool: usize, attribute: i32) -> Answer<u64> {
        self.check_pools()?;
        let mut tables = self.tables();
        tables.pool(pool)?.attributes.get(&attribute).copied().ok_or(Status::INVALID_VALUE)
    }

    /// `cuMemAllocAsync`: from the current pool of the stream's device.
    pub(crate) fn alloc_async(&self, len_bytes: usize, stream: usize) -> Answer<u64> {
        let device = self.stream(stream)?.device;
        let pool = self.current_pool(i32::try_from(device).map_err(|_| Status::INVALID_DEVICE)?)?;
        self.alloc_from_pool(len_bytes, pool, stream)
    }

    /// `cuMemAllocFromPoolAsync`. An imported pool cannot allocate.
    pub(crate) fn alloc_from_pool(&self, len_bytes: usize, pool: usize, stream: usize) -> Answer<u64> {
        self.check_pools()?;
        self.stream(stream)?.query().or_else(|status| match status {
            Status::NOT_READY => Ok(()),
            status => Err(status),
        })?;
        if len_bytes == 0 {
            return Err(Status::INVALID_VALUE);
        }
        let (device, arena, is_imported) = {
            let mut tables = self.tables();
            let pool = tables.pool(pool)?;
            (pool.device, Arc::clone(&pool.arena), pool.is_imported)
        };
        if is_imported {
            return Err(Status::INVALID_VALUE);
        }
        self.check_limit(device, arena.growth_bytes(len_bytes)?)?;
        let allocated = arena.allocate(len_bytes)?;
        let slot = allocated.slot;
        self.add_allocated(&allocated, len_bytes, device, Kind::Pool { pool, arena, slot })
    }

    /// `cuMemFreeAsync`: the memory is free once the stream reaches this operation.
    pub(crate) fn free_async(&self, address: u64, stream: usize) -> Answer {
        let stream = self.stream(stream)?;
        let region = self.space().at(address).cloned().ok_or(Status::INVALID_VALUE)?;
        if matches!(region.kind, Kind::Ipc { .. } | Kind::Vmm { .. }) {
            return Err(Status::INVALID_VALUE);
        }
        let (space, reports) = (Arc::clone(&self.space), Arc::clone(&self.reports));
        stream.push(move |_: &Stream| {
            let mut space = address_space::lock(&space);
            // If it was freed twice, the address may belong to another allocation by now.
            if space.at(address).map(|found| found.id) != Some(region.id) {
                return Err(Status::INVALID_VALUE);
            }
            space.remove(address);
            if let Kind::Malloc { arena, slot } | Kind::Pool { arena, slot, .. } = region.kind
                && arena.free(slot)?
            {
                reports.add("memory was freed by its exporter while another process had it open");
            }
            Ok(())
        })
    }

    /// `cuMemPoolSetAccess`: which devices besides the pool's own may access its memory.
    pub(crate) fn pool_set_access(&self, pool: usize, grants: &[(i32, AccessFlags)]) -> Answer {
        self.check_pools()?;
        let home = self.tables().pool(pool)?.device;
        for &(device, flags) in grants {
            let device = self.check_ordinal(device)?;
            match flags {
                _ if device == home => return Err(Status::INVALID_VALUE),
                AccessFlags::ReadWrite if !self.settings.has_peers => return Err(Status::INVALID_DEVICE),
                AccessFlags::ReadWrite => drop(self.space().pool_users.insert((pool, device))),
                AccessFlags::None => drop(self.space().pool_users.remove(&(pool, device))),
                AccessFlags::Read => return Err(Status::INVALID_VALUE),
            }
        }
        Ok(())
    }

    /// `cuMemPoolExportToShareableHandle`. The caller owns the descriptor, which is not close-on-exec.
    pub(crate) fn pool_export(&self, pool: usize, handle_type: u32) -> Answer<OwnedFd> {
        self.check_pools()?;
        let mut tables = self.tables();
        let pool = tables.pool(pool)?;
        if handle_type != POSIX_FILE_DESCRIPTOR || pool.handle_types & handle_type == 0 || pool.is_imported {
            return Err(Status::INVALID_VALUE);
        }
        let fd = pool.arena.file().share()?;
        fcntl_setfd(&fd, FdFlags::empty())?;
        pool.is_exported = true;
        Ok(fd)
    }

    /// `cuMemPoolImportFromShareableHandle`. The caller keeps the descriptor.
    pub(crate) fn pool_import(&self, fd: i32, handle_type: u32) -> Answer<usize> {
        self.check_pools()?;
        if handle_type != POSIX_FILE_DESCRIPTOR {
            return Err(Status::INVALID_VALUE);
        }
        let file = MemoryFile::reopen(fd)?;
        if file.label().purpose != Purpose::Pool || file.label().world != self.settings.world {
            return Err(Status::INVALID_VALUE);
        }
        let device = self.ordinal_of(file.label().device)?;
        let arena = Arc::new(Arena::import(file)?);
        let (is_imported, is_exported, attributes) = (true, false, ATTRIBUTES.into());
        let pool = Pool { device, handle_types: handle_type, arena, is_imported, is_exported, attributes };
        let id = next_id();
        self.tables().pools.insert(id, pool);
        Ok(id)
    }

    /// `cuMemPoolExportPointer`, of memory of a pool of this process that was exported before.
    pub(crate) fn pool_export_pointer(&self, address: u64) -> Answer<[u8; TOKEN_BYTES]> {
        self.check_pools()?;
        let mut tables = self.tables();
        let token = match &self.space().at(address).ok_or(Status::INVALID_VALUE)?.kind {
            Kind::Pool { pool, arena, slot } if tables.pool(*pool)?.is_exported => {
                arena.token(self.identity, *slot)?
            }
            _ => return Err(Status::INVALID_VALUE),
        };
        Ok(token.to_bytes(token::Kind::PoolPointer))
    }

    /// `cuMemPoolImportPointer`. A second import has the same address and is not counted.
    pub(crate) fn pool_import_pointer(&self, pool: usize, data: &[u8; TOKEN_BYTES]) -> Answer<u64> {
        self.check_pools()?;
        let token = Token::from_bytes(data, token::Kind::PoolPointer)?;
        let mut tables = self.tables();
        let imported = tables.pool(pool)?;
        if !imported.is_imported || imported.arena.file().inode() != token.inode {
            return Err(Status::INVALID_VALUE);
        }
        let is_this = |kind: &Kind| matches!(kind, Kind::PoolImport { import, .. } if import.token == token);
        if let Some(region) = self.space().all().find(|region| is_this(&region.kind)) {
            return Ok(region.base);
        }
        let file = MemoryFile::reopen(imported.arena.file().number())?;
        let import = Import::in_file(file, token, self.identity)?;
        let (base, len_bytes, memory) = (import.address, import.len_bytes, Arc::clone(&import.payload));
        let kind = Kind::PoolImport { pool, import: Arc::new(import) };
        self.space().add(base, len_bytes, imported.device, kind, memory);
        Ok(base)
    }
}
