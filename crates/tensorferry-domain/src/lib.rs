//! A domain: the memory that a group of processes shares, as **one file descriptor**.
//!
//! ```text
//! file offset 0
//! | header | process table | extent table | data: extent 0 | extent 1 | ...            (sparse) |
//! ```
//!
//! Every member maps the whole file once, its tables apart from its data. From then on everything is an
//! offset: handing over memory is arithmetic, without a system call, a descriptor or a handshake. The file is
//! sparse: a terabyte of address space costs nothing until it is touched. It is sealed against resizing and
//! has no name, and the kernel frees it when the last member is gone.
//!
//! This crate knows three things and no more:
//!
//! - which processes are members ([`Member`], [`Domain::admit`], [`Domain::join`]) and which have died. A
//!   death is acted on only with *proof* (a pidfd, or a lock that the kernel has released), never after a
//!   time-out, and by one stamped sweeper at a time ([`ServiceHandler`]);
//! - where each member may allocate ([`Memory::claim_extents`]): the data area is cut into extents, and each
//!   is owned by one member or by nobody;
//! - how to wait for another process ([`WaitWord`]): spin as long as it pays, then sleep on a futex.
//!
//! The contents of an extent are the business of `tensorferry-storage`.
//!
//! ```
//! use tensorferry_domain::Domain;
//!
//! let domain = Domain::builder().limit_bytes(64 << 20).create()?;
//! assert_eq!(domain.members().len(), 1);
//! # Ok::<(), tensorferry_domain::DomainError>(())
//! ```

mod admission;
#[doc(hidden)]
pub mod atomic;
mod builder;
mod claims;
mod deaths_seen;
mod domain;
mod domain_file;
mod error;
mod extent;
mod handler;
mod layout;
mod long_spin;
mod member;
mod memory;
mod plant;
mod scans;
mod service;
mod spin;
mod wait;
mod wait_any;
#[cfg(test)]
mod wire_tests;

pub use admission::Admission;
pub use builder::DomainBuilder;
pub use deaths_seen::deaths_seen;
pub use domain::{Domain, DomainFds};
pub use domain_file::{DomainFile, RunInfo};
pub use error::DomainError;
pub use extent::{ExtentOwner, ExtentRun};
pub use handler::ServiceHandler;
pub use layout::{Layout, MAX_MEMBERS};
pub use member::{Member, MemberInfo, Phase};
pub use memory::Memory;
#[doc(hidden)]
pub use plant::planted;
pub use service::Parked;
#[doc(hidden)]
pub use service::ensure_services_started;
pub use spin::Spin;
pub use tensorferry_os::Error as OsError;
pub use tensorferry_os::pidfd::{Identity, PidFd};
pub use tensorferry_sharing::FdStoreError;
pub use wait::{TimedOut, WaitWord};
pub use wait_any::{WaitAnyError, wait_any_until};
