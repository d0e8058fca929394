//! A child that is a fork of this process: the checks before the fork, and the child's first steps.
//!
//! # Safety
//! The guarantees of Rust's references hold within one process. A fork has a copy of every reference of its
//! parent, and references into shared memory refer to the same memory in both processes. Handles of this
//! library record the process that they belong to, and exclusive handles lend nothing in a fork. A slice that
//! was lent before the fork has no such check. So a program has to allow the start method fork with an unsafe
//! function.
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
use crate::leash;
use crate::redirect::Outputs;
use crate::starter;

/// Returns the reason why this process must not be forked now, if there is one.
pub type Hazard = fn() -> Option<String>;

/// The checks to make before this process is forked, collected by the linker. Made by
/// [`fork_hazard!`](crate::fork_hazard!).
#[linkme::distributed_slice]
pub static HAZARDS: [Hazard];

static ALLOWED: AtomicBool = AtomicBool::new(false);

/// Allows [`StartMethod::Fork`](crate::StartMethod::Fork) in this process and in those that it starts.
///
/// # Safety
/// From this call on, the caller must guarantee for every process that is started by a fork:
/// - The child uses no slice that a `TensorMut` or another exclusive handle on shared memory lent before the
///   fork. The child cannot reach slices on the stack of the starting thread. It can reach slices in statics
///   and in leaked memory.
/// - The threads passed to [`Start::parked`](crate::Start::parked) stay blocked, outside of every function
///   that locks or allocates, until the start has returned. (`tensorferry-spawn` ensures this for the threads
///   that it passes.)
/// - A member of a domain that is forked by other means than `tensorferry-spawn` releases nothing in shared
///   memory until it has rejoined.
pub unsafe fn allow_fork() {
    ALLOWED.store(true, Ordering::SeqCst);
}

pub(crate) fn is_allowed() -> bool {
    ALLOWED.load(Ordering::SeqCst)
}

/// Adopts the parent's permission to fork.
pub(crate) fn inherit_allowance() {
    ALLOWED.store(true, Ordering::SeqCst);
}

/// What the child needs after the fork.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) control: OwnedFd,
    pub(crate) nonce: String,
    pub(crate) outputs: Outputs,
    pub(crate) current_dir: Option<OwnedFd>,
    pub(crate) environment: Vec<(OsString, Option<OsString>)>,
}

/// Forks. Returns in the parent only. The child runs its entry on top of the parent's stack, and never
/// returns to it.
pub(crate) fn fork(parked: &[u32], ours: OwnedFd, child: Child) -> Result<(PidFd, OwnedFd), StartError> {
    if !is_allowed() {
        return Err(StartError::ForkNotAllowed);
    }
    if let Some(reason) = HAZARDS.iter().find_map(|hazard| hazard()) {
        return Err(StartError::Hazard { reason });
    }
    let starter = starter::park();
    let parked: Vec<u32> = parked.iter().copied().chain(starter.thread_id()).collect();
    // SAFETY: all threads in `parked` are outside of every function that locks or allocates until this
    // returns. The thread that starts processes waits as long as `starter` exists. The others are parked by
    // the contract of `allow_fork`. The same contract covers the child's use of shared memory.
    match unsafe { fork_alone(&parked) }? {
        Forked::Child => {
            starter.forget();
            // The parent's end of the control socket.
            drop(ours);
            child.live()
        }
        // Nothing else reaps the child, so its process ID cannot be reused before this call.
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
        let set_up = || {
            // First, to shorten the time in which the parent's death would go unnoticed.
            os::die_with_parent()?;
            os::null_stdin()?;
            outputs.take_over()?;
            if let Some(dir) = current_dir {
                os::enter_dir(dir)?;
            }
            for (name, value) in environment {
                os::set_variable(&name, value.as_deref())?;
            }
            // These belong to the parent.
            forkserver::forget();
            leash::forget();
            Ok(())
        };
        exit_at_once(entry::live_forked(control, &nonce, entry::Parent::Peer, set_up))
    }
}
