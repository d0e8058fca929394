//! The errors of a domain as a whole.

/// Why a domain could not be made, joined or used.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DomainError {
    /// The kernel refused.
    #[error(transparent)]
    Os(#[from] tensorferry_os::Error),
    /// Not even the smallest layout fits into the address space or the file size that this process may use.
    #[error(
        "no room for a domain: the smallest needs {needed_bytes} bytes, RLIMIT_AS is {}, RLIMIT_FSIZE is {}: \
         raise the limit (ulimit -v, -f)",
        told(*address_space_bytes), told(*file_size_bytes)
    )]
    NoAddressSpace {
        /// What the smallest layout needs, in bytes.
        needed_bytes: u64,
        /// The soft limit of address space in bytes, if there is one.
        address_space_bytes: Option<u64>,
        /// The soft limit of a file's size in bytes, if there is one.
        file_size_bytes: Option<u64>,
    },
    /// The descriptor is not a domain's.
    #[error("the descriptor is no tensorferry domain: {what}")]
    NotADomain {
        /// Which check failed, with the numbers.
        what: String,
    },
    /// The domain has another version of the layout.
    #[error(
        "the domain has layout version {found}, this library has {ours}: use one version in all processes"
    )]
    WrongVersion {
        /// The version in the file.
        found: u64,
        /// The version of this library.
        ours: u64,
    },
    /// Every process slot is taken.
    #[error(
        "the process table is full: all {slots} slots are taken by processes that live or are just being \
         swept"
    )]
    ProcessTableFull {
        /// How many slots a domain has.
        slots: usize,
    },
    /// Neither the process's pidfd nor `/proc` tells it from another with the same number.
    #[error(
        "process {pid} cannot be told from others: its pidfd has no inode of its own and /proc/{pid}/stat \
         cannot be read"
    )]
    UnknownProcess {
        /// The process number.
        pid: u32,
    },
    /// The admission is for another process or another domain, it was used or given back, or the member that
    /// made it has left.
    #[error("the admission to slot {slot} is not valid: {what}")]
    NotAdmitted {
        /// The slot that the admission names.
        slot: usize,
        /// Which check failed.
        what: String,
    },
    /// This process is a fork of a member, and not a member itself: something other than this library forked
    /// it, or it has not rejoined yet.
    #[error(
        "this process was forked from a member of the domain and is no member itself: start it with a start \
         method of tensorferry"
    )]
    Forked,
    /// The data area has no free run of extents.
    #[error(
        "the domain's address space is used up: {wanted} x {extent_len_bytes} bytes in a row wanted, \
         {n_extents} x {extent_len_bytes} in all: make the domain with more address_space_bytes, or raise \
         RLIMIT_AS or RLIMIT_FSIZE (ulimit -v, -f) where they made it small"
    )]
    NoExtents {
        /// The number of adjacent extents that were wanted.
        wanted: usize,
        /// The number of extents that the domain has.
        n_extents: usize,
        /// The size of an extent in bytes.
        extent_len_bytes: usize,
    },
    /// The allocation would pass the domain's limit of memory.
    #[error(
        "out of shared memory: {wanted_bytes} bytes wanted, {used_bytes} of the domain's limit of \
         {limit_bytes} bytes in use: free tensors, call Heap::trim(), or raise limit_bytes"
    )]
    Limit {
        /// The size of the request, in bytes.
        wanted_bytes: u64,
        /// The bytes that all members have populated.
        used_bytes: u64,
        /// The limit of the domain, in bytes.
        limit_bytes: u64,
    },
}

tensorferry_os::debug_as_display!(DomainError);

impl DomainError {
    /// Whether memory was short: the domain's limit or its address space is used up, or the kernel has no
    /// memory. The call can succeed once any member has freed some.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Limit { .. } | Self::NoExtents { .. } => true,
            Self::Os(error) => error.is_out_of_memory(),
            _ => false,
        }
    }
}

/// A limit in bytes, if there is one.
fn told(limit_bytes: Option<u64>) -> String {
    limit_bytes.map_or_else(|| "unlimited".to_owned(), |limit| format!("{limit} bytes"))
}
