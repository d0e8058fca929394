//! Running a thread of a child instruction by instruction, so that it can be killed or left standing at any of them.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::{Child, until};

/// One thread of a child under the control of the thread that made this (ptrace(2)). The other threads run on.
#[derive(Debug)]
pub struct Stepper {
    thread: Pid,
}

impl Stepper {
    /// Takes the main thread of a puppet that waits for a command, gives it the command, and runs it up to where the
    /// command's work begins.
    ///
    /// # Errors
    /// EPERM where this process may not trace its children.
    pub fn begin(child: &Child, command: &str) -> Result<Self, Errno> {
        let thread = Pid::from_raw(i32::try_from(child.pid()).unwrap());
        ptrace::seize(thread, ptrace::Options::PTRACE_O_EXITKILL)?;
        let stepper = Self { thread };
        child.say(format!("halt {command}"));
        stepper.wait_stop(Signal::SIGSTOP);
        child.expect("on it");
        Ok(stepper)
    }

    /// Stops the thread with this name wherever it is.
    ///
    /// # Errors
    /// As [`Stepper::begin`].
    pub fn interrupt(child: &Child, name: &str) -> Result<Self, Errno> {
        let mut thread = None;
        until("a thread has this name", || {
            thread = thread_with_name(child, name);
            thread.is_some()
        });
        let thread = thread.unwrap();
        ptrace::seize(thread, ptrace::Options::PTRACE_O_EXITKILL)?;
        let stepper = Self { thread };
        stepper.stop();
        Ok(stepper)
    }

    /// Runs so many instructions, or until `done` holds; `done` is looked at now and then, and
    /// whenever the thread waits in the kernel. Returns how many were run; the thread stands then.
    pub fn step_until(&self, most: u64, mut done: impl FnMut() -> bool) -> u64 {
        for n in 0..most {
            if n % 64 == 0 && done() {
                return n;
            }
            ptrace::step(self.thread, None).unwrap();
            let mut looks = 0_u32;
            while self.poll().is_none() {
                looks += 1;
                std::thread::yield_now();
                if looks.is_multiple_of(2_000) && done() {
                    self.stop();
                    return n;
                }
            }
        }
        most
    }

    /// Lets the thread run for about so long, and stops it again wherever it is then: for calls of too many
    /// instructions.
    pub fn run_for(&self, duration: Duration) {
        ptrace::cont(self.thread, None).unwrap();
        let start = Instant::now();
        while start.elapsed() < duration {
            std::hint::spin_loop();
        }
        self.stop();
    }

    /// Lets the thread run on by itself.
    pub fn let_run(self) {
        ptrace::detach(self.thread, None).unwrap();
    }

    /// Kills the child where it stands.
    #[track_caller]
    pub fn kill(self, child: Child) {
        child.signal(Signal::SIGKILL);
        // A traced thread is not gone before its tracer has seen it go.
        let is_leader = u32::try_from(self.thread.as_raw()).ok() == Some(child.pid());
        if !is_leader {
            until("the thread is gone", || {
                !matches!(waitpid(self.thread, flags()), Ok(WaitStatus::StillAlive | WaitStatus::Stopped(..)))
            });
        }
        child.kill();
    }

    fn stop(&self) {
        ptrace::interrupt(self.thread).unwrap();
        until("the thread stops", || self.poll().is_some());
    }

    fn wait_stop(&self, signal: Signal) {
        until("the thread stops", || match self.poll() {
            Some(WaitStatus::Stopped(_, stopped)) if stopped == signal => true,
            None => false,
            Some(other) => panic!("the thread did something else: {other:?}"),
        });
    }

    fn poll(&self) -> Option<WaitStatus> {
        match waitpid(self.thread, flags()) {
            Ok(WaitStatus::StillAlive) => None,
            Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(_) => panic!("the thread is gone"),
            Ok(status) => Some(status),
        }
    }
}

fn thread_with_name(child: &Child, name: &str) -> Option<Pid> {
    let mut threads = std::fs::read_dir(format!("/proc/{}/task", child.pid())).unwrap();
    threads.find_map(|entry| {
        let path = entry.ok()?.path();
        let is_named = std::fs::read_to_string(path.join("comm")).ok()?.trim_end() == name;
        is_named.then(|| Some(Pid::from_raw(path.file_name()?.to_str()?.parse().ok()?)))?
    })
}

fn flags() -> Option<WaitPidFlag> {
    Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL)
}
