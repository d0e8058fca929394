//! Objects that belong to one process and are called by others, as with Python's `multiprocessing.Manager`.
//!
//! | Python | here |
//! | --- | --- |
//! | `Manager()` | [`Manager`]: its objects live in the process that made it, each on a thread of its own |
//! | `manager.dict()`, `manager.list()` | [`Dict`], [`List`]: handles that travel in any message |
//! | `BaseManager.register`, own types | [`serve`]: a value, and a function that is called with each request |
//! | a proxy | [`Proxy`] |
//! | `BaseManager(address, authkey)` | with the feature `remote`: [`accept`] on the object's machine, [`Manager::connect`] on another |
//! | `manager.Queue()`, `Lock()`, `Value()`, `Array()` | those of `tensorferry-queue` and `tensorferry-sync`, which need nobody in between |
//!
//! A call is a message to the object's process and one back: half a microsecond where both are busy
//! (`docs/bench/NOTES.md`). Tensors in requests and answers are not copied.
//!
//! ```
//! use tensorferry_manager::Manager;
//!
//! let manager = Manager::new()?;
//! let scores = manager.dict::<String, f64>()?;
//! std::thread::scope(|scope| {
//!     for rank in 0..3 {
//!         // Another process would get the handle with its arguments.
//!         let scores = scores.clone();
//!         scope.spawn(move || scores.insert(format!("rank {rank}"), f64::from(rank) / 2.0));
//!     }
//! });
//! assert_eq!(scores.get("rank 2")?, Some(1.0));
//! assert_eq!(scores.len()?, 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A type of your own has requests of its own, and each call is one step that nobody else comes in between:
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use tensorferry_manager::{Proxy, serve};
//!
//! #[derive(Serialize, Deserialize)]
//! enum Request {
//!     Deposit(u64),
//!     Withdraw(u64),
//! }
//!
//! // The state, and what a request does to it.
//! let account = serve(100_u64, |balance, request: Request| match request {
//!     Request::Deposit(sum) => Ok(*balance += sum),
//!     Request::Withdraw(sum) => match balance.checked_sub(sum) {
//!         Some(rest) => Ok(*balance = rest),
//!         None => Err(format!("there are only {balance}")),
//!     },
//! })?;
//! let proxy: Proxy<Request, Result<(), String>> = account.proxy().clone();
//! proxy.call(Request::Deposit(20))?.unwrap();
//! assert_eq!(proxy.call(Request::Withdraw(500))?.unwrap_err(), "there are only 120");
//! assert_eq!(account.into_state()?, 120);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Who may die
//! A caller that is killed costs nobody anything: its call is made or not. When the object's process is
//! killed, all who wait for an answer are told ([`CallErrorKind::OwnerDied`]), and so is every later call.
//! Whether a call was made whose answer did not come is not known.
//!
//! What [`Dict::remove`], [`List::remove`] and [`List::pop`] take out is put back into its place if the
//! object finds that its answer cannot be sent: the caller does not wait any more
//! ([`CallErrorKind::TimedOut`]), it is known to be dead, or there is no memory for the answer
//! ([`CallErrorKind::NoAnswer`]). The value is lost
//!
//! - if the caller is killed after its answer was sent and before the call has returned, or so shortly before
//!   that nobody knows of its death yet;
//! - if the caller cannot read the answer ([`CallErrorKind::Answer`]), or writing it panics.
//!
//! Where that must not be, jobs for workers say, a queue with leases is the right thing. An object of your
//! own is not told whether its answers arrive.
//!
//! # Objects of other machines
//! With the feature `remote` an object is called from other machines, too. Its own accepts those who connect
//! and have the key ([`accept`], where there is an example), and answers their calls. On the other machine
//! one process connects ([`Manager::connect`]) and has a handle of the same type, which travels there in any
//! message. Behind it is an object of that process, whose handler sends the request on and waits for the
//! answer: one call at a time for each connection. On the object's machine each call is one step, among those
//! of all other callers. Tensors are sent from shared memory into shared memory.
//!
//! Errors arrive as they are on the object's machine: a panic with its process, place and text
//! ([`CallErrorKind::Panicked`]), a death ([`CallErrorKind::OwnerDied`]), an end ([`CallErrorKind::Ended`]).
//! What a call was about comes back only if it was not sent to the process with the connection. When that is
//! killed, its callers are told as of any object (`OwnerDied`). Of the connection they are told
//!
//! - [`CallErrorKind::ConnectionLost`] when it fails in the middle of a call. Nobody knows whether the call
//!   was made, and nobody makes it again;
//! - [`CallErrorKind::Disconnected`] when it had ended before: the call was not made. The handle is of no use
//!   any more: connect again, and send the new one;
//! - [`CallErrorKind::NotForwarded`] when a request cannot go there (queues, locks and tensors on devices
//!   stay on their machine), and [`CallErrorKind::AnswerLost`] when an answer cannot be read here.
//!
//! A machine that is off or unreachable is given up after some 30 seconds (see
//! [`Connection`](tensorferry_remote::Connection)). Who wants to know earlier calls with a time, which does
//! not end the call of the process with the connection.
//!
//! What [`Dict::remove`], [`List::remove`] and [`List::pop`] take out is put back if the answer cannot leave
//! the object's machine, or the connection is known to be gone, or the caller on the other machine does not
//! wait any more or is dead. In the last case that takes a way there and back: others may come before. A
//! value that was put under the key meanwhile is kept instead, and a list has it back at its index, or at the
//! end if it was popped or the list has become shorter. It is lost if the connection fails while the answer
//! is on its way, or before it is back.
//!
//! # What a handler must not do
//! Call its own object: there is nobody to answer. Such a call is refused at once, in the object's thread
//! ([`CallErrorKind::WithinItself`]). It is not found out, and waits for ever,
//!
//! - when a handler waits for another thread or process that calls the object;
//! - when objects call each other in a circle: the handler of A calls B, whose handler calls A;
//! - when a handler calls its own object by way of another machine.
//!
//! So have objects call in one direction only. Where that cannot be, [`Proxy::call_timeout`] and
//! [`Dict::with_timeout`] end the circle: the call that has waited long enough fails
//! ([`CallErrorKind::TimedOut`]), and its handler and all the others go on.
//!
//! A handler that panics ends the object: all calls from then on say in which process and where
//! ([`CallErrorKind::Panicked`]), and [`Served::into_state`] has its state. A request that cannot be read, or
//! an answer that cannot be written, is an error of its call alone.

#![forbid(unsafe_code)]

mod answer;
#[cfg_attr(not(feature = "remote"), expect(unreachable_pub, reason = "`RemoteHandle` reaches its requests"))]
mod dict;
mod error;
mod guarded;
mod handle;
mod handler;
mod head;
mod link;
#[cfg_attr(not(feature = "remote"), expect(unreachable_pub, reason = "`RemoteHandle` reaches its requests"))]
mod list;
mod manager;
mod owner;
mod panic;
mod proxy;
#[cfg(feature = "remote")]
mod remote;
mod requests;
mod served;

pub use dict::Dict;
pub use error::{CallError, CallErrorKind, PanickedError, ServeError, StateError};
pub use list::List;
pub use manager::Manager;
pub use panic::{HandlerPanic, Location};
pub use proxy::Proxy;
#[cfg(feature = "remote")]
pub use remote::{AnswerError, ReachError, RemoteCaller, RemoteHandle, accept};
pub use served::{Served, serve, serve_in};
