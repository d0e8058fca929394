//! What can go wrong with blocks.

use tensorferry_domain::DomainError;

/// Why memory could not be had, or a reference could not be followed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The domain refused: its limit, its address space, or the kernel. The message carries the numbers.
    #[error(transparent)]
    Domain(#[from] DomainError),
    /// One block larger than a domain can ever hold.
    #[error("a block of {len_bytes} bytes does not fit into a domain of {address_space_bytes} bytes")]
    TooLarge {
        /// What was asked for, in bytes.
        len_bytes: usize,
        /// The domain's data area, in bytes.
        address_space_bytes: usize,
    },
    /// A ring with more slots than a ring can have.
    #[error("a queue for {n_slots} messages cannot be made: at most {limit} are possible")]
    TooManySlots {
        /// What was asked for.
        n_slots: usize,
        /// The most that are possible.
        limit: usize,
    },
    /// A ring with more leases than a ring can have.
    #[error("a queue with {n_leases} leases cannot be made: at most {limit} are possible")]
    TooManyLeases {
        /// What was asked for.
        n_leases: usize,
        /// The most that are possible.
        limit: usize,
    },
    /// A reference from another process that names no live block. The message that carried it is lost.
    #[error("a reference from another process is not valid: {what} ({reference:#018x})")]
    BadReference {
        /// The reference as it arrived.
        reference: u64,
        /// Which check failed.
        what: &'static str,
    },
    /// A handle of another domain in a message of this one.
    #[error("a block of another domain cannot be sent in a message of this one")]
    ForeignDomain,
    /// The process has a default heap already.
    #[error("this process is a member of a default domain already")]
    AlreadyJoined,
}

/// What a `main` that returns it prints. Written out, because the models compile this file without `tensorferry-os`.
impl std::fmt::Debug for StorageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl StorageError {
    /// Whether memory was short; see [`DomainError::is_out_of_memory`]. A block that no domain of this size could hold
    /// ([`StorageError::TooLarge`]) is another matter.
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
