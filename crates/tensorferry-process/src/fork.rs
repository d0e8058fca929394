//! A child that is a fork of this very process: what is looked at before, and how it begins.
//!
//! # Safety
//! Rust's references promise something within one process. A fork has a copy of every reference of its parent, and those
//! into memory that is shared mean the same memory in both. Handles of this library know in which process they are, and
//! those that are one process's alone lend nothing in a fork. A slice that was lent before the fork knows nothing. So the
//! start method fork is something that a program has to allow, by an unsafe function.
#![expect(unsafe_code, reason = "forks, where the program has allowed it")]

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use tensorferry_os::child as os;
use tensorferry_os::fork::{Forked, exit_at_once, fork_alone};
use tensorferry_os::pidfd::PidFd;

use crate::entry;
use crate::error::StartError;
use crate::forkserver;
use crate::guard;
use crate::redirect::Outputs;
use crate::starter;

/// Says why this process must not be forked now, if there is a reason.
pub type Hazard = fn() -> Option<String>;

/// What is asked before this process is forked, collected by the linker. Made by [`fork_hazard!`](crate::fork_hazard!).
#[linkme::distributed_slice]
pub static HAZARDS: [Hazard];

static ALLOWED: AtomicBool = AtomicBool::new(false);

/// Allows [`StartMethod::Fork`](crate::StartMethod::Fork) in this process and in those that it starts.
///
/// # Safety
/// From here on, whenever a process is started by a fork:
/// - No slice that a `TensorMut` or another exclusive handle on shared memory has lent before is used in the child. Slices on
///   the stack of the starting thread are out of its reach; those in statics or in leaked memory are not.
/// - The threads named to [`Start::parked`](crate::Start::parked) stand still, outside of every function that locks or
///   allocates. (The functions of `tensorferry-spawn` see to that themselves.)
/// - Who starts a forked member of a domain by other means than `tensorferry-spawn` lets go of nothing in shared memory until
///   it has rejoined.
pub unsafe fn allow_fork() {
    ALLOWED.store(true, Ordering::SeqCst);
}

pub(crate) fn is_allowed() -> bool {
    ALLOWED.load(Ordering::SeqCst)
}

/// The parent has allowed it for its processes too.
pub(crate) fn inherit_allowance() {
    ALLOWED.store(true, Ordering::SeqCst);
}

/// What a forked child is to be.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) control: OwnedFd,
    pub(crate) nonce: String,
    pub(crate) outputs: Outputs,
    pub(crate) current_dir: Option<OwnedFd>,
    pub(crate) environment: Vec<(OsString, Option<OsString>)>,
}

/// Forks. Returns in the parent only; the child runs its entry on top of the parent's stack, which is never returned to.
pub(crate) fn fork(parked: &[u32], ours: OwnedFd, child: Child) -> Result<(PidFd, OwnedFd), StartError> {
    if !is_allowed() {
        return Err(StartError::ForkNotAllowed);
    }
    if let Some(reason) = HAZARDS.iter().find_map(|hazard| hazard()) {
        return Err(StartError::Hazard { reason });
    }
    let starter = starter::park();
    let parked: Vec<u32> = parked.iter().copied().chain(guard::parked()).chain(starter.thread_id()).collect();
    // SAFETY: the numbers are those of the guard, if there is one, which only waits for the parent's end, of the thread that
    // starts processes, which stands still as long as it is parked, and of threads that stand still (the promise of
    // `allow_fork`, as is what the child does with shared memory).
    match unsafe { fork_alone(&parked) }? {
        Forked::Child => {
            starter.forget();
            // The parent's end.
            drop(ours);
            child.live()
        }
        // Nobody else collects it, so the number is its own until we do.
        Forked::Parent { pid } => match PidFd::open(pid) {
            Ok(pidfd) => Ok((pidfd, ours)),
            Err(error) => {
                os::kill_and_collect(pid);
                Err(error.into())
            }
        },
    }
}

impl Child {
    fn live(self) -> ! {
        let Self { control, nonce, outputs, current_dir, environment } = self;
        let settle = || {
            // First of all, so that the time in which the parent's death goes unnoticed is short.
            os::die_with_parent()?;
            os::null_stdin()?;
            outputs.take_over()?;
            if let Some(dir) = current_dir {
                os::enter_dir(dir)?;
            }
            for (name, value) in environment {
                os::set_variable(&name, value.as_deref())?;
            }
            // They are the parent's.
            forkserver::forget();
            guard::forget();
            Ok(())
        };
        exit_at_once(entry::live_forked(control, &nonce, entry::Parent::Peer, settle))
    }
}
