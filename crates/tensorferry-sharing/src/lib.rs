//! Strategies: how other processes get access to a domain's memory.
//!
//! The vocabulary is torch's: a *sharing strategy* decides what backs the next default domain. One strategy
//! is implemented:
//!
//! - [`SharingStrategy::FileDescriptor`]: a sealed memfd. Children inherit its descriptor when they are
//!   started. It has no name, so nothing can be left behind, and its size does not depend on the mount of
//!   `/dev/shm`.
//!
//! Memory outside of a domain's file travels as a descriptor. [`FdStore`] stores such descriptors, so that
//! they outlive the process that made them. [`FdStoreClient`] is a member's connection to it.
//!
//! The set of strategies is probed, not assumed ([`get_all_sharing_strategies`]). Where memfd_create(2) is
//! refused, the set is empty, and every attempt to make a domain is an error.
//!
//! ```
//! use tensorferry_sharing::{
//!     SharingStrategy, get_all_sharing_strategies, get_sharing_strategy, set_sharing_strategy,
//! };
//!
//! assert!(get_all_sharing_strategies().contains(&SharingStrategy::FileDescriptor));
//! set_sharing_strategy(SharingStrategy::FileDescriptor)?;
//! assert_eq!(get_sharing_strategy().to_string(), "file_descriptor");
//! # Ok::<(), tensorferry_sharing::SharingStrategyError>(())
//! ```

#![forbid(unsafe_code)]

mod backing;
mod fd_store;
mod strategy;

pub use backing::Backing;
pub use fd_store::{FdStore, FdStoreClient, FdStoreError};
pub use strategy::{
    SharingStrategy, SharingStrategyError, get_all_sharing_strategies, get_sharing_strategy,
    set_sharing_strategy,
};
