//! How many bytes of tensor data the transport copied. Zero is the point of the whole thing.

use std::sync::atomic::{AtomicU64, Ordering};

static COPIED: AtomicU64 = AtomicU64::new(0);

/// Counts `len_bytes` of tensor data as copied: a private tensor that was sent, or one of another domain.
pub fn count_copied(len_bytes: usize) {
    COPIED.fetch_add(len_bytes as u64, Ordering::Relaxed);
}

/// Bytes of tensor data that this process's transport has copied since it started.
#[must_use]
pub fn bytes_copied() -> u64 {
    COPIED.load(Ordering::Relaxed)
}
