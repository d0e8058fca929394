//! A bounded queue between processes that carries handles instead of bytes.
//!
//! [`Queue`] has the shape of Python's `multiprocessing.Queue`: one handle that puts and gets. Clone it, or
//! send it to each process that needs it. It has `put` and `get` with their `_timeout` and `_nowait` forms,
//! `len`, `is_empty`, `is_full` and `close`. There is no feeder thread: `put` serialises the value on the
//! calling thread. A value that cannot be sent is therefore an error of that `put`, and the error gives the
//! value back.
//!
//! [`channel`] gives a [`Sender`] and a [`Receiver`], and tells each of them when the other side is gone.
//! [`spsc`], [`mpsc`] and [`spmc`] give ends that cannot be cloned ([`SoleSender`], [`SoleReceiver`]); a sole
//! receiver is faster than a [`Receiver`]. All of them use the same ring.
//!
//! [`pipe`] gives two [`Connection`]s, each of which receives what the other one sends.
//!
//! A queue reaches another process as an argument of a function that `tensorferry-spawn` starts there, or in
//! a message of another queue. It can be sent by itself or inside any value that serde can write.
//! (Internally, `tensorferry_reduce::Parcel` packs a value and the handles in it, for a member of the domain
//! to open.)
//!
//! Once `put` has returned `Ok`, exactly one `get` returns the message, whatever happens to the sender. A
//! process that is killed in the middle of a call blocks no other process. When the last other process dies,
//! the processes that wait for it get `PeerDied`, which is not `Closed`.
//!
//! A plain `get` takes a message for good: if the process that took it dies, the message is lost with it.
//! [`Queue::with_leases`] makes a queue whose messages can be leased instead. A message that a worker has not
//! acknowledged when it dies is delivered again, before all others. [`Sender::join`] waits until
//! everything that was put is done.
//!
//! Tasks wait by [`Receiver::get_async`] and its kin, and event loops by a descriptor
//! ([`Receiver::ready_fd`]); [`wait`] waits for several queues at once.
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

mod any_connection;
mod any_end;
mod awaiting;
mod busy_poll;
mod connection;
mod ends;
mod error;
mod getting;
mod iter;
mod join;
mod lease;
mod lease_iter;
mod queue;
mod reactor;
mod ready;
mod sole;
mod status;
mod typed;
mod wait;

pub use any_connection::AnyConnection;
pub use any_end::AnyEnd;
pub use connection::{Connection, pipe, pipe_in};
pub use ends::{Receiver, Sender, channel, channel_in, channel_with_leases, channel_with_leases_in};
pub use error::{GetError, OpenError, PutError, PutErrorKind};
pub use iter::Iter;
pub use join::JoinError;
pub use lease::Lease;
pub use lease_iter::LeaseIter;
pub use queue::Queue;
pub use ready::ReadyFd;
pub use sole::{SoleReceiver, SoleSender, mpsc, mpsc_in, spmc, spmc_in, spsc, spsc_in};
pub use tensorferry_reduce::{DecodeError, EncodeError};
pub use tensorferry_storage::{
    BlockId, Heap, LeaseLostError, RingJoinError, RingPutError, RingTakeError, StorageError, WaitAnyError,
};
#[doc(hidden)]
pub use wait::sealed;
pub use wait::{Leases, Room, Source, wait, wait_timeout};
