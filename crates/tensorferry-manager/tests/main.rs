//! The crate's public interface in one process: threads call as processes do, through the same messages.

#![expect(clippy::panic, reason = "types that panic when they travel")]

mod collections;
mod objects;
#[cfg(feature = "remote")]
mod remote;
