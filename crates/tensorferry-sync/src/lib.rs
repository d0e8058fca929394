//! Values and arrays in shared memory.
//!
//! [`RawValue`] is one number that several processes read and write, [`RawArray`] is a fixed number of them. The names
//! are Python's: *raw* means without a lock. Nothing here ever waits, and a process that is killed in the middle of a
//! call leaves no lock behind. Each call on one element is one atomic step, so `fetch_add` loses nothing, which is what
//! Python's `value += 1` does without its lock.
//!
//! Both are handles: a clone is another handle on the same memory, and so is what a receiver gets when one is sent
//! through a queue or as a spawn argument. The memory lives as long as any handle in any process.
//!
//! Every element takes one 64-bit word, whatever its type. That suits flags, counters and a result per process; for
//! dense data there is `SharedTensor` of `tensorferry-tensor`.
//!
//! ```
//! use tensorferry_sync::{RawArray, RawValue};
//!
//! let done = RawValue::new(0_u32)?;
//! let losses = RawArray::new(&[f64::INFINITY; 4])?;
//! std::thread::scope(|scope| {
//!     for rank in 0..losses.len() {
//!         // In another process the handles would have come with the arguments.
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
mod element;
mod error;
mod scalar;
mod value;
mod wire;

pub use array::RawArray;
pub use element::RawElement;
pub use error::OutOfRangeError;
pub use scalar::{Number, Scalar, ScalarKind};
pub use tensorferry_storage::StorageError;
pub use value::RawValue;
