//! The environment of a process that is just starting.
//!
//! # Safety
//! Changing the environment races with C code that reads it on another thread. [`take_variable`],
//! [`set_variable`] and [`replace_environment`] are for a process that was just executed or forked, before it
//! starts a thread.
#![expect(unsafe_code, reason = "changes the environment of a process that is just starting")]

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};

use rustix::io::Errno;

use crate::{Error, Result};

/// Reads a variable of the environment and removes it, so that no process started from here inherits it.
///
/// # Safety
/// No other thread reads or writes the environment at the same time, other than through `std::env`.
#[must_use]
pub unsafe fn take_variable(name: &str) -> Option<OsString> {
    let value = std::env::var_os(name)?;
    // SAFETY: the caller's promise.
    unsafe { std::env::remove_var(name) };
    Some(value)
}

/// As [`take_variable`], at any time. In a process with other threads, or if their number is unknown, the
/// variable stays.
#[must_use]
pub fn take_variable_if_alone(name: &str) -> Option<OsString> {
    let value = std::env::var_os(name)?;
    if check_single_threaded().is_ok() {
        change_variable(OsStr::new(name), None);
    }
    Some(value)
}

/// Replaces the whole environment of this process, which must have one thread and be just starting. Variables
/// that cannot be asked for by name (an empty name, `=` in a name) stay as they are.
///
/// # Errors
/// EBUSY in a process with other threads, which may be reading the environment. Nothing was changed then.
pub fn replace_environment(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Result<()> {
    // The iterator is the caller's: what it starts has to be there before it is looked for.
    let variables: Vec<_> = variables.into_iter().collect();
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

/// Sets or removes a variable of the environment, in a process that has one thread and is just starting. A
/// variable that no environment can hold (an empty name, `=` in a name, a zero byte) is ignored.
///
/// # Errors
/// EBUSY in a process with other threads, which may be reading the environment. Nothing was changed then.
pub fn set_variable(name: &OsStr, value: Option<&OsStr>) -> Result<()> {
    check_single_threaded()?;
    change_variable(name, value);
    Ok(())
}

/// Whether an environment can hold a variable with this name and value: the name is not empty and has no `=`,
/// and neither has a zero byte.
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

/// Call only after [`check_single_threaded`], and before anything that starts a thread.
fn change_variable(name: &OsStr, value: Option<&OsStr>) {
    if !is_variable(name, value) {
        return;
    }
    match value {
        // SAFETY: no other thread reads or writes the environment. There is none (the caller has counted),
        // and only this one could have started one since.
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
        assert_eq!(take_variable_if_alone("TENSORFERRY_NO_SUCH_VARIABLE"), None);
    }
}
