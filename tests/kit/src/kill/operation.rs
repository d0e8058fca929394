//! What a child is killed in.

use serde::{Deserialize, Serialize};

/// One call of the library that is stepped through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Puts a message with two tensors.
    Put,
    /// Puts a message that does not fit into a slot.
    PutSpilled,
    /// Puts a message while a receiver sleeps.
    PutToSleeper,
    /// Gets a message with two tensors.
    Get,
    /// Gets a message that does not fit into a slot.
    GetSpilled,
    /// Puts a bundle.
    PutBundle,
    /// Gets a bundle.
    GetBundle,
    /// Makes a bundle, and drops it.
    Bundle,
    /// Takes a tensor out of a bundle of another member, and drops the last handle on the bundle.
    DropBundle,
    /// Gets a message. The child is not killed: it stands still while the others go on, and must then go on
    /// itself.
    GetStandingStill,
    /// Puts a tensor that is its alone.
    PutExclusive,
    /// Gets a tensor that is nobody else's.
    GetExclusive,
    /// Leases a message.
    Lease,
    /// Leases a message that somebody gave back.
    LeaseAgain,
    /// Acknowledges a message that it has leased.
    Ack,
    /// Gives a leased message back.
    GiveBack,
    /// Clones tensors and a queue, and drops the clones.
    Clone,
    /// Drops the last handle on blocks of its own.
    DropOwn,
    /// Drops the last handle on blocks of another member.
    DropOthers,
    /// Drops the last handle on blocks whose owner died.
    DropOrphans,
    /// Drops a block that lies in a span of its own.
    DropLarge,
    /// Allocates for the first time: claims an extent.
    AllocateFirst,
    /// Allocates for the first time, where a dead member left an extent: adopts it.
    AllocateAdopting,
    /// Allocates in a new slab.
    AllocateSlab,
    /// Allocates what was in use before.
    AllocateRecycled,
    /// Allocates a block that gets a span of its own.
    AllocateLarge,
    /// Packs arguments for a process, and takes them back.
    Parcel,
    /// Invites another process.
    Admit,
    /// Joins the domain and opens its arguments.
    Join,
    /// Drops its last end of a queue.
    LeaveQueue,
    /// Drops its last handle on a domain.
    LeaveDomain,
    /// Takes a lock, changes what it protects, and releases it.
    Lock,
    /// Takes a permit of a semaphore and gives it back.
    Acquire,
    /// Takes a lock for many readers to read what it protects, and lets go of it.
    Read,
    /// Takes the same lock to write.
    Write,
    /// Sweeps a member that died.
    Sweep,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 36] = [
        Self::Put,
        Self::PutSpilled,
        Self::PutToSleeper,
        Self::Get,
        Self::GetSpilled,
        Self::PutBundle,
        Self::GetBundle,
        Self::Bundle,
        Self::DropBundle,
        Self::GetStandingStill,
        Self::PutExclusive,
        Self::GetExclusive,
        Self::Lease,
        Self::LeaseAgain,
        Self::Ack,
        Self::GiveBack,
        Self::Clone,
        Self::DropOwn,
        Self::DropOthers,
        Self::DropOrphans,
        Self::DropLarge,
        Self::AllocateFirst,
        Self::AllocateAdopting,
        Self::AllocateSlab,
        Self::AllocateRecycled,
        Self::AllocateLarge,
        Self::Parcel,
        Self::Admit,
        Self::Join,
        Self::LeaveQueue,
        Self::LeaveDomain,
        Self::Lock,
        Self::Acquire,
        Self::Read,
        Self::Write,
        Self::Sweep,
    ];

    /// What it is called on a command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::PutSpilled => "put-spilled",
            Self::PutToSleeper => "put-to-sleeper",
            Self::Get => "get",
            Self::GetSpilled => "get-spilled",
            Self::PutBundle => "put-bundle",
            Self::GetBundle => "get-bundle",
            Self::Bundle => "bundle",
            Self::DropBundle => "drop-bundle",
            Self::GetStandingStill => "get-standing-still",
            Self::PutExclusive => "put-exclusive",
            Self::GetExclusive => "get-exclusive",
            Self::Lease => "lease",
            Self::LeaseAgain => "lease-again",
            Self::Ack => "ack",
            Self::GiveBack => "give-back",
            Self::Clone => "clone",
            Self::DropOwn => "drop-own",
            Self::DropOthers => "drop-others",
            Self::DropOrphans => "drop-orphans",
            Self::DropLarge => "drop-large",
            Self::AllocateFirst => "allocate-first",
            Self::AllocateAdopting => "allocate-adopting",
            Self::AllocateSlab => "allocate-slab",
            Self::AllocateRecycled => "allocate-recycled",
            Self::AllocateLarge => "allocate-large",
            Self::Parcel => "parcel",
            Self::Admit => "admit",
            Self::Join => "join",
            Self::LeaveQueue => "leave-queue",
            Self::LeaveDomain => "leave-domain",
            Self::Lock => "lock",
            Self::Acquire => "acquire",
            Self::Read => "read",
            Self::Write => "write",
            Self::Sweep => "sweep",
        }
    }

    /// The one that is called so.
    #[must_use]
    pub fn with_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.name() == name)
    }

    /// About how many positions it has.
    #[must_use]
    pub fn n_positions(self) -> u64 {
        match self {
            Self::PutSpilled => 69,
            Self::Join | Self::Sweep => 48,
            Self::AllocateFirst | Self::Admit => 24,
            Self::AllocateSlab | Self::GetSpilled => 18,
            Self::PutToSleeper | Self::AllocateAdopting | Self::AllocateLarge => 14,
            Self::Lock | Self::Acquire => 7,
            Self::LeaveQueue | Self::Clone | Self::Ack | Self::GiveBack => 4,
            Self::Parcel => 35,
            _ => 11,
        }
    }

    /// Whether it has to do with a message that another member put.
    pub(super) fn gets(self) -> bool {
        matches!(self, Self::Get | Self::GetSpilled | Self::GetBundle | Self::GetStandingStill)
            || self.leases()
    }

    pub(super) fn leases(self) -> bool {
        matches!(self, Self::Lease | Self::LeaseAgain | Self::Ack | Self::GiveBack)
    }

    /// Whether it has to do with what one process has to itself.
    pub(super) fn is_exclusive(self) -> bool {
        matches!(self, Self::PutExclusive | Self::GetExclusive)
    }

    /// Whether it has to do with locks and the like.
    pub(super) fn synchronizes(self) -> bool {
        matches!(self, Self::Lock | Self::Acquire | Self::Read | Self::Write)
    }

    /// Whether the child has neither put nor got anything before.
    pub(super) fn is_first_use(self) -> bool {
        matches!(self, Self::AllocateFirst | Self::AllocateAdopting | Self::Join)
    }

    /// Whether the child gets, before it begins, what another member put.
    pub(super) fn needs_others_blocks(self) -> bool {
        matches!(self, Self::DropOthers | Self::DropOrphans | Self::DropBundle)
    }
}
