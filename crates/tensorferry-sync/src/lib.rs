//! Values, arrays, locks and the like in shared memory.
//!
//! | type | Python's name |
//! | --- | --- |
//! | [`Lock`], [`RLock`] | the same |
//! | [`RwLock`] | a lock for many readers or one writer |
//! | [`Semaphore`] | `Semaphore`, `BoundedSemaphore` |
//! | [`Condition`], [`Event`], [`Barrier`] | the same |
//! | [`RawValue`], [`RawArray`] | the same |
//!
//! # Locks and the like
//!
//! They are handles that travel: a clone is another handle, and so is the value that a receiver gets when one
//! is sent through a queue or as a spawn argument. When a process dies, what it had is free, and whoever has
//! to know is told: the next owner of a lock by [`LockError::Poisoned`], those who wait for an event or at a
//! condition by [`WaitError::PeerDied`], all who come to a barrier by [`BarrierError::Broken`].
//!
//! # Values and arrays
//!
//! [`RawValue`] is one number that several processes read and write. [`RawArray`] is a fixed number of them.
//! The names are Python's: *raw* means without a lock. No call blocks, and a process that is killed in the
//! middle of a call leaves no lock behind. Each call on one element is one atomic step. `fetch_add` therefore
//! loses no addition, whereas Python's `value += 1` loses some without a lock.
//!
//! Both types are handles. A clone is another handle on the same memory, and so is the value that a receiver
//! gets when one is sent through a queue or as a spawn argument. The memory lives as long as any handle in
//! any process.
//!
//! An element of any type takes one 64-bit word. That suits flags, counters and a result per process. For
//! dense data use `SharedTensor` of `tensorferry-tensor`.
//!
//! ```
//! use tensorferry_sync::{RawArray, RawValue};
//!
//! let done = RawValue::new(0_u32)?;
//! let losses = RawArray::new(&[f64::INFINITY; 4])?;
//! std::thread::scope(|scope| {
//!     for rank in 0..losses.len() {
//!         // Another process would get the handles with its arguments.
//!         let (done, losses) = (done.clone(), losses.clone());
//!         scope.spawn(move || {
//!             losses.set(rank, 0.25)?;
//!             done.fetch_add(1);
//!             Ok::<(), tensorferry_sync::OutOfRangeError>(())
//!         });
//!     }
//! });
//! assert_eq!(done.get(), 4);
//! assert_eq!(losses.to_vec(), [0.25; 4]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod array;
mod barrier;
mod condition;
mod element;
mod error;
mod event;
mod lock;
mod primitive;
mod purpose;
mod rlock;
mod rw_lock;
mod scalar;
mod semaphore;
mod value;
mod wait_error;
mod wire;

pub use array::{Iter, RawArray};
pub use barrier::{Barrier, BarrierPlace};
pub use condition::Condition;
pub use element::RawElement;
pub use error::{LockError, OutOfRangeError};
pub use event::Event;
pub use lock::{Lock, LockGuard};
#[doc(hidden)]
pub use purpose::name_of_purpose;
pub use rlock::{RLock, RLockGuard};
pub use rw_lock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use scalar::{Number, Scalar, ScalarKind};
pub use semaphore::{Permit, Semaphore};
pub use tensorferry_storage::{LastOwner, StorageError};
pub use value::RawValue;
pub use wait_error::{BarrierError, BrokenBy, WaitError};
