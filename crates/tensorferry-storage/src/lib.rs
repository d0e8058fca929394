//! Blocks of shared memory whose holders may crash, and the rings that carry them.
//!
//! A [`Heap`] is one process's view of the memory of a domain. It allocates blocks. A block is in one of
//! three states, and each state is a type: [`ExclusiveBlock`] (one handle, which reads and writes),
//! [`FrozenBlock`] (any number of handles, which only read), [`SharedBlock`] (any number of handles, which
//! read and write atomic words). A block's header has one bit for each process of the domain. Nothing is
//! counted in shared memory, so no crash can make a count wrong. Inside a process, clones are counted
//! privately.
//!
//! Blocks travel through a [`Ring`]: a bounded ring of slots in which every claim names its owner. A process
//! that is killed at any instruction therefore neither loses a committed message nor blocks another process.
//! A message names its blocks in a table that every member can read. After a death, a sweep reads these
//! tables to find out which blocks are still needed.
//!
//! A [`Bundle`] is a block that names many others and keeps them. It travels as one handle.
//!
//! Memory is recycled: a block that comes back keeps its pages, so a steady stream of messages allocates
//! nothing and causes no page fault. Fresh memory is populated before it is handed out, after a check against
//! the domain's limit. Running out of memory is therefore an error that names the numbers.
//!
//! ```
//! use tensorferry_domain::Domain;
//! use tensorferry_storage::{Consumers, Deadline, Heap, OutgoingHandle, Ring};
//!
//! let heap = Heap::create(Domain::builder().limit_bytes(64 << 20))?;
//! let ring = Ring::create(&heap, 4, 0)?;
//!
//! let mut block = heap.allocate(1 << 20)?;
//! block.bytes_mut().fill(7);
//! let handles = OutgoingHandle::frozen(&block.freeze()).into_iter().collect();
//! ring.put(b"a megabyte of sevens", handles, Deadline::Now)?;
//!
//! let mut message = ring.take(Consumers::Multi, Deadline::Now)?;
//! assert_eq!(&message.payload[..], b"a megabyte of sevens");
//! let block = message.handles[0].take_frozen().ok_or("no block to read")?;
//! assert!(block.bytes().iter().all(|&byte| byte == 7));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod access;
mod arena;
mod attached_ring;
mod attachments;
mod block;
mod bundle;
mod cell;
mod cell_table;
mod class;
mod deadline;
mod error;
mod free_list;
mod geometry;
mod handle;
mod header;
mod heap;
mod held_monitor;
mod lease;
mod message;
mod monitor;
mod monitor_words;
mod named;
mod parcel;
mod payload;
mod pins;
mod place;
mod posted;
mod ready;
mod record;
mod reference;
mod ring;
mod ring_layout;
mod scan;
mod scan_requests;
mod scratch;
mod slot;
mod snapshot;
mod sweep;
mod sweep_ring;
mod tick;
mod usage;
#[cfg(test)]
mod waking_tests;
mod walk;
#[cfg(test)]
mod wire_tests;

use tensorferry_domain::atomic;

pub use access::{ExclusiveBlock, FrozenBlock, OfferedBlock, SharedBlock};
pub use attachments::Attachment;
pub use bundle::{Bundle, BundleBlocks};
pub use deadline::Deadline;
pub use error::StorageError;
pub use heap::Heap;
pub use lease::{Lease, LeaseLostError};
pub use message::{
    Contents, IncomingHandle, IncomingHandles, IncomingMessage, MAX_HANDLES, OutgoingHandle, OutgoingHandles,
};
pub use monitor::{Entered, Monitor, MonitorError, MonitorView, ReceivedMonitor};
pub use monitor_words::LastOwner;
pub use parcel::Parcel;
pub use payload::Payload;
pub use ready::Awaited;
pub use reference::{BlockId, Role};
pub use ring::{Consumers, Ring, RingJoinError, RingPutError, RingTakeError};
pub use scratch::Scratch;
pub use snapshot::{
    Amount, BlockKind, BlockSnapshot, HeldByKind, MemberSnapshot, MemberState, MonitorSnapshot,
    QueueSnapshot, Snapshot,
};
pub use tensorferry_domain::WaitAnyError;
#[doc(hidden)]
pub use tensorferry_os::debug_as_display;
pub use usage::{HeapStats, HeapUsage};
