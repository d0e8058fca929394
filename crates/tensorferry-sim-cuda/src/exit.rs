//! What happens when the process begins to exit.
//!
//! # Safety
//! The one function that is declared here is of every C library, with this type (atexit(3)). What it is given is a safe
//! function of this library, which the C library calls before it unloads it.
#![expect(unsafe_code, reason = "declares a function of the C library")]

use std::ffi::c_int;

use crate::{Answer, Status};

unsafe extern "C" {
    safe fn atexit(work: extern "C" fn()) -> c_int;
}

/// Has `work` done when the process exits, before what was registered earlier and after what is registered later.
pub(crate) fn at_exit(work: extern "C" fn()) -> Answer {
    if atexit(work) == 0 { Ok(()) } else { Err(Status::OUT_OF_MEMORY) }
}
