//! This process's end of the leash on which all of its children hang.
//!
//! One pipe serves all children: this process holds the writing end for as long as it lives, and each child
//! arms the reading end that comes with its hello.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use tensorferry_os::Result;
use tensorferry_os::leash::{Leash, pair};
use tensorferry_os::pidfd::PidFd;

/// Both ends of the pipe, and what else every child gets of this process. The kernel closes the end that is
/// held when this process ends.
#[derive(Debug)]
pub(crate) struct Held {
    /// The process that holds it. A process forked from it has this memory too, and a copy of the descriptor.
    pid: u32,
    _held: OwnedFd,
    pub(crate) reader: OwnedFd,
    /// This process.
    pub(crate) holder: PidFd,
}

/// Made with the first child.
static HELD: Mutex<Option<Arc<Held>>> = Mutex::new(None);

/// The leash of the children of this process.
///
/// # Errors
/// EMFILE when no descriptor is left.
pub(crate) fn held() -> Result<Arc<Held>> {
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = std::process::id();
    if let Some(held) = held.as_ref().filter(|held| held.pid == pid) {
        return Ok(Arc::clone(held));
    }
    let holder = PidFd::of_self()?;
    let (writer, reader) = pair()?;
    Ok(Arc::clone(held.insert(Arc::new(Held { pid, _held: writer, reader, holder }))))
}

/// For a process that was forked: the leash belongs to the parent, and a copy of it would keep the parent's
/// children when the parent has ended.
pub(crate) fn forget() {
    // The lock is free: only another thread could have held it at the fork, and then the fork is refused.
    if let Ok(mut held) = HELD.try_lock() {
        *held = None;
    }
}

/// The leash that this process hangs on.
static ARMED: Mutex<Option<Leash>> = Mutex::new(None);

/// Hangs this process on the leash of its parent. Returns false when the parent has ended.
///
/// # Errors
/// As [`Leash::arm`].
pub(crate) fn arm(reader: &OwnedFd) -> Result<bool> {
    let leash = Leash::arm(reader)?;
    let is_armed = leash.is_some();
    // A forked process lets go of its parent's here.
    *ARMED.lock().unwrap_or_else(PoisonError::into_inner) = leash;
    Ok(is_armed)
}
