//! The server: one thread that forks on request, reaps its children, and reports how they ended.
//!
//! # Safety
//! This process may fork: it has one thread, and shares no written memory with other processes. Both are
//! looked at after the preloads, and from then on only the code of this file runs.
#![expect(unsafe_code, reason = "forks")]

use std::os::fd::{AsFd, OwnedFd};

use tensorferry_os::child::{self as os, Dispositions};
use tensorferry_os::fork::{Alone, ForkError, Forked};
use tensorferry_os::mapping::has_shared_memory;
use tensorferry_os::pidfd::PidFd;
use tensorferry_os::socket::{Interest, wait_ready};

use super::wire::{self, Descriptors, Request, Word};
use crate::entry::{self, Failure};
use crate::error::ProtocolError;
use crate::inherited::Inherited;
use crate::leash;
use crate::redirect::Outputs;

/// What a server is told at its start: the entries to run before it serves, each with its payload.
pub(crate) type Preloads = Vec<(String, Vec<u8>)>;

/// A child of the server, and the socket on which its client hears about it.
struct Forkling {
    pidfd: PidFd,
    words: OwnedFd,
}

/// Everything that the server has open. A forked child drops it.
struct Server {
    /// Established right after the preloads. Since then only the code of this file has run in this process.
    alone: Alone,
    requests: OwnedFd,
    children: Vec<Forkling>,
    dispositions: Dispositions,
}

/// The entry of a fork server. Returns when its client is gone.
pub(crate) fn serve(inherited: &mut Inherited) -> Result<(), Failure> {
    let preloads: Preloads = postcard::from_bytes(inherited.payload())?;
    let [requests] = <[OwnedFd; 1]>::try_from(inherited.take_fds())
        .map_err(|fds| Failure::Refused(format!("a fork server needs 1 descriptor, not {}", fds.len())))?;
    preload(inherited, preloads)?;
    let alone = Alone::check(&[]).map_err(|error| match error {
        ForkError::Threads { threads } => {
            let names = threads.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            Failure::Refused(format!(
                "what was preloaded has left threads, so the server cannot fork: {names}"
            ))
        }
        other => other.into(),
    })?;
    // Of a process that only joins a domain this is the one trace: it has no service thread before it needs
    // one.
    if has_shared_memory() {
        return Err(Failure::Refused(String::from(
            "what was preloaded has joined a domain or made one (a tensor in shared memory, a queue), which a process \
             and those that are forked from it cannot have together, so the server cannot fork",
        )));
    }
    // From here on the server does not keep its client's outputs, directory and terminal open.
    let null = || Ok::<_, tensorferry_os::Error>(Outputs { stdout: os::null()?, stderr: os::null()? });
    null()?.take_over()?;
    os::enter_dir(os::open_dir("/".as_ref())?)?;
    let dispositions = os::serve_undisturbed()?;
    Server { alone, requests, children: Vec::new(), dispositions }.run(inherited)
}

fn preload(inherited: &mut Inherited, preloads: Preloads) -> Result<(), Failure> {
    for (name, payload) in preloads {
        let run =
            entry::find_run(&name).ok_or_else(|| Failure::Refused(format!("there is no entry `{name}`")))?;
        inherited.with_payload(payload, run)?;
    }
    Ok(())
}

/// Tells the client about a child that was just forked. The child meanwhile waits for its client.
fn announce(pid: u32, request: &Request, words: &OwnedFd) -> Result<PidFd, ProtocolError> {
    // Nothing else reaps the child, so its process ID cannot be reused before this call.
    let pidfd = PidFd::open(pid)?;
    crate::start::schedule(&pidfd, request.nice, request.cpus.as_deref())?;
    wire::say(words, &Word::Started { pid }, Some(pidfd.as_fd()))?;
    Ok(pidfd)
}

impl Server {
    fn run(mut self, inherited: &Inherited) -> Result<(), Failure> {
        loop {
            let watched: Vec<_> = std::iter::once(self.requests.as_fd())
                .chain(self.children.iter().map(|child| child.pidfd.as_fd()))
                .map(|fd| (fd, Interest::Readable))
                .collect();
            let ready = wait_ready(&watched, None)?;
            self.collect();
            if ready.first() == Some(&true) {
                match Request::receive(&self.requests) {
                    Ok(Some((request, fds))) => self = self.answer(inherited, request, fds)?,
                    // The client is gone. Its children die too, because it held their leash (`leash.rs`).
                    Ok(None) => return Ok(()),
                    // The request cannot be decoded, or its descriptors could not be received here
                    // (RLIMIT_NOFILE). The rest of the stream is then unusable. The client sees the server
                    // end, and starts another one.
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }

    /// Reports the children that have ended.
    fn collect(&mut self) {
        self.children.retain(|child| match os::reap(&child.pidfd) {
            Ok(None) => true,
            Ok(Some(ended)) => {
                // A closed socket is no error: the client is gone, or has dropped the child.
                let _ = wire::say(&child.words, &Word::Ended(ended.into()), None);
                false
            }
            // The child cannot be reaped. Closing its socket tells the client.
            Err(_) => false,
        });
    }

    /// Forks a child. Returns in the server only.
    fn answer(
        mut self,
        inherited: &Inherited,
        request: Request,
        fds: Descriptors<OwnedFd>,
    ) -> Result<Self, Failure> {
        let refuse = |words: &OwnedFd, error: &dyn std::fmt::Display| {
            // If this fails too, the client sees its socket closed.
            let _ = wire::say(words, &Word::Refused { reason: error.to_string() }, None);
        };
        // SAFETY: no thread is parked. Since `Alone::check`, this thread has run only the code of this file,
        // which starts no thread and no driver, and maps nothing. The server has no shared memory that is
        // written (`serve` has checked it right after).
        match unsafe { self.alone.fork() } {
            Ok(Forked::Child) => self.become_child(inherited, request, fds),
            Err(error) => refuse(&fds.words, &error),
            Ok(Forked::Parent { pid }) => match announce(pid, &request, &fds.words) {
                Ok(pidfd) => self.children.push(Forkling { pidfd, words: fds.words }),
                Err(error) => {
                    os::kill_and_collect(pid);
                    refuse(&fds.words, &error);
                }
            },
        }
        Ok(self)
    }

    /// The rest of the life of the forked child.
    fn become_child(self, inherited: &Inherited, mut request: Request, fds: Descriptors<OwnedFd>) -> ! {
        let Descriptors { control, words, stdout, stderr, current_dir } = fds;
        self.dispositions.restore();
        let (nonce, environment) = (request.nonce.clone(), request.take_environment());
        let set_up = || {
            // The sockets of the other children tell their clients that the server is gone. Copies in this
            // process would delay that.
            drop((self, words));
            // If something was started by what was preloaded.
            leash::forget();
            inherited.link().close();
            Outputs { stdout, stderr }.take_over()?;
            os::enter_dir(current_dir)?;
            os::replace_environment(environment)?;
            Ok(())
        };
        std::process::exit(entry::live_forked(control, &nonce, entry::Parent::Other, set_up))
    }
}
