//! The module for Python: what a program in Python does with it, and with a program in Rust at the other end.
//!
//! Not run where there is no Python 3.11; two tests want NumPy and PyTorch.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod alone;
mod device;
mod leases;
mod processes;
mod published;
mod together;
mod tokens;

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use tensorferry_kit::{Child, start_python};

/// A program of this folder.
fn program(name: &str, arguments: &[&str]) -> Child {
    program_with(name, arguments, &[])
}

/// As [`program`], where these modules are there.
fn program_with(name: &str, arguments: &[&str], modules: &[&str]) -> Child {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python"));
    start_python(&folder.join(name), arguments, modules, &[])
}

/// A name that no other test has.
fn address() -> String {
    static N_MADE: AtomicU32 = AtomicU32::new(0);
    format!("@tensorferry-python-{}-{}", std::process::id(), N_MADE.fetch_add(1, Ordering::Relaxed))
}
