//! Waiting for the end of members that this process watches.

use std::sync::atomic::AtomicU32;

use crate::WaitWord;

/// A word of this process that is woken shortly after a member has died that this process watches: one that
/// it admitted, or a neighbour in the table. The service thread wakes it, so wait at it as at the words of
/// shared memory, by [`wait_any_until`](crate::wait_any_until).
#[must_use]
pub fn deaths_seen() -> WaitWord<'static> {
    static WORD: AtomicU32 = AtomicU32::new(0);
    WaitWord::new(&WORD)
}
