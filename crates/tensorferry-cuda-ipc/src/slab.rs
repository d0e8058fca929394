//! A slab as one process sees it: device memory that gets an address on first use.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tensorferry_storage::Heap;

use crate::allocation::Allocation;
use crate::backing::{Backing, Lent};
use crate::capture::Relaxed;
use crate::context::PrimaryContext;
use crate::control::SlabControl;
use crate::device::{Device, Uuid};
use crate::error::CudaError;
use crate::mapping::DeviceMapping;
use crate::memory::DeviceMemory;
use crate::opened::Opened;
use crate::pinning::Pinning;
use crate::registry;
use crate::strategy::CudaStrategy;
use crate::stream::Stream;
use crate::tensor_error::{CudaTensorError, Result};

/// Device memory of this process or of another one. Dropping the last reference unmaps it; no work may be
/// queued for it by then.
pub(crate) struct Slab {
    /// One view for each context that uses the slab. Locked while a view is made, so that it is made once;
    /// never locked while waiting for another process. Declared before `control`, so closed before the holder
    /// bit is cleared, because some memory must not be freed while any process has it open.
    views: Mutex<Vec<(usize, View)>>,
    /// The memory itself, if this process made it. Also dropped before the holder bit is cleared.
    backing: Option<Backing>,
    control: SlabControl,
    /// Read once and used from then on: other processes can write the word in shared memory.
    len_bytes: usize,
    strategy: CudaStrategy,
    /// For the copies of a staged slab.
    pinning: Pinning,
    /// Whether the descriptor store has the slab's descriptor.
    is_stored: AtomicBool,
    /// Whether there is a view, for callers that must not wait for `views`.
    is_mapped: AtomicBool,
}

/// The source of the slab's address in one context.
enum View {
    Mapped(DeviceMapping),
    Opened(Opened),
    /// The address at which its maker has it.
    Own(u64),
    /// A copy of a staged slab.
    Copy(Allocation),
}

impl Slab {
    /// Makes a slab of this process.
    pub(crate) fn create(
        heap: &Heap,
        context: &PrimaryContext,
        len_bytes: usize,
        strategy: CudaStrategy,
    ) -> Result<Self> {
        let backing = Backing::create(heap, context, len_bytes, strategy)?;
        Self::over(heap, context.device(), len_bytes, backing)
    }

    /// A slab over memory of another library, which is to give it away ([`Slab::take_over`]).
    pub(crate) fn lent(heap: &Heap, lent: Lent) -> Result<Self> {
        let (device, len_bytes) = (lent.context.device().clone(), lent.len_bytes);
        Self::over(heap, &device, len_bytes, Backing::Lent(lent))
    }

    fn over(heap: &Heap, device: &Device, len_bytes: usize, backing: Backing) -> Result<Self> {
        let (uuid, strategy) = (device.uuid()?, backing.strategy());
        let pool = backing.pool().map_or(0, |pool| pool.name());
        let control = SlabControl::create(heap, uuid, len_bytes, strategy, &backing.handle()?, pool)?;
        Ok(Self::new(control, strategy, Some(backing)))
    }

    /// A slab of another process. Makes no call of the driver.
    pub(crate) fn of_another(control: SlabControl) -> Result<Self> {
        let bad = CudaTensorError::BadMessage { what: "a slab that is shared in no way that is known" };
        let strategy = control.strategy().ok_or(bad)?;
        Ok(Self::new(control, strategy, None))
    }

