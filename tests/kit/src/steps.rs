//! Running a thread of a child instruction by instruction, so that it can be killed or left standing at any
//! of them.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::wait::deadline;
use crate::{Child, SharedBytes, until};

/// How a run to the next event ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Shared bytes changed, or a system call returned.
    Event,
    /// The call that is watched is over.
    Done,
}

/// One thread of a child under the control of the thread that made this (ptrace(2)). The other threads run
/// on.
#[derive(Debug)]
pub struct Stepper {
    thread: Pid,
}

impl Stepper {
    /// Takes the main thread of a puppet that waits for a command, gives it the command, and runs it up to
    /// where the command's work begins.
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

    /// Takes the main thread of a child that stops itself before it does what it is watched for.
    ///
    /// # Errors
    /// As [`Stepper::begin`].
    pub fn seize(child: &Child) -> Result<Self, Errno> {
        let thread = Pid::from_raw(i32::try_from(child.pid()).unwrap());
        ptrace::seize(thread, ptrace::Options::PTRACE_O_EXITKILL)?;
        Ok(Self { thread })
    }

    /// Waits until the thread has stopped itself with SIGSTOP; it goes on from there when it is stepped.
    #[track_caller]
    pub fn wait_until_halted(&self) {
        self.wait_stop(Signal::SIGSTOP);
    }

    /// Stops every thread with this name while it waits for descriptors, so that none holds a lock. There is
    /// one at least.
    ///
    /// # Errors
    /// As [`Stepper::begin`].
    pub fn interrupt_polling(child: &Child, name: &str) -> Result<Vec<Self>, Errno> {
        until("a thread has this name", || !threads_with_name(child, name).is_empty());
        threads_with_name(child, name).into_iter().map(Self::interrupt_while_polling).collect()
    }

    fn interrupt_while_polling(thread: Pid) -> Result<Self, Errno> {
        let start = Instant::now();
        loop {
            let stepper = Self::interrupt_thread(thread)?;
            if stepper.is_polling() {
                return Ok(stepper);
            }
            stepper.let_run();
            assert!(start.elapsed() < deadline(), "the thread never waits for descriptors");
            std::thread::yield_now();
        }
    }

    /// Stops the thread with this name wherever it is.
    ///
    /// # Errors
    /// As [`Stepper::begin`].
    pub fn interrupt(child: &Child, name: &str) -> Result<Self, Errno> {
        until("a thread has this name", || !threads_with_name(child, name).is_empty());
        Self::interrupt_thread(threads_with_name(child, name)[0])
    }

    fn interrupt_thread(thread: Pid) -> Result<Self, Errno> {
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

    /// Runs up to where shared bytes have changed or a system call has returned, or to where `done` holds,
    /// which is looked at there. Adds what it ran to `n_instructions`.
    pub fn step_to_event(
        &self,
        shared: &mut SharedBytes,
        n_instructions: &mut u64,
        mut done: impl FnMut(&SharedBytes) -> bool,
    ) -> Stop {
        loop {
            ptrace::step(self.thread, None).unwrap();
            self.wait_step();
            *n_instructions += 1;
            let changed = shared.look();
            let returned = self.has_returned_from_kernel();
            if changed || returned {
                return if done(shared) { Stop::Done } else { Stop::Event };
            }
        }
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

    /// Waits until a killed thread that is not its process's first is gone for its tracer.
    pub fn wait_gone(self) {
        until("the thread is gone", || {
            !matches!(waitpid(self.thread, flags()), Ok(WaitStatus::StillAlive | WaitStatus::Stopped(..)))
        });
    }

    fn wait_step(&self) {
        // Looking is quicker than sleeping: another processor runs the step meanwhile. Where none is free,
        // yielding lets the step have this one.
        let start = Instant::now();
        let mut looks = 0_u32;
        loop {
            match self.poll() {
                Some(WaitStatus::Stopped(_, Signal::SIGTRAP)) => return,
                Some(other) => panic!("a step ended in {other:?}"),
                None => looks += 1,
            }
            if looks > 64 {
                std::thread::yield_now();
            }
            if looks.is_multiple_of(4096) {
                assert!(start.elapsed() < deadline(), "a step took longer than {:?}", deadline());
            }
        }
    }

    /// Whether the step was a system call: the kernel keeps its number beside the registers then, and -1
    /// otherwise.
    fn has_returned_from_kernel(&self) -> bool {
        system_call_of(self.thread) >= 0
    }

    fn is_polling(&self) -> bool {
        [nix::libc::SYS_poll, nix::libc::SYS_ppoll].contains(&system_call_of(self.thread))
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

/// The number of the system call that a stopped thread is in or has just returned from; negative when there
/// is none.
fn system_call_of(thread: Pid) -> i64 {
    ptrace::getregs(thread).unwrap().orig_rax.cast_signed()
}

fn threads_with_name(child: &Child, name: &str) -> Vec<Pid> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", child.pid())).unwrap();
    let has_name = |path: &std::path::Path| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|found| found.trim_end() == name)
    };
    let paths = threads.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| has_name(path));
    paths.filter_map(|path| Some(Pid::from_raw(path.file_name()?.to_str()?.parse().ok()?))).collect()
}

fn flags() -> Option<WaitPidFlag> {
    Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL)
}
