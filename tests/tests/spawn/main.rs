//! Processes: start, entry, reports, death. The children are this very test binary, under plain `cargo test`.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod alone;
mod closed;
mod executing;
mod failures;
mod fork;
mod fork_connections;
mod forkserver;
mod functions;
mod interrupted;
mod joining;
mod kinship;
mod layouts;
mod lifetimes;
mod marked;
mod methods;
mod namespaces;
mod oddities;
mod output;
mod polling;
mod process;
mod rank;
mod seeds;
mod shared;
mod starting;
mod strangers;
mod support;
mod tensors;
mod told;
mod watching;
