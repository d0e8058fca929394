//! Processes that are killed at a sample of the positions that `cargo xtask kill --exhaustive` covers, and a
//! short soak.

#![expect(clippy::print_stdout, reason = "shown when a test fails")]

mod positions;
mod soak;
