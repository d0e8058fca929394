//! A slab as one process sees it: device memory that is mapped when it is first used.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tensorferry_storage::Heap;

use crate::context::PrimaryContext;
use crate::control::SlabControl;
use crate::device::Uuid;
use crate::error::CudaError;
use crate::mapping::DeviceMapping;
use crate::memory::DeviceMemory;
use crate::tensor_error::{CudaTensorError, Result};

/// Device memory of this process or of another one. The last one that goes unmaps it: nothing may be queued for it by then.
pub(crate) struct Slab {
    control: SlabControl,
    /// Read once, and believed from then on: others can write where it stands.
    len_bytes: usize,
    /// The memory itself, where this process made it.
    memory: Option<DeviceMemory>,
    /// Whether the keeper has its descriptor.
    is_lodged: AtomicBool,
    /// Whether there is a mapping, for those who may not wait until one is made.
    is_mapped: AtomicBool,
    /// One for each device that uses it. Locked while one is made, so that it is made once; never while somebody else is
    /// waited for.
    mappings: Mutex<Vec<(usize, DeviceMapping)>>,
}

impl Slab {
    /// Makes one.
    pub(crate) fn create(heap: &Heap, context: &PrimaryContext, len_bytes: usize) -> Result<Self> {
        let device = context.device();
        let memory = DeviceMemory::create(device, len_bytes)?;
        let control = SlabControl::create(heap, device.uuid()?, len_bytes)?;
        Ok(Self::new(control, Some(memory)))
    }

    /// One of another process. Nothing is asked of the driver yet.
    pub(crate) fn of_another(control: SlabControl) -> Self {
        Self::new(control, None)
    }

    fn new(control: SlabControl, memory: Option<DeviceMemory>) -> Self {
        Self {
            len_bytes: control.len_bytes(),
            control,
            memory,
            is_lodged: AtomicBool::new(false),
            is_mapped: AtomicBool::new(false),
            mappings: Mutex::default(),
        }
    }

    pub(crate) fn control(&self) -> &SlabControl {
        &self.control
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    pub(crate) fn uuid(&self) -> Uuid {
        self.control.uuid()
    }

    pub(crate) fn is_own(&self) -> bool {
        self.memory.is_some()
    }

    pub(crate) fn is_mapped(&self) -> bool {
        self.is_mapped.load(Ordering::Acquire)
    }

    /// Sees to it that other processes can get at the memory, also when this one has ended.
    pub(crate) fn lodge(&self) -> Result<()> {
        let Some(memory) = &self.memory else {
            // Whoever made it has lodged it before it came here.
            return Ok(());
        };
        // The keeper may have to be waited for. Where two threads come here at once, both lodge it, which is as good.
        if !self.is_lodged.load(Ordering::Acquire) {
            let fd = memory.export()?;
            self.domain_heap()?.domain().lodge(self.control.name(), fd)?;
            self.is_lodged.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Its address for the device of `context`, mapped the first time.
    pub(crate) fn address(&self, context: &PrimaryContext) -> Result<u64> {
        if let Some(address) = address_in(&self.mappings(), context) {
            return Ok(address);
        }
        // The keeper may have to be waited for. Where two threads come here at once, both fetch and one of them maps.
        let fetched = match &self.memory {
            Some(_) => None,
            None => {
                let device = context.device().driver().device_by_uuid(self.uuid())?;
                Some((device, self.domain_heap()?.domain().fetch(self.control.name())?))
            }
        };
        let mut mappings = self.mappings();
        if let Some(address) = address_in(&mappings, context) {
            return Ok(address);
        }
        let mapping = match (&self.memory, fetched) {
            (Some(memory), _) => map(memory, context)?,
            // A mapping keeps the memory: neither the descriptor nor the handle is needed afterwards.
            (None, Some((device, fd))) => {
                map(&DeviceMemory::import(&device, fd, self.len_bytes())?, context)?
            }
            (None, None) => return Err(CudaError::Released.into()),
        };
        let address = mapping.address();
        mappings.push((context.handle(), mapping));
        self.is_mapped.store(true, Ordering::Release);
        Ok(address)
    }

    fn mappings(&self) -> MutexGuard<'_, Vec<(usize, DeviceMapping)>> {
        self.mappings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn domain_heap(&self) -> Result<&Heap> {
        self.control.0.heap().ok_or(CudaTensorError::BadMessage { what: "a slab without a block" })
    }
}

fn address_in(mappings: &[(usize, DeviceMapping)], context: &PrimaryContext) -> Option<u64> {
    let of_context = mappings.iter().find(|(handle, _)| *handle == context.handle());
    of_context.map(|(_, mapping)| mapping.address())
}

fn map(memory: &DeviceMemory, context: &PrimaryContext) -> Result<DeviceMapping> {
    let (user, home) = (context.device(), memory.device());
    if user.ordinal() != home.ordinal() && !user.can_access(home)? {
        return Err(CudaError::NoPeerAccess { from: user.uuid()?, to: home.uuid()? }.into());
    }
    Ok(DeviceMapping::map(memory, context)?)
}

impl fmt::Debug for Slab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab").field("name", &self.control.name()).finish_non_exhaustive()
    }
}
