//! A pool of worker processes.
//!
//! [`Pool`] is Python's `multiprocessing.Pool`: `apply`, `map`, `imap` and their like call a registered
//! function in one of a number of processes that stay. Tensors in arguments and values are not copied. What
//! is better than there:
//!
//! - A worker that is killed is told as what happened to *its* task, with process ID and signal, or its task
//!   is tried again. There, everybody who waits for it waits for ever.
//! - A worker that cannot be initialised fails the pool, with the reason. There, it is started again and
//!   again.
//! - [`Pool::imap`] takes items as they are needed, not all at once.
//! - There is no chunk size: of many tasks, handing each to a worker takes a few microseconds
//!   (`docs/bench/NOTES.md`).
//! - A result is a [`Future`] too.
//!
//! ```
//! use tensorferry_pool::{Pool, TaskError};
//! use tensorferry_spawn::func;
//!
//! #[func]
//! fn square(_worker: usize, n: u64) -> Result<u64, String> {
//!     if n == 13 {
//!         std::process::abort();
//!     }
//!     Ok(n * n)
//! }
//!
//! let pool = Pool::new(2)?;
//! assert_eq!(pool.map(square, 0..5)?, [0, 1, 4, 9, 16]);
//!
//! // Of these, one kills its worker. Another takes its place, and the other tasks are not affected.
//! let squares: Vec<_> = pool.imap(square, 10..20).collect();
//! let Err(TaskError::WorkerDied(died)) = &squares[3] else { panic!("{squares:?}") };
//! assert_eq!(died.process.as_ref().and_then(|process| process.signal_name()).as_deref(), Some("SIGABRT"));
//! assert_eq!(squares.iter().filter(|square| square.is_ok()).count(), 9);
//! pool.join()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it works
//! Tasks go through one queue with leases, from which each worker takes the next when it is free. A task
//! whose worker dies comes back by itself, first in line. Workers answer through another queue: that they
//! have begun a task, and how it ended. One thread of the pool's process hands the answers to those who wait,
//! and starts workers in the place of those that have ended. For each process, another thread waits for its
//! end.

#![forbid(unsafe_code)]

mod async_result;
mod builder;
mod dispatcher;
mod end;
mod error;
mod head;
mod imap;
mod order;
mod pool;
mod shared;
mod slot;
mod worker;

pub use async_result::AsyncResult;
pub use builder::PoolBuilder;
pub use error::{
    MapError, PoolError, SubmitError, SubmitErrorKind, TaskError, TaskRaisedError, WorkerDiedError,
};
pub use imap::{Imap, ImapUnordered};
pub use pool::Pool;
