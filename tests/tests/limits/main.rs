//! Limits: what the system allows a process, and what a domain allows its members.

mod descriptors;
mod memory;
mod million;
