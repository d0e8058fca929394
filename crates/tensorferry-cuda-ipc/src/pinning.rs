//! Host memory that is pinned while copies run over it.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::control::SlabControl;
use crate::driver::Driver;

/// The copies of this process over one staged slab. While the memory is pinned, the device does all of the
/// copies itself, whichever of them pinned it. So it is unpinned after the last of them.
#[derive(Debug, Default)]
pub(crate) struct Pinning {
    copies: Mutex<Copies>,
}

#[derive(Debug, Default)]
struct Copies {
    n_running: usize,
    is_pinned: bool,
}

/// A copy that runs.
pub(crate) struct Pinned<'a> {
    pinning: &'a Pinning,
    driver: &'a Driver,
    slab: &'a SlabControl,
}

impl Pinning {
    /// Pins the memory as long as the returned guard lives, which is as long as the copy runs. Memory that
    /// shares its pages with other blocks is not pinned, because the others would be pinned with it. Nor is
    /// memory that the driver refuses to pin. Then the driver copies through memory of its own, for this copy
    /// and all that start before it ends.
    pub(crate) fn pin<'a>(&'a self, driver: &'a Driver, slab: &'a SlabControl) -> Pinned<'a> {
        let mut copies = self.copies();
        if copies.n_running == 0 && slab.0.block().has_own_pages() {
            copies.is_pinned = driver.pin(slab.staged_words()).is_ok();
        }
        copies.n_running += 1;
        Pinned { pinning: self, driver, slab }
    }

    fn copies(&self) -> MutexGuard<'_, Copies> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pinned<'_> {
    /// The memory.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.slab.staged_words()
    }

    /// For a copy that may still run, because it could not be waited for. Pinned memory stays pinned until
    /// this process ends, and is used for nothing else. If it is not pinned, the driver copied the bytes
    /// before it returned.
    pub(crate) fn abandon(self) {
        let is_pinned = self.pinning.copies().is_pinned;
        if is_pinned {
            let _ = ManuallyDrop::new((self.slab.clone(), self));
        }
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        let mut copies = self.pinning.copies();
        copies.n_running = copies.n_running.saturating_sub(1);
        if copies.n_running == 0 && std::mem::take(&mut copies.is_pinned) {
            // If unpinning fails, the memory stays pinned, which does no harm.
            let _ = self.driver.unpin(self.slab.staged_words());
        }
    }
}

impl fmt::Debug for Pinned<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("slab", &self.slab.name()).finish_non_exhaustive()
    }
}
