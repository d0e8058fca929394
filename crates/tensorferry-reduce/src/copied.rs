//! Counts the bytes of tensor data that the transport copied. The aim is zero.

use std::sync::atomic::{AtomicU64, Ordering};

static COPIED: AtomicU64 = AtomicU64::new(0);

/// Counts `len_bytes` of tensor data as copied, because a tensor was private or of another domain when it was
/// sent.
pub fn count_copied(len_bytes: usize) {
    COPIED.fetch_add(len_bytes as u64, Ordering::Relaxed);
}

/// The bytes of tensor data that the transport has copied in this process since the process started.
#[must_use]
pub fn bytes_copied() -> u64 {
    COPIED.load(Ordering::Relaxed)
}
