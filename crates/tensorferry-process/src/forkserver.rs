//! The fork server of this process: started on first use, asked to fork, replaced after its death.
//!
//! ```text
//! this process                          server (this program, one thread)       child
//! Start::new(&FORKSERVER) ────────────▶ runs the preloads
//! request: nonce, environment, fds ───▶ fork ─────────────────────────────────▶ leaves the server's
//!   ◀────────── Started, with a pidfd   pidfd_open, before it could collect     outputs, folder, environment
//! payload over the control socket ────────────────────────────────────────────▶ as any child from here on
//!   ◀──────────────── Ended(status)     collects it when its pidfd is readable
//! ```
//!
//! - The pidfd that this process receives refers to the right child. The child's parent, the server, opened
//!   it before it could have reaped the child.
//! - The server dies with this process, as every child does. The server's children hang on a *leash* of this
//!   process, not of the server. The kernel kills them when this process ends, however it ends. They survive
//!   the server.
//! - A request to a dead server fails with an error, and the next start begins a new server. This process
//!   still sees what the children of the old server do, through their control sockets and pidfds. Only their
//!   exit codes are lost.

pub(crate) mod serve;
pub(crate) mod wire;

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tensorferry_os::pidfd::PidFd;
use tensorferry_os::socket::{self, Interest};

use self::wire::{Descriptors, Request, Word};
use crate::child::Child;
use crate::entry::{Entry, FORKSERVER};
use crate::error::{ForkServerError, ProtocolError, StartError};
use crate::relay::Relay;
use crate::start::Start;

/// What to run in a server before it serves, and the server.
#[derive(Debug)]
struct Current {
    preloads: serve::Preloads,
    server: Option<Arc<ForkServer>>,
}

static CURRENT: Mutex<Current> = Mutex::new(Current { preloads: Vec::new(), server: None });

fn current() -> MutexGuard<'static, Current> {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the fork server of this process run `entry` with `payload` once, before it forks anything. Each
/// child begins with a copy of the resulting memory. Several entries run in the order of these calls. They
/// must not leave a thread behind, nor shared memory (a domain): the server then refuses to start.
///
/// # Errors
/// [`ForkServerError::Running`] when the server was started already.
pub fn preload_forkserver(entry: &'static Entry, payload: impl Into<Vec<u8>>) -> Result<(), ForkServerError> {
    let mut current = current();
    if let Some(server) = current.server.as_ref().filter(|server| server.is_mine()) {
        return Err(ForkServerError::Running { pid: server.pid() });
    }
    current.preloads.push((entry.name().to_owned(), payload.into()));
    Ok(())
}

/// How long a server that has closed its sockets has to end. Only the text of the error depends on it.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// For a process that was forked from the client: the server belongs to the parent.
pub(crate) fn forget() {
    // The lock is free: only another thread could have held it at the fork, and then the fork is refused.
    if let Ok(mut current) = CURRENT.try_lock() {
        *current = Current { preloads: std::mem::take(&mut current.preloads), server: None };
    }
}

/// A server and its sockets.
#[derive(Debug)]
pub(crate) struct ForkServer {
    /// The server's client. A process forked from the client has this memory too, but must not use the
    /// server.
    client_pid: u32,
    process: Mutex<Child>,
    pidfd: PidFd,
    requests: Mutex<OwnedFd>,
}

/// The result of a start through a server.
pub(crate) struct Started {
    pub(crate) pidfd: PidFd,
    pub(crate) relay: Relay,
}

impl ForkServer {
    /// Returns the server of this process. Starts one if there is none, or if the last one has died.
    pub(crate) fn get() -> Result<Arc<Self>, StartError> {
        let mut current = current();
        // A process that something else has forked from the client begins a server of its own.
        current.server.take_if(|server| !server.is_mine() || server.is_dead());
        if let Some(server) = &current.server {
            return Ok(Arc::clone(server));
        }
        let server = Arc::new(Self::start(&current.preloads)?);
        current.server = Some(Arc::clone(&server));
        Ok(server)
    }

