//! Handles that are used again.

use std::sync::{Mutex, PoisonError};

use crate::driver::next_id;

/// Handles of one kind. In a real driver they are addresses, so a new thing often has the handle of one that is gone, and
/// whoever still uses the old handle does something to the new thing.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    freed: Mutex<Vec<usize>>,
}

impl Handles {
    /// The handle that was given back last, or a new one.
    pub(crate) fn take(&self) -> usize {
        let freed = self.freed.lock().unwrap_or_else(PoisonError::into_inner).pop();
        freed.unwrap_or_else(next_id)
    }

    /// Nothing has this handle any more.
    pub(crate) fn give_back(&self, handle: usize) {
        self.freed.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
    }
}
