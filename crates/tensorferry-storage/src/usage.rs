//! Statistics of a heap.

use tensorferry_domain::MemberInfo;

/// What this process's side of a heap holds. The counts are of blocks in extents that this process owns,
/// whichever member holds the blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapUsage {
    /// Blocks that a member holds.
    pub live_blocks: u64,
    /// Their lengths added up, in bytes.
    pub live_bytes: u64,
    /// Memory that is populated, headers and free blocks included, in bytes.
    pub populated_bytes: u64,
    /// How often fresh memory had to be populated: flat in a steady state.
    pub populate_calls: u64,
}

impl HeapUsage {
    /// Memory that is kept for the next allocations, in bytes.
    #[must_use]
    pub fn cached_bytes(&self) -> u64 {
        self.populated_bytes.saturating_sub(self.live_bytes)
    }
}

/// Statistics of a whole domain, as one of its members sees them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HeapStats {
    /// This process's side.
    pub own: HeapUsage,
    /// Every member, with what it published last.
    pub members: Vec<MemberInfo>,
    /// What all members have populated, in bytes.
    pub populated_bytes: u64,
    /// What all members may populate, in bytes.
    pub limit_bytes: u64,
    /// Messages whose blocks this process still pins: their slots have not moved on yet, or it has not looked
    /// since.
    pub messages_pinned: usize,
}
