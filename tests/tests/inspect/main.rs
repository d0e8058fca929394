//! Looking at what processes share, from outside, and at what works on this machine.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod doctor;
mod snapshots;
mod top;