    fn start(preloads: &serve::Preloads) -> Result<Self, StartError> {
        let (requests, theirs) = socket::pair()?;
        let payload = postcard::to_stdvec(preloads).map_err(|e| StartError::Payload(e.into()))?;
        let start = Start::new(&FORKSERVER).name("forkserver").payload(payload).fd(theirs);
        let process = start.start()?;
        let own = process.pidfd().as_fd().try_clone_to_owned();
        let own = own.map_err(|e| tensorferry_os::Error::new("dup of a pidfd", e))?;
        Ok(Self {
            client_pid: std::process::id(),
            pidfd: PidFd::from_fd(own, process.pid()),
            process: Mutex::new(process),
            requests: Mutex::new(requests),
        })
    }

    fn is_mine(&self) -> bool {
        self.client_pid == std::process::id()
    }

    fn pid(&self) -> u32 {
        self.pidfd.pid()
    }

    fn is_dead(&self) -> bool {
        self.pidfd.is_dead().unwrap_or(false)
    }

    /// Makes the server fork a child.
    ///
    /// # Blocking
    /// Until the server has answered or has died. The first call also waits for the preloads.
    pub(crate) fn fork(&self, request: &Request, fds: ForkFds) -> Result<Started, StartError> {
        let (words, theirs) = socket::message_pair()?;
        {
            let ForkFds { control, stdout, stderr, current_dir } = &fds;
            let fds = Descriptors {
                control: control.as_fd(),
                words: theirs.as_fd(),
                stdout: stdout.as_fd(),
                stderr: stderr.as_fd(),
                current_dir: current_dir.as_fd(),
            };
            let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            match request.send(&requests, &fds) {
                Ok(()) => {}
                // A server closes its socket only by ending. Its pidfd becomes readable a little later.
                Err(ProtocolError::Os(error))
                    if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) =>
                {
                    return Err(self.died());
                }
                Err(error) => return Err(error.into()),
            }
        }
        // From here on only the server has these, so the socket closes when the server ends.
        drop((theirs, fds));
        let mut pidfds = Vec::new();
        loop {
            let waited = [(words.as_fd(), Interest::Readable), (self.pidfd.as_fd(), Interest::Readable)];
            let is_dead = socket::wait_ready(&waited, None)?[1];
            match wire::hear_with(&words, &mut pidfds) {
                Ok(Some(Word::Started { pid })) => {
                    let Some(pidfd) = pidfds.pop() else { return Err(self.died()) };
                    return Ok(Started { pidfd: PidFd::from_fd(pidfd, pid), relay: Relay::new(words) });
                }
                Ok(Some(Word::Refused { reason })) => {
                    return Err(ForkServerError::Refused { pid: self.pid(), reason }.into());
                }
                Ok(None) if !is_dead => {}
                // This process could not receive the child's pidfd (EMFILE). The child finds its control
                // socket closed, and ends.
                Err(ProtocolError::Os(error)) => return Err(error.into()),
                Ok(Some(Word::Ended(_)) | None) | Err(_) => return Err(self.died()),
            }
        }
    }

    /// The error for a server that does not answer.
    fn died(&self) -> StartError {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        // A server normally closes its sockets only by ending.
        let how = match process.wait_timeout(END_TIMEOUT) {
            Ok(Some(exit)) => exit.to_string(),
            // The server is alive, but could not send its answer.
            Ok(None) => {
                String::from("is still alive but has closed its answer socket, perhaps for lack of memory")
            }
            Err(error) => error.to_string(),
        };
        ForkServerError::Died { pid: self.pid(), how }.into()
    }
}

/// The client's descriptors that a forked child receives.
pub(crate) struct ForkFds {
    pub(crate) control: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    pub(crate) current_dir: OwnedFd,
}
