//! Memory of the host that is pinned while copies run over it.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::control::SlabControl;
use crate::driver::Driver;

/// The copies of this process over one staged slab. While its memory is pinned, all of them are done by the device itself,
/// whoever had it pinned; so it is unpinned after the last of them.
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
    /// Has the memory pinned as long as the answer lives, which is as long as the copy runs. Memory that shares its pages with
    /// others is not, because they would be pinned with it; nor is what the driver refuses. Then it copies by way of
    /// memory of its own, and so do all who come meanwhile.
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

    /// For a copy that may run on, because it could not be waited for. What is pinned stays so, and is used for nothing else,
    /// until this process ends; what is not was copied before the driver returned.
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
            // Pinned for longer does no harm.
            let _ = self.driver.unpin(self.slab.staged_words());
        }
    }
}

impl fmt::Debug for Pinned<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("slab", &self.slab.name()).finish_non_exhaustive()
    }
}
