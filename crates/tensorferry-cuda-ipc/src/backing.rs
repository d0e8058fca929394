//! The memory of a slab, in the process that has it from its driver.

use std::fmt;
use std::sync::{Arc, OnceLock};

use tensorferry_storage::Heap;

use crate::allocation::Allocation;
use crate::context::PrimaryContext;
use crate::error::CudaError;
use crate::memory::DeviceMemory;
use crate::raw::{self, IPC_HANDLE_LEN_BYTES, IpcHandle};
use crate::stored_pool::StoredPool;
use crate::strategy::CudaStrategy;
use crate::tensor_error::{CudaTensorError, Result};

/// The unit in which the driver cuts memory of `cuMemAlloc`. Other processes open a whole piece, and would
/// see all other memory in it (`cuIpcGetMemHandle` in the CUDA reference).
pub(crate) const PIECE_BYTES: usize = 2 << 20;

/// Memory that this process shares. Dropping it frees it, unless it still belongs to another library.
#[derive(Debug)]
pub(crate) enum Backing {
    /// Memory of `cuMemCreate`.
    Created(DeviceMemory),
    /// Memory of `cuMemAlloc`.
    Allocated(Allocation),
    /// Memory of a pool of this crate.
    Pooled(Allocation, Arc<StoredPool>),
    /// Memory of another library.
    Lent(Lent),
}

/// An allocation of another library.
pub(crate) struct Lent {
    pub(crate) context: PrimaryContext,
    pub(crate) address: u64,
    pub(crate) len_bytes: usize,
    handle: IpcHandle,
    /// `None` for memory that is shared by a legacy handle.
    pool: Option<Arc<StoredPool>>,
    /// Set once the other library has given the memory away.
    given: OnceLock<Allocation>,
}

impl Backing {
    /// Allocates memory.
    pub(crate) fn create(
        heap: &Heap,
        context: &PrimaryContext,
        len_bytes: usize,
        strategy: CudaStrategy,
    ) -> Result<Self> {
        Ok(match strategy {
            CudaStrategy::Vmm => Self::Created(DeviceMemory::create(context.device(), len_bytes)?),
            CudaStrategy::Legacy => Self::Allocated(Allocation::create(context, len_bytes)?),
            CudaStrategy::Staged => {
                return Err(CudaTensorError::NotShareable {
                    why: "staging copies a tensor that is there: call `to_staged`",
                });
            }
            CudaStrategy::Pool => {
                let allocation = Allocation::create_in_pool(context, len_bytes)?;
                let pool = allocation.pool().map(|pool| pool.handle()).ok_or(CudaError::Released)?;
                let pool = StoredPool::of(heap, context.device().driver(), pool)?;
                Self::Pooled(allocation, pool)
            }
        })
    }

    pub(crate) fn strategy(&self) -> CudaStrategy {
        match self {
            Self::Created(_) => CudaStrategy::Vmm,
            Self::Allocated(_) | Self::Lent(Lent { pool: None, .. }) => CudaStrategy::Legacy,
            Self::Pooled(..) | Self::Lent(_) => CudaStrategy::Pool,
        }
    }

    /// The handle by which other processes open the memory; zeros if they use a descriptor.
    pub(crate) fn handle(&self) -> Result<IpcHandle> {
        match self {
            Self::Created(_) => Ok(IpcHandle([0; IPC_HANDLE_LEN_BYTES])),
            Self::Allocated(allocation) => Ok(allocation.legacy_handle()?),
            Self::Pooled(allocation, _) => {
                let _current = allocation.context().make_current()?;
                Ok(allocation.context().device().driver().pointer_export(allocation.address())?)
            }
            Self::Lent(lent) => Ok(lent.handle),
        }
    }

    /// The pool that the memory is from.
    pub(crate) fn pool(&self) -> Option<&Arc<StoredPool>> {
        match self {
            Self::Created(_) | Self::Allocated(_) => None,
            Self::Pooled(_, pool) => Some(pool),
            Self::Lent(lent) => lent.pool.as_ref(),
        }
    }

