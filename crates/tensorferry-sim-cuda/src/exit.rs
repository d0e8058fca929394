//! Work at the exit of the process.
//!
//! # Safety
//! The one function that is declared here is in every C library, with this type (atexit(3)). It gets a safe
//! function of this library, which the C library calls before it unloads this library.
#![expect(unsafe_code, reason = "declares a function of the C library")]

use std::ffi::c_int;

use crate::{Answer, Status};

unsafe extern "C" {
    safe fn atexit(work: extern "C" fn()) -> c_int;
}

/// Registers `work` to run when the process exits: before handlers that were registered earlier, and after
/// those that are registered later.
pub(crate) fn at_exit(work: extern "C" fn()) -> Answer {
    if atexit(work) == 0 { Ok(()) } else { Err(Status::OUT_OF_MEMORY) }
}
