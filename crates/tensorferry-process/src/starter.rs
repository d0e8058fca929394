//! The thread that starts children.
//!
//! A child asks to be killed when its parent dies, but for the kernel the parent is the *thread* that started
//! it (`PR_SET_PDEATHSIG`, prctl(2)). A child started from a worker thread would die with that thread. So the
//! main thread starts children itself. For all other threads, one dedicated thread starts them, which lives
//! as long as the process.
//!
//! A child inherits what the kernel keeps for the thread that starts it. So this thread takes on the affinity
//! of the calling one before each start. The rest is that of the thread that started the first child:
//! [`StartMethod::Spawn`](crate::StartMethod::Spawn) names it. A nice value, for one, can be raised by
//! anybody but not be taken back.
//!
//! This thread must not prevent later forks. So it is parked between two jobs: it waits on a condition
//! variable under the lock of its jobs. A thread that forks holds that lock.

use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crossbeam_channel::{Sender, bounded};
use tensorferry_os::child::Affinity;
use tensorferry_os::fork::thread_id;
use tensorferry_os::pidfd::PidFd;

use crate::error::StartError;
use crate::program::Program;

struct Job {
    program: Program,
    /// The calling thread's. `None` where the kernel does not tell it.
    affinity: Option<Affinity>,
    reply: Sender<Result<PidFd, StartError>>,
}

struct Starter {
    /// The process that the thread belongs to. A process forked from it has this memory too, but not the
    /// thread.
    pid: u32,
    /// Its thread ID, once it runs.
    thread_id: Option<u32>,
    jobs: VecDeque<Job>,
    is_busy: bool,
}

impl Starter {
    fn is_mine(&self) -> bool {
        self.pid == std::process::id()
    }
}

static STARTER: Mutex<Option<Starter>> = Mutex::new(None);
/// Signalled when there is a job.
static WORK: Condvar = Condvar::new();
/// Signalled when there is no job and the thread is about to wait for one.
static IDLE: Condvar = Condvar::new();

fn starter() -> MutexGuard<'static, Option<Starter>> {
    STARTER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a process from a thread that lives as long as this process.
pub(crate) fn start(program: Program) -> Result<PidFd, StartError> {
    if tensorferry_os::child::is_main_thread() {
        return program.start();
    }
    let (reply, answer) = bounded(1);
    let affinity = Affinity::of_this_thread().ok();
    let mut starter = starter();
    let running = match starter.take().filter(Starter::is_mine) {
        Some(running) => running,
        None => {
            std::thread::Builder::new().name(String::from("tf-starter")).spawn(serve).map_err(no_thread)?;
            Starter { pid: std::process::id(), thread_id: None, jobs: VecDeque::new(), is_busy: false }
        }
    };
    starter.insert(running).jobs.push_back(Job { program, affinity, reply });
    WORK.notify_one();
    drop(starter);
    answer.recv().map_err(|_| no_thread(io::Error::other("it is gone")))?
}

fn no_thread(error: io::Error) -> tensorferry_os::Error {
    tensorferry_os::Error::new("use of a thread that starts processes", error)
}

/// The body of the thread.
fn serve() {
    let mut starter = starter();
    while let Some(running) = &mut *starter {
        running.thread_id = Some(thread_id());
        running.is_busy = false;
        let Some(Job { program, affinity, reply }) = running.jobs.pop_front() else {
            IDLE.notify_all();
            starter = WORK.wait(starter).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        running.is_busy = true;
        drop(starter);
        // Refused only if the processors were taken away since; the child runs where it may then.
        let _ = affinity.as_ref().map(Affinity::adopt);
        // The caller waits for it.
        let _ = reply.send(program.start());
        starter = self::starter();
    }
}

/// Keeps the thread parked as long as this exists. The thread waits for the condition variable or for the
/// lock, which allocates nothing, and holds no other lock.
pub(crate) struct Parked(MutexGuard<'static, Option<Starter>>);

/// Waits until the thread has no job, and keeps it from getting one.
pub(crate) fn park() -> Parked {
    let is_moving = |starter: &mut Option<Starter>| {
        starter.as_ref().is_some_and(|running| {
            running.is_mine() && (running.is_busy || running.thread_id.is_none() || !running.jobs.is_empty())
        })
    };
    Parked(IDLE.wait_while(starter(), is_moving).unwrap_or_else(PoisonError::into_inner))
}

impl Parked {
    /// The thread's ID, if there is one.
    pub(crate) fn thread_id(&self) -> Option<u32> {
        self.0.as_ref().filter(|running| running.is_mine()).and_then(|running| running.thread_id)
    }

    /// For a process that was forked in the meantime: the thread belongs to the parent.
    pub(crate) fn forget(mut self) {
        *self.0 = None;
    }
}
