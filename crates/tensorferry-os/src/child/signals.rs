//! Signals by number and name, and what a starting process does with them.
//!
//! # Safety
//! A signal disposition is a function that runs anywhere. [`ignore_sigpipe`] and [`serve_undisturbed`] install none; what
//! [`Dispositions::restore`] installs was installed before.
#![expect(unsafe_code, reason = "signal dispositions of a process that is just starting")]

use std::borrow::Cow;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::{Error, Result};

/// Asks a process to end; it may do something else instead (signal(7)).
pub const SIGTERM: i32 = Signal::SIGTERM as i32;

/// What Ctrl-C sends; ends a process that has not prepared for it (signal(7)).
pub const SIGINT: i32 = Signal::SIGINT as i32;

/// Ends a process at once; it cannot do anything about it (signal(7)).
pub const SIGKILL: i32 = Signal::SIGKILL as i32;

/// What abort(3) ends a process with, and so a panic where panics abort.
pub const SIGABRT: i32 = Signal::SIGABRT as i32;

/// The name of a signal, as in signal(7): `SIGKILL`, `SIGRTMIN+2`, or `signal 99` for a number that is none.
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

/// Makes writing to a closed pipe or socket an error instead of death, as Rust's runtime does before `main`.
///
/// # Errors
/// The kernel's error of sigaction(2).
pub fn ignore_sigpipe() -> Result<()> {
    // SAFETY: `signal` is unsafe because a handler runs at any point of the program. `SigIgn` installs no handler,
    // and SIGPIPE has no other user in a process that has run no code yet.
    unsafe { nix::sys::signal::signal(Signal::SIGPIPE, SigHandler::SigIgn) }
        .map(|_| ())
        .map_err(|e| Error::new("signal(SIGPIPE, SIG_IGN)", e))
}

/// Lets this thread, and those that it starts from here on, be ended by [`SIGTERM`] and [`SIGINT`], whatever signal mask it has
/// inherited: a server blocks them in all its threads to wait for them (sigwait(3)), and who executes a program or forks
/// hands that on.
///
/// # Errors
/// The kernel's error of sigprocmask(2).
pub fn unblock_stop_signals() -> Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    signals.thread_unblock().map_err(|e| Error::new("sigprocmask(SIG_UNBLOCK, SIGTERM SIGINT)", e))
}

/// What a process does with the signals of a terminal and of its children, to be put back in what is forked from it.
#[derive(Debug)]
pub struct Dispositions {
    /// Whole, flags and mask with the handler: who was installed with `SA_SIGINFO` is called with three arguments.
    previous: Vec<(Signal, SigAction)>,
}

/// Makes this process a server that a Ctrl-C for its clients leaves alone (SIGINT is ignored), and that learns how its
/// children end (SIGCHLD is not ignored, as it may have been by whoever executed this program).
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
    /// Puts back what was there before.
    pub fn restore(&self) {
        for (signal, action) in &self.previous {
            // SAFETY: the handler was installed in this very program before, with these flags, so it is a function that may be
            // one and that takes the arguments which they promise; the kernel refuses nothing that it has given out itself.
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
        // SAFETY: it was there before.
        let found = unsafe { sigaction(Signal::SIGINT, &original) }.unwrap();
        assert!(matches!(found.handler(), SigHandler::SigAction(_)));
        assert!(found.flags().contains(flags) && found.mask().contains(Signal::SIGUSR1));
    }
}
