//! Processes that are killed at a sample of the positions that `cargo xtask kill --exhaustive` covers, and a short soak.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking")]

mod positions;
mod soak;
