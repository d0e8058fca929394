//! Values with tensors in them between machines.
//!
//! Within a machine a queue carries handles. Between two the bytes have to travel, and this crate has them
//! travel once: they are read where they lie, in the sender's shared memory, and received into the
//! receiver's, from where any number of its processes have them without a copy. A loader on one machine feeds
//! the trainers of another, and parameters go the other way.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use tensorferry_remote::{Key, Listener, connect};
//! use tensorferry_tensor::{Tensor, TensorMut};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Batch {
//!     images: Tensor<f32>,
//!     labels: Vec<i64>,
//! }
//!
//! let key = Key::new("thirty-two random bytes, in fact")?; // or `Key::read(path)`
//! let listener = Listener::bind("127.0.0.1:0", &key)?;
//! let address = listener.local_addr()?;
//! # let loader =
//! std::thread::spawn(move || {
//!     // On another machine:
//!     let mut connection = connect::<Batch, f32>(address, &key)?;
//!     let images = TensorMut::full([32, 3, 64, 64], 0.5_f32)?.freeze();
//!     connection.send(Batch { images, labels: vec![7; 32] })?;
//!     assert_eq!(connection.recv()?, 0.1);
//!     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! });
//! let mut connection = listener.accept::<f32, Batch>()?;
//! let batch = connection.recv()?;
//! assert_eq!(batch.images.shape(), &[32, 3, 64, 64]);
//! assert!(batch.images.is_shared());
//! connection.send(0.1)?;
//! # loader.join().unwrap()?;
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! # Queues on both machines
//! [`forward`] sends what a queue has to the other machine, and [`feed`] puts what comes into a queue there.
//! With leases nothing is lost on the way when a machine, a process or the network fails: what the other
//! side has not put into its queue is delivered again, to whoever connects next. What was in a queue goes
//! with that queue, when its machine fails or the last process that has it ends.
//!
//! Their connection carries nothing else. What goes the other way, as parameters do, has one of its own.
//!
//! # Who can read it
//! Both sides have a [`Key`], and prove it to each other. What they say is encrypted, with keys of this one
//! connection: a recording cannot be read by who gets the key later. It is the Noise protocol, pattern
//! `NNpsk0`, with X25519, AES-256-GCM and SHA-256, by the crates [`snow`](https://docs.rs/snow) and
//! [`ring`](https://docs.rs/ring). Who has the key is trusted as far as that what arrives is checked, but no
//! further. Its tensors fill no more memory than the domain may have. What else is in a message is private
//! memory: 1 GiB at most, twice while it is read, and then what is decoded from it.
//!
//! # What cannot be sent
//! What is in one machine only: queues, locks, shared and sealed tensors, tensors on devices. Both machines
//! have to be little-endian.

#![forbid(unsafe_code)]

mod cipher;
mod connection;
mod error;
mod forward;
mod frames;
mod handshake;
mod key;
mod meeting;
mod message;
mod patience;

pub use connection::{Connection, RemoteReceiver, RemoteSender};
pub use error::{ConnectError, ConnectionError, RecvError, SendError, SendErrorKind};
pub use forward::{FeedError, ForwardError, Kept, feed, forward};
pub use key::{Key, KeyError};
pub use meeting::{Listener, connect, connect_in};
