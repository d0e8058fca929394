//! Processes that something else has started meet at an address.
//!
//! What a function gets that was started from here comes with its arguments. A service that was there
//! before, a worker of a batch system, or a Python program has a [`Listener`] to [`connect`] to instead, as
//! with Python's `multiprocessing.connection`. Whoever connects becomes a member of the listener's domain
//! and has one end of a [`Connection`](tensorferry_queue::Connection). What is sent through it (tensors,
//! queues, locks) is not copied.
//!
//! ```
//! use tensorferry_listen::{Listener, connect};
//!
//! let address = format!("@doctest-{}", std::process::id());
//! let listener = Listener::bind(&address)?;
//! # let trainer =
//! std::thread::spawn(move || {
//!     // In another program, in any language that knows this library:
//!     let mut connection = connect::<String, u32>(&address)?;
//!     let number = connection.recv()?;
//!     connection.send(format!("{number} arrived"))?;
//!     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! });
//! let mut connection = listener.accept::<u32, String>(16)?;
//! connection.send(7)?;
//! assert_eq!(connection.recv()?, "7 arrived");
//! # trainer.join().unwrap()?;
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! # Values with a name
//! What any number of programs are to have is [published](publish()) at an address and
//! [taken](attach()) there: weights, a table, a queue. Python's `SharedMemory(name=...)`, but the name ends
//! with whoever publishes, even by a kill, and a value has a type and a shape.
//!
//! # Values for one process
//! Programs that talk to each other already, by HTTP, a queue of Python or an environment variable, need no
//! address: a value is [offered](offer()), which makes a [`Token`] of it, a short text for whatever they talk
//! through, and the process that gets the text [takes](take()) the value.
//!
//! A token can also be an [invitation](invite()): whoever gets it [joins](join()) the domain, and takes
//! nothing. So a program that makes tensors first, and sends them then, makes them in the right place.
//!
//! # Addresses
//! An address is a path, where the socket is made with access for its user only, or a name after `@`, which
//! is no file (abstract, unix(7)): nothing is left of it, whoever is killed, and it is seen in one network
//! namespace. Both are for processes of one machine.
//!
//! # Who may connect
//! Processes of the listener's own user (`SO_PEERCRED`, unix(7)), and nobody connects to the listener of
//! another. A member can read and write all memory of the domain, so to let anybody else in would be to
//! trust them as much. There is no key, because a process of the same user could read it.
//!
//! # What a connection costs
//! The socket is used for one message each way and a byte of thanks, and closed. From then on the two talk
//! through shared memory, and each learns of the other's end as any two members do.

#![forbid(unsafe_code)]

mod address;
mod attach;
mod connect;
mod error;
mod gate;
mod greeting;
#[doc(hidden)]
pub mod hidden;
mod invitation;
mod joined;
mod listener;
mod newcomer;
mod offer;
mod publication;
mod service;
mod take;
mod token;

pub use attach::{attach, attach_any, attach_timeout, attach_when_there};
pub use connect::{Connecting, connect, connect_any, connect_timeout, connect_when_there};
pub use error::{AcceptError, ConnectError, ListenError, PublishError};
pub use invitation::{Invitation, invite, invite_in, join, join_timeout};
pub use joined::{announce_end, is_ending};
pub use listener::Listener;
pub use offer::{Offer, is_offered, offer, offer_any, offer_in, withdraw};
pub use publication::{Publication, publish, publish_any, publish_in};
pub use take::{take, take_any, take_timeout};
pub use token::{ParseTokenError, Token};
