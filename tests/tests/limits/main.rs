//! Limits: what the system allows a process, and what a domain allows its members.

#![expect(clippy::print_stdout, reason = "a test says why it was skipped")]

mod descriptors;
mod memory;
mod million;
mod tight;
