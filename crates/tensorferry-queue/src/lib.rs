//! A bounded queue between processes that carries handles instead of bytes.
//!
//! [`Queue`] is Python's `multiprocessing.Queue` in shape: one handle that puts and gets, cloned and sent to whoever
//! should use it, with `put`, `get`, their `_timeout` and `_nowait` forms, `len`, `is_empty`, `is_full` and `close`.
//! It has no feeder thread: a value is serialised inside `put`, on the calling thread, so what cannot be sent is an
//! error there and then, and a value that was not sent is given back in the error.
//!
//! Where the two sides are known, ends with one role say more: [`channel`] gives a [`Sender`] and a [`Receiver`] and
//! tells each when the other side is gone; [`spsc`], [`mpsc`] and [`spmc`] give ends that cannot be cloned
//! ([`SoleSender`], [`SoleReceiver`]) and are faster for it. All use the same ring.
//!
//! A queue reaches another process as an argument of a function that `tensorferry-spawn` starts there, or in a message of
//! another queue, by itself or inside of any value that serde can write. (Underneath, `tensorferry_reduce::Parcel` packs a
//! value with everything that it names, for a member of the domain to open.)
//!
//! What is promised: once `put` has returned, exactly one `get` returns the message, whatever happens to the
//! sender. A process that is killed in the middle of a call blocks nobody. When the last other process dies, who
//! waits for it is told: `PeerDied`, which is not `Closed`.
//!
//! A plain `get` takes a message for good: it dies with its taker. [`Queue::with_leases`] makes a queue whose messages can
//! be leased instead: what a worker has not acknowledged when it dies is delivered again, first in line.
//!
//! ```
//! use tensorferry_queue::Queue;
//!
//! let queue: Queue<Option<String>> = Queue::new(8)?;
//! queue.put(Some("work".to_owned()))?;
//! queue.put(None)?; // a sentinel, as in Python; `close` is the better way
//! while let Some(work) = queue.get()? {
//!     assert_eq!(work, "work");
//! }
//!
//! let jobs = Queue::with_leases(8, 4)?;
//! jobs.put("job".to_owned())?;
//! let lease = jobs.get_leased()?;
//! drop(lease); // or this process dies
//! let lease = jobs.get_leased()?;
//! assert_eq!((lease.as_str(), lease.deliveries()), ("job", 2));
//! lease.ack()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod busy_poll;
mod ends;
mod error;
mod getting;
mod iter;
mod lease;
mod queue;
mod sole;
mod status;
mod typed;

pub use ends::{Receiver, Sender, channel, channel_in};
pub use error::{GetError, PutError, PutErrorKind};
pub use iter::Iter;
pub use lease::Lease;
pub use queue::Queue;
pub use sole::{SoleReceiver, SoleSender, mpsc, mpsc_in, spmc, spmc_in, spsc, spsc_in};
pub use tensorferry_storage::{LeaseLostError, StorageError};
