//! The crate's public interface in one process: threads call as processes do, through the same messages.

mod collections;
mod objects;
