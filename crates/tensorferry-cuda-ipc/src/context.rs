//! The primary context of a device, which all libraries of a process share.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use crate::device::Device;
use crate::error::Result;

/// A reference to the primary context of a device. Clones share one reference, and dropping the last clone
/// releases it.
#[derive(Clone, Debug)]
pub struct PrimaryContext {
    retained: Arc<Retained>,
}

/// The memory of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// Free bytes.
    pub free_bytes: usize,
    /// All bytes.
    pub total_bytes: usize,
}

#[derive(Debug)]
struct Retained {
    device: Device,
    handle: usize,
    /// Events that are not in use, to be recorded anew.
    spare_events: Mutex<Vec<usize>>,
}

/// How many events are kept for later: as many as a busy process uses before it learns that they are reached
/// ([`TICK`](crate::tick::TICK)), at one every 5 µs.
const MAX_SPARE_EVENTS: usize = 2048;

thread_local! {
    /// The context that [`PrimaryContext::enter`] has made current on this thread; 0 for none.
    static ENTERED: Cell<usize> = const { Cell::new(0) };
}

impl PrimaryContext {
    pub(crate) fn retain(device: Device) -> Result<Self> {
        let handle = device.driver().primary_retain(device.ordinal())?;
        Ok(Self { retained: Arc::new(Retained { device, handle, spare_events: Mutex::default() }) })
    }

    /// The device of the context.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.retained.device
    }

    /// The driver's handle, to compare with handles of other libraries. Equal handles are the same context.
    #[must_use]
    pub fn handle(&self) -> usize {
        self.retained.handle
    }

    /// Makes the context current on this thread until the returned guard is dropped. Then the context that
    /// was current before is current again.
    ///
    /// # Errors
    /// The driver's error ([`CudaError::Driver`](crate::CudaError::Driver)).
    pub fn make_current(&self) -> Result<CurrentContext<'_>> {
        self.device().driver().push_current(self.handle())?;
        Ok(CurrentContext { context: self, not_send: PhantomData })
    }

    /// As [`PrimaryContext::make_current`], for a few calls of the driver in a row: where such a guard lives
    /// already, another one costs nothing. No code of the program or of another library runs meanwhile, which
    /// could make another context current.
    pub(crate) fn enter(&self) -> Result<Entered<'_>> {
        let before = ENTERED.get();
        let current = if before == self.handle() { None } else { Some(self.make_current()?) };
        ENTERED.set(self.handle());
        Ok(Entered { before, _current: current })
    }

    /// An event that is not in use any more, if there is one.
    pub(crate) fn take_spare_event(&self) -> Option<usize> {
        self.spare_events().pop()
    }

    /// Keeps an event for later. Returns whether there was room.
    pub(crate) fn keep_spare_event(&self, event: usize) -> bool {
        let mut spare = self.spare_events();
        let has_room = spare.len() < MAX_SPARE_EVENTS;
        if has_room {
            spare.push(event);
        }
        has_room
    }

    fn spare_events(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        self.retained.spare_events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the device has done all work that was queued in this context.
    ///
    /// # Errors
    /// The driver's error, including errors of work that was queued before.
    pub fn synchronize(&self) -> Result<()> {
        let _current = self.make_current()?;
        self.device().driver().synchronize()
    }

    /// How much memory the device has, and how much of it is free, across all processes.
    ///
    /// # Errors
    /// The driver's error ([`CudaError::Driver`](crate::CudaError::Driver)).
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        let _current = self.make_current()?;
        let (free_bytes, total_bytes) = self.device().driver().memory_info()?;
        Ok(MemoryInfo { free_bytes, total_bytes })
    }
}

impl Drop for Retained {
    fn drop(&mut self) {
        let driver = self.device.driver();
        let spare = std::mem::take(self.spare_events.get_mut().unwrap_or_else(PoisonError::into_inner));
        // In a forked process this fails, and there is nothing to release.
        if !spare.is_empty() && driver.push_current(self.handle).is_ok() {
            for event in spare {
                let _ = driver.event_destroy(event);
            }
            let _ = driver.pop_current();
        }
        let _ = driver.primary_release(self.device.ordinal());
    }
}

/// A guard of [`PrimaryContext::enter`].
#[derive(Debug)]
pub(crate) struct Entered<'a> {
    before: usize,
    /// `None` inside of another guard.
    _current: Option<CurrentContext<'a>>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // The context itself is popped after this.
        ENTERED.set(self.before);
    }
}

/// A guard: while it lives, its context is current on its thread.
#[derive(Debug)]
pub struct CurrentContext<'a> {
    context: &'a PrimaryContext,
    /// A context is current on one thread, so the guard must not move to another.
    not_send: PhantomData<*const ()>,
}

impl Drop for CurrentContext<'_> {
    fn drop(&mut self) {
        let _ = self.context.device().driver().pop_current();
    }
}