    fn new(control: SlabControl, strategy: CudaStrategy, backing: Option<Backing>) -> Self {
        Self {
            views: Mutex::default(),
            backing,
            len_bytes: control.len_bytes(),
            control,
            strategy,
            pinning: Pinning::default(),
            is_stored: AtomicBool::new(false),
            is_mapped: AtomicBool::new(false),
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

    pub(crate) fn strategy(&self) -> CudaStrategy {
        self.strategy
    }

    pub(crate) fn is_own(&self) -> bool {
        self.backing.is_some()
    }

    /// Whether it is memory of another library of this process.
    pub(crate) fn is_lent(&self) -> bool {
        self.backing.as_ref().is_some_and(Backing::is_lent)
    }

    /// From now on this process is to free the memory of another library, at this address.
    pub(crate) fn take_over(&self, address: u64) {
        if let Some(backing) = &self.backing {
            backing.take_over(address);
        }
    }

    pub(crate) fn is_mapped(&self) -> bool {
        self.is_mapped.load(Ordering::Acquire)
    }

    /// Whether other processes may have got the memory by its descriptor.
    pub(crate) fn is_stored(&self) -> bool {
        self.is_stored.load(Ordering::Acquire)
    }

    /// Whether the slab must not be freed yet, because other processes may have it open. Each process closes
    /// it before it lets go of the block.
    pub(crate) fn is_open_elsewhere(&self) -> bool {
        !self.strategy.outlives_maker() && !self.control.0.is_sole()
    }

    /// Makes sure that other processes can get the memory.
    pub(crate) fn store(&self) -> Result<()> {
        match &self.backing {
            Some(Backing::Created(memory)) => self.store_once(memory),
            Some(backing) => backing.pool().map_or(Ok(()), |pool| pool.store()),
            // Its maker has stored it before it came here.
            None => Ok(()),
        }
    }

    fn store_once(&self, memory: &DeviceMemory) -> Result<()> {
        // This may wait for the descriptor store. If two threads come here at once, both store the
        // descriptor, which does no harm.
        if !self.is_stored() {
            let fd = memory.export()?;
            self.heap()?.domain().store_fd(self.control.name(), fd)?;
            self.is_stored.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// The slab's address for the device of `stream`, mapped or opened on first use.
    ///
    /// # Errors
    /// [`CudaTensorError::MemoryGone`], each time, if the memory ended with its maker.
    ///
    /// # Blocking
    /// On the descriptor store, and on the copy of a staged slab.
    pub(crate) fn address_on(&self, stream: &Stream) -> Result<u64> {
        if self.strategy == CudaStrategy::Staged {
            if let Some(address) = address_in(&self.views(), stream.context()) {
                return Ok(address);
            }
            // Done without the lock, because the stream may be waiting for another process. If two threads
            // come here at once, both copy.
            let copy = self.copy_on(stream)?;
            return self.add_view(stream.context(), |_| Ok(copy));
        }
        self.address(stream.context())
    }

    /// Makes a copy on the stream. Every stream can use it when this returns.
    fn copy_on(&self, stream: &Stream) -> Result<View> {
        let context = stream.context();
        let make = || Ok(Allocation::create(context, self.len_bytes)?);
        let copy = registry::get().make_room_for(context, self.len_bytes, make)?;
        // Allows waiting for the copy while another stream captures.
        let _relaxed = Relaxed::begin();
        let _current = context.make_current()?;
        let driver = context.device().driver();
        let pinned = self.pinning.pin(driver, &self.control);
        driver.copy_from_shared(copy.address(), pinned, self.len_bytes, stream.handle())?;
        Ok(View::Copy(copy))
    }

    /// As [`Slab::address_on`], for a slab that is not staged.
    pub(crate) fn address(&self, context: &PrimaryContext) -> Result<u64> {
        self.check_maker()?;
        if let Some(address) = address_in(&self.views(), context) {
            return Ok(address);
        }
        // If this fails because the maker is just ending, the error says so.
        self.look(context).map_err(|error| self.check_maker().err().unwrap_or(error))
    }

    fn check_maker(&self) -> Result<()> {
        let is_gone = !self.is_own() && !self.strategy.outlives_maker() && self.control.is_owner_gone();
        if is_gone { Err(CudaTensorError::MemoryGone) } else { Ok(()) }
    }

    fn look(&self, context: &PrimaryContext) -> Result<u64> {
        if let Some(backing) = &self.backing {
            let view = |_: &Self| match backing {
                Backing::Created(memory) => map(memory, context).map(View::Mapped),
                _ => {
                    let (address, home) = backing.address().ok_or(CudaError::Released)?;
                    reach(home, context, backing.pool().map(|pool| pool.handle()))?;
                    Ok(View::Own(address))
                }
            };
            return self.add_view(context, view);
        }
        let device = context.device().driver().device_by_uuid(self.uuid())?;
        // This may wait for the descriptor store. If two threads come here at once, both fetch the descriptor
        // and one of them maps.
        if self.strategy == CudaStrategy::Vmm {
            let fd = self.heap()?.domain().fetch_fd(self.control.name())?;
            // The mapping keeps the memory: neither the descriptor nor the handle is needed afterwards.
            return self.add_view(context, |slab| {
                map(&DeviceMemory::import(&device, fd, slab.len_bytes)?, context).map(View::Mapped)
            });
        }
        let home = if device.ordinal() == context.device().ordinal() {
            context.clone()
        } else {
            check_reach(&device, context.device())?;
            device.retain_primary_context()?
        };
        let opened = Opened::open(self.heap()?, &self.control, (self.strategy, self.len_bytes), &home)?;
        self.add_view(context, |_| {
            reach(opened.context(), context, opened.pool())?;
            Ok(View::Opened(opened))
        })
    }

    fn add_view(&self, context: &PrimaryContext, make: impl FnOnce(&Self) -> Result<View>) -> Result<u64> {
        let mut views = self.views();
        if let Some(address) = address_in(&views, context) {
            return Ok(address);
        }
        let view = make(self)?;
        let address = view.address();
        views.push((context.handle(), view));
        self.is_mapped.store(true, Ordering::Release);
        Ok(address)
    }

    fn views(&self) -> MutexGuard<'_, Vec<(usize, View)>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heap(&self) -> Result<&Heap> {
        self.control.0.heap().ok_or(CudaTensorError::BadMessage { what: "a slab without a block" })
    }
}

impl View {
    fn address(&self) -> u64 {
        match self {
            Self::Mapped(mapping) => mapping.address(),
            Self::Opened(opened) => opened.address(),
            Self::Own(address) => *address,
            Self::Copy(allocation) => allocation.address(),
        }
    }
}

fn address_in(views: &[(usize, View)], context: &PrimaryContext) -> Option<u64> {
    views.iter().find(|(handle, _)| *handle == context.handle()).map(|(_, view)| view.address())
}

fn check_reach(home: &Device, user: &Device) -> Result<()> {
    if user.ordinal() == home.ordinal() || user.can_access(home)? {
        return Ok(());
    }
    Err(CudaError::NoPeerAccess { from: user.uuid()?, to: home.uuid()? }.into())
}

fn map(memory: &DeviceMemory, context: &PrimaryContext) -> Result<DeviceMapping> {
    check_reach(memory.device(), context.device())?;
    Ok(DeviceMapping::map(memory, context)?)
}

/// Makes sure that the device of `user` reaches memory that has an address already, in the context `home` or
/// in a pool.
fn reach(home: &PrimaryContext, user: &PrimaryContext, pool: Option<usize>) -> Result<()> {
    if home.handle() == user.handle() {
        return Ok(());
    }
    check_reach(home.device(), user.device())?;
    let driver = user.device().driver();
    let _current = user.make_current()?;
    match pool {
        Some(pool) => driver.pool_grant(pool, user.device().ordinal())?,
        None => driver.enable_peer_access(home.handle())?,
    }
    Ok(())
}

impl fmt::Debug for Slab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab").field("name", &self.control.name()).finish_non_exhaustive()
    }
}
