//! What the layer above does when the domain notices something.

use std::time::Duration;

use crate::Member;

/// What a domain's service thread calls; implemented by the heap of `tensorferry-storage`.
pub trait ServiceHandler: Send + Sync {
    /// Gives back everything that the `dead` held in shared memory. Their processes are proven gone. Called again, from
    /// the beginning and perhaps with others, by another member if this one dies in the middle: every step must be
    /// idempotent. Returns whether all of it could be reached; if not, it is called again later.
    fn sweep(&self, dead: &[Member]) -> bool;

    /// Whether anybody holds the block with this name, or a message names it: whether a descriptor that was stored under
    /// the name is still needed.
    fn is_held(&self, name: u64) -> bool;

    /// Looks after what finishes elsewhere (messages that were taken, memory that came back). Returns when it
    /// wants to be called again; `None` means not before somebody wakes the thread.
    fn tick(&self) -> Option<Duration>;
}
