//! The ring, the wait protocol and the holder bits of the library, run by loom: every interleaving and every
//! stale value that the orderings *as they are written* allow, within a bound on preemptions.
//!
//! The files named below with a path are those of the library, compiled once more: here `crate::atomic` is
//! loom's and not the standard library's. What they need and what is not under test is a stand-in from this
//! crate with the same names: the heap, messages, attachments, the futex. [`atomic`] can also kill a thread
//! before any of its accesses, and weaken one ordering, so that each check is shown to check something.
//!
//! docs/TESTING.md says what is the library's own code here and what is written after it.

// The unit tests in those files are for their own crates.
#![cfg(not(test))]

// The files of the library find what they use under its own names.
extern crate self as tensorferry_domain;
extern crate self as tensorferry_os;

pub mod atomic;
mod attachments;
mod block;
mod explore;
pub mod futex;
mod heap;
pub mod holding;
pub mod leasing;
pub mod locking;
mod message;
pub mod passing;
mod plain;
pub mod waiting;

#[path = "../../../crates/tensorferry-storage/src/attached_ring.rs"]
#[allow(dead_code, unreachable_pub, reason = "not all of it is under test")]
mod attached_ring;
#[path = "../../../crates/tensorferry-storage/src/class.rs"]
#[allow(dead_code, unreachable_pub, reason = "not all of it is under test")]
mod class;
#[path = "../../../crates/tensorferry-storage/src/deadline.rs"]
#[allow(dead_code, unreachable_pub, reason = "not all of it is under test")]
mod deadline;
#[path = "../../../crates/tensorferry-storage/src/error.rs"]
#[allow(dead_code, unreachable_pub, reason = "not all of it is under test")]
mod error;
#[path = "../../../crates/tensorferry-storage/src/header.rs"]
#[allow(dead_code, unreachable_pub, reason = "not all of it is under test")]
mod header;
#[path = "../../../crates/tensorferry-storage/src/lease.rs"]
#[allow(dead_code, unreachable_pub, reason = "not all of it is under test")]
mod lease;
#[path = "../../../crates/tensorferry-storage/src/monitor_words.rs"]
#[allow(dead_code, unreachable_pub, reason = "not all of it is under test")]
mod monitor_words;
#[path = "../../../crates/tensorferry-storage/src/pins.rs"]
#[allow(dead_code, unreachable_pub, reason = "not all of it is under test")]
mod pins;
#[path = "../../../crates/tensorferry-storage/src/record.rs"]
#[allow(dead_code, unreachable_pub, reason = "not all of it is under test")]
mod record;
#[path = "../../../crates/tensorferry-storage/src/reference.rs"]
#[allow(dead_code, unreachable_pub, reason = "not all of it is under test")]
mod reference;
#[path = "../../../crates/tensorferry-storage/src/ring.rs"]
#[allow(dead_code, unreachable_pub, reason = "not all of it is under test")]
mod ring;
#[path = "../../../crates/tensorferry-storage/src/ring_layout.rs"]
#[allow(dead_code, unreachable_pub, reason = "not all of it is under test")]
mod ring_layout;
#[path = "../../../crates/tensorferry-storage/src/slot.rs"]
#[allow(dead_code, unreachable_pub, reason = "not all of it is under test")]
mod slot;
#[path = "../../../crates/tensorferry-storage/src/sweep_ring.rs"]
#[allow(dead_code, unreachable_pub, reason = "not all of it is under test")]
mod sweep_ring;
#[path = "../../../crates/tensorferry-domain/src/wait.rs"]
#[allow(dead_code, unreachable_pub, reason = "not all of it is under test")]
mod wait;
#[path = "../../../crates/tensorferry-domain/src/wait_any.rs"]
#[allow(dead_code, unreachable_pub, reason = "not all of it is under test")]
mod wait_any;

pub use domain::{DomainError, MAX_MEMBERS, Member, planted};
pub use error::StorageError;
pub use explore::{Outcome, Weakened};
pub use os::{Error, Error as OsError, mapping};
pub use plain::{Spin, ensure_services_started};
pub use ring::Consumers;
pub use wait::{TimedOut, WaitWord};
