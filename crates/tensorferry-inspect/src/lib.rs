//! What the processes of a machine share, read from outside.
//!
//! A domain's file has no name, but `/proc` shows who has it open. So whoever may inspect one of its
//! processes ([`find`] says who may) can read what is in the domain: who its members are and what they hold,
//! how full its queues are, who has which lock. That answers what is asked when memory does not come back or
//! a program stands still, without stopping it and without a line of code in it.
//!
//! ```
//! use tensorferry_storage::Heap;
//!
//! let kept = Heap::current()?.allocate(1 << 20)?;
//! let me = std::process::id();
//! for domain in tensorferry_inspect::find_of(me)? {
//!     let snapshot = domain.snapshot()?;
//!     for member in &snapshot.members {
//!         println!("{:?} holds {} bytes in {} blocks", member.pid, member.holds.bytes, member.holds.blocks);
//!     }
//!     for queue in snapshot.queues.iter().filter(|queue| queue.waiting_items == queue.capacity_items) {
//!         println!("a queue is full: {:?} do not get on", queue.receivers);
//!     }
//! }
//! # drop(kept);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The program `tensorferry top` (crate `tensorferry-cli`) prints the same. A process that wants to know
//! about its own domain has [`Heap::snapshot`](tensorferry_storage::Heap::snapshot).
//!
//! # What it costs
//! The domain is read, not joined: no member notices, nothing in it changes, and no memory is mapped. A
//! [`FoundDomain`] keeps no descriptor, so it keeps no memory alive; a snapshot has one while it is read.

#![forbid(unsafe_code)]

mod error;
mod find;

pub use error::InspectError;
pub use find::{FoundDomain, Search, command_line, find, find_of, process_status};
pub use tensorferry_os::open_files::Status;
pub use tensorferry_storage::{
    Amount, BlockKind, BlockSnapshot, HeldByKind, LastOwner, MemberSnapshot, MemberState, MonitorSnapshot,
    QueueSnapshot, Snapshot,
};
#[doc(hidden)]
pub use tensorferry_sync::name_of_purpose;
