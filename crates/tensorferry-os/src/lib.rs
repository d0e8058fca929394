//! The interface of tensorferry to the kernel.
//!
//! Every request to Linux goes through this crate: memory ([`memfd`], [`mapping`], [`sealed`]), waiting
//! ([`futex`]), processes ([`pidfd`], [`child`], [`mod@fork`], [`leash`]), descriptors that travel
//! ([`socket`], [`descriptor`]), what others have open ([`open_files`]), [`terminal`]s, and the limits of a
//! machine or a container ([`limits`]). It knows no concept of the layers above: no tensor, no queue, no
//! domain.
//!
//! Descriptors come in as `impl AsFd` and go out as `OwnedFd`, always close-on-exec. A call that the kernel
//! interrupts is repeated. An [`Error`] has the call, its argument in words, and the kernel's code.

mod address_space;
pub mod child;
pub mod descriptor;
mod error;
pub mod event;
mod flushing;
pub mod fork;
pub mod fork_detector;
pub mod futex;
pub mod leash;
pub mod limits;
pub mod mapping;
pub mod memfd;
pub mod open_files;
pub mod pidfd;
pub mod prefetch;
pub mod presence;
mod proc_file;
pub mod sealed;
pub mod socket;
pub mod tcp;
mod tcp_info;
pub mod terminal;
pub mod unwinding;

pub use error::{Error, Result};