    /// The address on its own device, and the context there. `None` for memory that has to be mapped.
    pub(crate) fn address(&self) -> Option<(u64, &PrimaryContext)> {
        match self {
            Self::Created(_) => None,
            Self::Allocated(allocation) | Self::Pooled(allocation, _) => {
                Some((allocation.address(), allocation.context()))
            }
            Self::Lent(lent) => Some((lent.address, &lent.context)),
        }
    }

    /// From now on this process is to free the memory of another library, at this address.
    pub(crate) fn take_over(&self, address: u64) {
        if let Self::Lent(lent) = self {
            // Called once for each slab.
            let _ = lent.given.set(Allocation::given(&lent.context, address, lent.pool.is_some()));
        }
    }

    pub(crate) fn is_lent(&self) -> bool {
        matches!(self, Self::Lent(_))
    }
}

impl Lent {
    /// # Errors
    /// [`CudaTensorError::NotShareable`] for memory of `cuMemMap`, which cannot be freed by its address at
    /// the end.
    pub(crate) fn refuse_mapped(context: &PrimaryContext, address: u64) -> Result<()> {
        if !context.device().driver().is_mapped(address)? {
            return Ok(());
        }
        Err(CudaTensorError::NotShareable {
            why: "it is memory of cuMemCreate, which cudarc cannot free; copy it with from_cuda_slice, or begin with a tensor and use as_cuda_slice",
        })
    }

    /// Finds the allocation around an address, and how it can be shared.
    ///
    /// # Errors
    /// [`CudaTensorError::NotShareable`] with the reason; the driver's error.
    pub(crate) fn around(
        heap: &Heap,
        context: &PrimaryContext,
        address: u64,
        strategy: Option<CudaStrategy>,
    ) -> Result<Self> {
        let driver = context.device().driver();
        let _current = context.make_current()?;
        let ordinal = driver.pointer_attribute(raw::POINTER_DEVICE_ORDINAL, address)?;
        if i32::try_from(ordinal) != Ok(context.device().ordinal()) {
            return Err(CudaTensorError::NotShareable { why: "it lies on another device than the stream's" });
        }
        let is_wanted = |this| strategy.is_none_or(|strategy| strategy == this);
        let (base, len_bytes) = driver.address_range(address)?;
        let lent = |handle, pool| Self {
            context: context.clone(),
            address: base,
            len_bytes,
            handle,
            pool,
            given: OnceLock::new(),
        };
        let is_capable = driver.pointer_attribute(raw::POINTER_IS_LEGACY_IPC_CAPABLE, address)? & 0xff != 0;
        let has_neighbours = !len_bytes.is_multiple_of(PIECE_BYTES);
        if is_wanted(CudaStrategy::Legacy) && is_capable && !has_neighbours {
            match driver.memory_handle(base) {
                Ok(handle) => return Ok(lent(handle, None)),
                Err(error) if error.code() == Some(raw::NOT_SUPPORTED) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let types = driver.pointer_attribute(raw::POINTER_ALLOWED_HANDLE_TYPES, address)?;
        let pool = driver.pointer_attribute(raw::POINTER_MEMORY_POOL, address)?;
        let pool = usize::try_from(pool).unwrap_or(0);
        if is_wanted(CudaStrategy::Pool) && types & u64::from(raw::POSIX_FILE_DESCRIPTOR) != 0 && pool != 0 {
            let pool = StoredPool::of(heap, driver, pool)?;
            return Ok(lent(driver.pointer_export(base)?, Some(pool)));
        }
        Err(CudaTensorError::NotShareable {
            why: match (is_capable, types) {
                (false, 0) => {
                    "it is neither of cuMemAlloc nor from a pool that can be exported; call use_exportable_pool before it is allocated"
                }
                (true, _) if has_neighbours && is_wanted(CudaStrategy::Legacy) => {
                    "it may share a piece of 2 MiB with other memory of this process, which others would reach, too; allocate a multiple of 2 MiB"
                }
                _ => "it cannot be shared by the strategy that was asked for",
            },
        })
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").field("address", &self.address).finish_non_exhaustive()
    }
}
