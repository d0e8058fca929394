//! Writing buffered output at the end of a process whose other threads may hold the locks of the buffers.
//!
//! Neither the standard library nor the C library has a call that flushes an output only if its lock is free.
//! So another thread flushes, and the ending one looks at what the kernel says that it waits for: a lock
//! (futex(2)) may never come free, but a slow reader of the output is waited for.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use nix::libc;

use crate::fork::thread_id;
use crate::proc_file;

/// How often to look at the thread that flushes.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// For how many looks in a row it may wait for a lock. A thread that is about to print lets go of it sooner.
const MAX_LOOKS_AT_LOCK: usize = 3;

/// Calls `flush` on another thread, and returns when it has returned, or when it waits for a lock.
pub(crate) fn flush_unless_locked(flush: fn()) {
    let (tell, told) = mpsc::channel();
    let work = move || {
        let _ = tell.send(thread_id());
        flush();
        // Only now is the other end told that there is nothing more to come.
        drop(tell);
    };
    if std::thread::Builder::new().name(String::from("tf-flush")).spawn(work).is_err() {
        // There is no room for one more thread, and output is more likely to wait than a lock to be held.
        return flush();
    }
    let Ok(tid) = told.recv() else { return };
    let mut n_looks_at_lock = 0;
    while n_looks_at_lock < MAX_LOOKS_AT_LOCK
        && told.recv_timeout(LOOK_INTERVAL) == Err(RecvTimeoutError::Timeout)
    {
        n_looks_at_lock = if waits_for_lock(tid) { n_looks_at_lock + 1 } else { 0 };
    }
}

/// Whether a thread of this process is inside of futex(2), as `/proc` tells (proc_pid_syscall(5)). True where
/// that cannot be read, so that nobody waits for ever.
fn waits_for_lock(tid: u32) -> bool {
    let call = proc_file::read(format!("/proc/self/task/{tid}/syscall"));
    call.map_or(true, |call| call.split(' ').next() == Some(libc::SYS_futex.to_string().as_str()))
}
