//! What a monitor is used for. The numbers stand in its block, so that a handle of one kind refuses the memory
//! of another.

pub(crate) const LOCK: u64 = 1;
pub(crate) const EVENT: u64 = 2;
pub(crate) const SEMAPHORE: u64 = 3;
pub(crate) const BARRIER: u64 = 4;
pub(crate) const CONDITION: u64 = 5;
pub(crate) const RW_LOCK: u64 = 6;
