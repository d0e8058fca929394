//! The protocols as models, explored exhaustively: every interleaving, with a process killed or stopped for
//! ever at any shared access.
//!
//! A model is a state machine over shared words and process counters; [`explore`] visits every state it can
//! reach and checks two things: no state is wrong, and from every state a settled one can be reached.
//! Interleavings are sequentially consistent. Each model has a twin with one rule of the protocol broken,
//! which must be caught: otherwise the check would not check anything.

#![expect(clippy::panic, clippy::expect_used, reason = "a test fails by panicking")]

mod bundling;
mod explore;
mod handing;
mod holding;
mod leasing;
mod ring;
mod waiting;
