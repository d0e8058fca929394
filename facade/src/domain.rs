//! A domain: the memory that a group of processes shares, as one file descriptor.
//!
//! What a program needs of it; the rest of the crate `tensorferry-domain` is for crates that build on it.
//!
//! ```
//! use tensorferry::Domain;
//!
//! let domain = Domain::builder().limit_bytes(64 << 20).create()?;
//! assert_eq!(domain.members().len(), 1);
//! # Ok::<(), tensorferry::domain::DomainError>(())
//! ```

pub use tensorferry_domain::{
    Admission, Domain, DomainBuilder, DomainError, DomainFds, Identity, MAX_MEMBERS, Member, MemberInfo,
    OsError, Phase, PidFd,
};
