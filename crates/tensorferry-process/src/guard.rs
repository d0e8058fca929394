//! The thread of a child that watches its parent.
//!
//! The kernel kills a child when its parent dies (`PR_SET_PDEATHSIG`, prctl(2)), at once and even while it is stopped. But
//! it forgets the request when the child changes its user or group, or executes a program that does, and it counts the
//! thread that started the child as the parent. This thread waits for the parent's pidfd, so that it is about the process
//! and cannot be forgotten. Of the two, whichever comes first ends the child.

use std::io;

use tensorferry_os::child as os;

use crate::parent::ParentProcess;

/// It waits and then ends the process; most of this is for the thread's own start.
const STACK_LEN_BYTES: usize = 64 << 10;

/// Ends this process when its parent has ended.
pub(crate) fn watch(parent: ParentProcess) -> io::Result<()> {
    let thread = std::thread::Builder::new().name(String::from("tf-guard")).stack_size(STACK_LEN_BYTES);
    thread.spawn(move || {
        // An error means that the kernel has no memory for poll(2); the death signal remains.
        if parent.pidfd().wait_dead(None).is_ok() {
            let _ = os::kill_self();
        }
    })?;
    Ok(())
}
