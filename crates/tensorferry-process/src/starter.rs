//! The thread that starts children.
//!
//! A child asks to be killed when its parent dies, but the kernel takes "parent" to be the *thread* that started it
//! (`PR_SET_PDEATHSIG`, prctl(2)): started from a worker thread, children would die with that thread. So they are
//! started from the main thread when that is the caller, and otherwise from one thread that is made for it and that
//! lives as long as the process.

use std::io;
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};

use crossbeam_channel::{Sender, bounded};

struct Job {
    command: Command,
    reply: Sender<io::Result<Child>>,
}

struct Starter {
    // A process that was forked from this one has the memory but not the thread.
    pid: u32,
    jobs: Sender<Job>,
}

static STARTER: Mutex<Option<Starter>> = Mutex::new(None);

/// Starts a process from a thread that lives as long as this process.
pub(crate) fn start(mut command: Command) -> io::Result<Child> {
    if tensorferry_os::child::is_main_thread() {
        return command.spawn();
    }
    let (reply, answer) = bounded(1);
    let gone = |_| io::Error::other("the thread that starts processes is gone");
    jobs()?.send(Job { command, reply }).map_err(|_| gone(()))?;
    answer.recv().map_err(|_| gone(()))?
}

fn jobs() -> io::Result<Sender<Job>> {
    let mut starter = STARTER.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = std::process::id();
    if let Some(running) = starter.as_ref().filter(|running| running.pid == pid) {
        return Ok(running.jobs.clone());
    }
    let (jobs, queue) = bounded::<Job>(0);
    std::thread::Builder::new().name(String::from("tf-starter")).spawn(move || {
        // The sender is in a static, so this ends with the process.
        for mut job in queue {
            // A caller that is gone has nobody to tell; `Child` of std neither kills nor waits when it is dropped.
            let _ = job.reply.send(job.command.spawn());
        }
    })?;
    *starter = Some(Starter { pid, jobs: jobs.clone() });
    Ok(jobs)
}
