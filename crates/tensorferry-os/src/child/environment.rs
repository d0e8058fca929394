//! The environment of a process that is just starting.
//!
//! # Safety
//! Changing the environment races with C code that reads it on another thread. [`take_variable`], [`set_variable`] and
//! [`replace_environment`] are for the first instant of a process, executed or forked, before it has started a thread.
#![expect(unsafe_code, reason = "changes the environment of a process that is just starting")]

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};

use rustix::io::Errno;

use crate::{Error, Result};

/// Reads a variable of the environment and removes it, so that no process started from here inherits it.
///
/// For the first instant of a process only, before it has started a thread.
#[must_use]
pub fn take_variable(name: &str) -> Option<OsString> {
    let value = std::env::var_os(name)?;
    // SAFETY: `remove_var` must not run while another thread reads or writes the environment other than through
    // `std::env`. Callers are child entries, which run before `main` on the only thread (the contract above). Were a
    // C constructor to have started a thread already, glibc's unsetenv(3) moves the pointers that follow down by one
    // and frees nothing, so a racing getenv(3) could miss a variable but not read freed memory.
    unsafe { std::env::remove_var(name) };
    Some(value)
}

/// Replaces the whole environment of this process, for one that has one thread and is just starting. What no environment
/// can be asked for by name (an empty name, `=` in a name) is left as it is.
///
/// # Errors
/// EBUSY in a process with other threads, which may be reading it; then nothing was changed.
pub fn replace_environment(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Result<()> {
    check_single_threaded()?;
    let mut own: HashMap<OsString, OsString> = std::env::vars_os().collect();
    for (name, value) in variables {
        if own.remove(&name).as_ref() != Some(&value) {
            change_variable(&name, Some(&value));
        }
    }
    own.keys().for_each(|name| change_variable(name, None));
    Ok(())
}

/// Sets or removes a variable of the environment, in a process that has one thread and is just starting. What no environment
/// can hold (an empty name, `=` in a name, a zero byte) is left out.
///
/// # Errors
/// EBUSY in a process with other threads, which may be reading it; then nothing was changed.
pub fn set_variable(name: &OsStr, value: Option<&OsStr>) -> Result<()> {
    check_single_threaded()?;
    change_variable(name, value);
    Ok(())
}

/// Whether an environment can hold a variable with this name and value, and be asked for it: a name that is not empty and has no
/// `=` in it, and no zero byte in either.
#[must_use]
pub fn is_variable(name: &OsStr, value: Option<&OsStr>) -> bool {
    let name = name.as_encoded_bytes();
    let has_zero = |bytes: &[u8]| bytes.contains(&0);
    let is_name = !name.is_empty() && !name.contains(&b'=') && !has_zero(name);
    is_name && !value.is_some_and(|value| has_zero(value.as_encoded_bytes()))
}

fn check_single_threaded() -> Result<()> {
    if crate::fork::is_single_threaded() {
        return Ok(());
    }
    Err(Error::new("changing the environment of a process with threads", Errno::BUSY))
}

/// Only after [`check_single_threaded`], and before anything that starts a thread.
fn change_variable(name: &OsStr, value: Option<&OsStr>) {
    if !is_variable(name, value) {
        return;
    }
    match value {
        // SAFETY: no other thread reads or writes the environment: there is none (counted by the caller), and only this one
        // could have started one since.
        Some(value) => unsafe { std::env::set_var(name, value) },
        // SAFETY: as above.
        None => unsafe { std::env::remove_var(name) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_variable_is_none() {
        assert_eq!(take_variable("TENSORFERRY_NO_SUCH_VARIABLE"), None);
    }
}
