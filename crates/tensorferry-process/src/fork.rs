//! A child that is a fork of this very process: what is looked at before, and how it begins.

use std::ffi::OsString;
use std::os::fd::OwnedFd;

use tensorferry_os::child as os;
use tensorferry_os::fork::{Forked, exit_at_once, fork_alone};
use tensorferry_os::pidfd::PidFd;

use crate::entry;
use crate::error::StartError;
use crate::forkserver;
use crate::guard;
use crate::redirect::Outputs;

/// Says why this process must not be forked now, if there is a reason.
pub type Hazard = fn() -> Option<String>;

/// What is asked before this process is forked, collected by the linker. Made by [`fork_hazard!`](crate::fork_hazard!).
#[linkme::distributed_slice]
pub static HAZARDS: [Hazard];

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
    if let Some(reason) = HAZARDS.iter().find_map(|hazard| hazard()) {
        return Err(StartError::Hazard { reason });
    }
    let parked: Vec<u32> = parked.iter().copied().chain(guard::parked()).collect();
    match fork_alone(&parked)? {
        Forked::Child => {
            // The parent's end.
            drop(ours);
            child.live()
        }
        // Nobody else collects it, so the number is its own until we do.
        Forked::Parent { pid } => Ok((PidFd::open(pid)?, ours)),
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
                os::set_variable(&name, value.as_deref());
            }
            // They are the parent's.
            forkserver::forget();
            guard::forget();
            Ok(())
        };
        exit_at_once(entry::live_forked(control, &nonce, entry::Parent::Peer, settle))
    }
}
