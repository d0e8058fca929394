//! Processes: start, entry, reports, death. The children are this very test binary, under plain `cargo test`.

mod failures;
mod functions;
mod joining;
mod lifetimes;
mod marked;
mod process;
mod support;
mod tensors;
