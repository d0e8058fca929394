//! Errors of blocks and rings.

use tensorferry_domain::DomainError;

/// Why memory could not be allocated, or a reference could not be followed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The domain refused: its limit or its address space is used up, or the kernel failed. The message has
    /// the numbers.
    #[error(transparent)]
    Domain(#[from] DomainError),
    /// A block that is larger than the domain can ever hold.
    #[error("a block of {len_bytes} bytes does not fit into a domain of {address_space_bytes} bytes")]
    TooLarge {
        /// The length asked for, in bytes.
        len_bytes: usize,
        /// The domain's data area, in bytes.
        address_space_bytes: usize,
    },
    /// A ring with more slots than a ring can have.
    #[error("a queue for {n_slots} messages cannot be made: at most {limit} are possible")]
    TooManySlots {
        /// The number asked for.
        n_slots: usize,
        /// The largest number possible.
        limit: usize,
    },
    /// A ring with more leases than a ring can have.
    #[error("a queue with {n_leases} leases cannot be made: at most {limit} are possible")]
    TooManyLeases {
        /// The number asked for.
        n_leases: usize,
        /// The largest number possible.
        limit: usize,
    },
    /// A bundle or a parcel with more handles than one can have.
    #[error(
        "{n_blocks} blocks are too many for one bundle, or for one process's arguments: at most {limit} are possible, of which each may be a bundle if it is not in one"
    )]
    TooManyBlocks {
        /// The number asked for.
        n_blocks: usize,
        /// The largest number possible.
        limit: usize,
    },
    /// A handle that no bundle can keep: a bundle is for any number of processes, and for blocks alone.
    #[error("a bundle holds frozen and shared blocks, and nothing exclusive, no queue and no other bundle")]
    NotForBundles,
    /// A bundle has no block with this number, or another kind of it.
    #[error("the bundle has no {wanted} with the number {index}; it has {n_blocks} blocks")]
    NotInBundle {
        /// The number asked for.
        index: usize,
        /// What was asked for.
        wanted: &'static str,
        /// How many blocks the bundle has.
        n_blocks: usize,
    },
    /// A reference from another process names no live block. The message that carried it is lost.
    #[error("a reference from another process is not valid: {what} ({reference:#018x})")]
    BadReference {
        /// The reference as it arrived.
        reference: u64,
        /// Which check failed.
        what: &'static str,
    },
    /// What a block of this domain needs cannot be reached, because some member has overwritten the domain's
    /// tables.
    #[error(
        "the memory of the domain is damaged at {offset_bytes:#x}, by a member that wrote where it must not: {what}"
    )]
    Damaged {
        /// Where in the data area, in bytes: a block's header, or the line of the extent's head that
        /// describes it.
        offset_bytes: u64,
        /// What was found.
        what: &'static str,
    },
    /// A handle of another domain in a message of this one.
    #[error("a block of another domain cannot be sent in a message of this one")]
    ForeignDomain,
    /// This process has a default heap already.
    #[error(
        "this process is a member of a default domain already: choose one before the first tensor, queue or process"
    )]
    AlreadyJoined,
}

/// What a `main` that returns this error prints. Written by hand, because the models compile this file
/// without `tensorferry-os`.
impl std::fmt::Debug for StorageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl StorageError {
    /// Whether memory was short; see [`DomainError::is_out_of_memory`]. False for a block that no domain of
    /// this size could hold ([`StorageError::TooLarge`]).
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Domain(error) if error.is_out_of_memory())
    }
}

impl From<tensorferry_os::Error> for StorageError {
    fn from(error: tensorferry_os::Error) -> Self {
        Self::Domain(error.into())
    }
}
