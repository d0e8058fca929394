//! Signals by number and name, and what a starting process does with them.
//!
//! # Safety
//! A signal handler runs at any point of the program. [`ignore_sigpipe`] and [`serve_undisturbed`] install no
//! handler. [`Dispositions::restore`] installs only what was installed before.
#![expect(unsafe_code, reason = "signal dispositions of a process that is just starting")]

use std::borrow::Cow;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::{Error, Result};

/// Asks a process to end. The process may handle it otherwise (signal(7)).
pub const SIGTERM: i32 = Signal::SIGTERM as i32;

/// The signal of Ctrl-C. Ends a process that does not handle it (signal(7)).
pub const SIGINT: i32 = Signal::SIGINT as i32;

/// Ends a process at once. It cannot be handled (signal(7)).
pub const SIGKILL: i32 = Signal::SIGKILL as i32;

/// The signal with which abort(3) ends a process, and so a panic where panics abort.
pub const SIGABRT: i32 = Signal::SIGABRT as i32;

/// The name of a signal, as in signal(7): `SIGKILL`, `SIGRTMIN+2`, or `signal 99` for a number without a
/// name.
#[must_use]
pub fn signal_name(signal: i32) -> Cow<'static, str> {
    // glibc keeps the first two real-time signals for itself, so its SIGRTMIN is 34 (nptl(7)).
    const SIGRTMIN: i32 = 34;
    const SIGRTMAX: i32 = 64;
    match Signal::try_from(signal) {
        Ok(known) => Cow::Borrowed(known.as_str()),
        Err(_) if signal == SIGRTMIN => Cow::Borrowed("SIGRTMIN"),
        Err(_) if (SIGRTMIN..=SIGRTMAX).contains(&signal) => {
            Cow::Owned(format!("SIGRTMIN+{}", signal - SIGRTMIN))
        }
        Err(_) => Cow::Owned(format!("signal {signal}")),
    }
}

/// Makes writing to a closed pipe or socket an error instead of a fatal signal, as Rust's runtime does before
/// `main`.
///
/// # Errors
/// The kernel's error of sigaction(2).
pub fn ignore_sigpipe() -> Result<()> {
    // SAFETY: `signal` is unsafe because a handler runs at any point of the program. `SigIgn` installs no
    // handler, and no other code uses SIGPIPE in a process that has run no code yet.
    unsafe { nix::sys::signal::signal(Signal::SIGPIPE, SigHandler::SigIgn) }
        .map(|_| ())
        .map_err(|e| Error::new("signal(SIGPIPE, SIG_IGN)", e))
}

/// Unblocks [`SIGTERM`] and [`SIGINT`] in this thread, and in those that it starts from here on, so that
/// these signals can end them. A server blocks both in all its threads to wait for them (sigwait(3)), and
/// execve(2) and fork(2) pass that mask on.
///
/// # Errors
/// The kernel's error of sigprocmask(2).
pub fn unblock_stop_signals() -> Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    signals.thread_unblock().map_err(|e| Error::new("sigprocmask(SIG_UNBLOCK, SIGTERM SIGINT)", e))
}

/// The previous dispositions of SIGINT and SIGCHLD, to be restored in processes that are forked from this
/// one.
#[derive(Debug)]
pub struct Dispositions {
    /// Whole, with flags and mask: a handler that was installed with `SA_SIGINFO` takes three arguments.
    previous: Vec<(Signal, SigAction)>,
}

/// Makes this process a server. It ignores SIGINT, so that a Ctrl-C for its clients does not end it. It does
/// not ignore SIGCHLD, as the program that executed it may have done, so that it learns how its children end.
///
/// # Errors
/// The kernel's error of sigaction(2).
pub fn serve_undisturbed() -> Result<Dispositions> {
    let mut dispositions = Dispositions { previous: Vec::new() };
    for (signal, handler) in [(Signal::SIGINT, SigHandler::SigIgn), (Signal::SIGCHLD, SigHandler::SigDfl)] {
        let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
        // SAFETY: neither of the two installs a handler; see `ignore_sigpipe`.
        match unsafe { sigaction(signal, &action) } {
            Ok(before) => dispositions.previous.push((signal, before)),
            Err(e) => {
                dispositions.restore();
                return Err(Error::new(format!("sigaction({signal})"), e));
            }
        }
    }
    Ok(dispositions)
}

impl Dispositions {
    /// Restores the previous dispositions.
    pub fn restore(&self) {
        for (signal, action) in &self.previous {
            // SAFETY: the handler was installed in this very program before, with these flags. So it is a
            // function that may be a handler, and it takes the arguments that the flags promise. The kernel
            // refuses nothing that it has returned itself.
            let _ = unsafe { sigaction(*signal, action) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_the_names_of_the_manual() {
        assert_eq!(signal_name(6), "SIGABRT");
        assert_eq!(signal_name(9), "SIGKILL");
        assert_eq!(signal_name(34), "SIGRTMIN");
        assert_eq!(signal_name(36), "SIGRTMIN+2");
        assert_eq!(signal_name(99), "signal 99");
    }

    #[test]
    fn a_disposition_comes_back_with_its_flags_and_its_mask() {
        extern "C" fn handler(_: i32, _: *mut nix::libc::siginfo_t, _: *mut nix::libc::c_void) {}
        let flags = SaFlags::SA_SIGINFO | SaFlags::SA_ONSTACK;
        let action = SigAction::new(SigHandler::SigAction(handler), flags, SigSet::from(Signal::SIGUSR1));
        // SAFETY: the handler does nothing.
        let original = unsafe { sigaction(Signal::SIGINT, &action) }.unwrap();
        serve_undisturbed().unwrap().restore();
        // SAFETY: this disposition was installed before.
        let found = unsafe { sigaction(Signal::SIGINT, &original) }.unwrap();
        assert!(matches!(found.handler(), SigHandler::SigAction(_)));
        assert!(found.flags().contains(flags) && found.mask().contains(Signal::SIGUSR1));
    }
}
