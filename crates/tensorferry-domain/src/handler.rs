//! The calls that a domain makes to the layer above it.

use std::time::Duration;

use crate::Member;

/// The calls of a domain's service thread. The heap of `tensorferry-storage` implements them.
pub trait ServiceHandler: Send + Sync {
    /// Gives back everything that the `dead` held in shared memory. Their processes are proven gone.
    ///
    /// If this member dies in the middle, another member makes the call again from the beginning, perhaps
    /// with other members added. So every step must be idempotent. Returns whether all of it could be
    /// reached; if not, the call is repeated later.
    fn sweep(&self, dead: &[Member]) -> bool;

    /// Whether any member holds the block with this name, or a message names it. If not, a descriptor that
    /// was stored under the name is no longer needed.
    fn is_held(&self, name: u64) -> bool;

    /// Finishes work that depends on other members, such as messages that were taken and memory that came
    /// back. Returns the time until the next call; `None` means not before the thread is woken.
    fn tick(&self) -> Option<Duration>;
}
