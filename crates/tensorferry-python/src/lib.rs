//! The Python module `tensorferry`: what a Python program needs to exchange tensors with programs in Rust,
//! and with other Python programs, without copying them.
//!
//! ```python
//! import tensorferry, torch
//!
//! with tensorferry.connect("@loader") as connection:
//!     for batch in connection:                           # a dict, as the Rust struct has fields
//!         images = torch.from_dlpack(batch["images"])    # the same memory
//!         connection.send({"loss": train(images)})
//! ```
//!
//! `tensorferry.pyi`, beside this crate, has every function with its types; the guide of the repository
//! (`docs/GUIDE.md`, "Python") explains them. `pip install ./crates/tensorferry-python` builds and installs
//! it.
//!
//! # How values travel
//! A message is MessagePack, so Python reads whatever `serde` has written: structs and maps are dicts,
//! sequences and tuples are lists, an enum is its variant's name, or a dict of one entry. What Python writes
//! can be read as any Rust type of the same shape. Tensors, bundles and ends of queues may be anywhere
//! inside. Other parts that travel by handle (locks, values, sealed tensors) are refused when they arrive.

mod buffer;
mod connection;
mod cuda;
mod dlpack;
mod dtype;
mod error;
mod lease;
mod lost;
mod message;
mod module;
mod multiprocessing;
mod offer;
mod publication;
mod queue;
mod starting;
mod tasks;
mod tensor;
mod view;
mod waiting;
mod waker;
