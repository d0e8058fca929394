//! Handles that are reused.

use std::sync::{Mutex, PoisonError};

use crate::driver::next_id;

/// Handles of one kind. In a real driver handles are addresses. So a new object often gets the handle of a
/// destroyed one, and code that still uses the old handle changes the new object.
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

    /// Makes the handle free for reuse.
    pub(crate) fn give_back(&self, handle: usize) {
        self.freed.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
    }
}
