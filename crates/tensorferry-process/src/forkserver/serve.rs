//! The server: one thread, which forks on request, collects what it has forked, and tells.
//!
//! # Safety
//! The server forks, and is made for that: it has one thread, and nothing in it is shared with others.
#![expect(unsafe_code, reason = "forks")]

use std::os::fd::{AsFd, OwnedFd};

use tensorferry_os::child::{self as os, Dispositions};
use tensorferry_os::fork::{Alone, ForkError, Forked, exit_at_once};
use tensorferry_os::leash::Leash;
use tensorferry_os::pidfd::PidFd;
use tensorferry_os::socket::{Interest, wait_ready};

use super::wire::{self, Descriptors, Request, Word};
use crate::entry::{self, EXIT_CODE_NO_PARENT, Failure};
use crate::error::ProtocolError;
use crate::inherited::Inherited;
use crate::redirect::Outputs;

/// What a server is told at its start: the entries to run before it serves, each with its payload.
pub(crate) type Preloads = Vec<(String, Vec<u8>)>;

/// A child of the server, and where its client hears about it.
struct Forkling {
    pidfd: PidFd,
    words: OwnedFd,
}

/// Everything that the server has open. A forked child drops it.
struct Server {
    /// As of the moment after the preloads. Since then nothing but this file runs in this process.
    alone: Alone,
    requests: OwnedFd,
    leash: OwnedFd,
    children: Vec<Forkling>,
    dispositions: Dispositions,
}

/// The entry of a fork server. Returns when its client is gone.
pub(crate) fn serve(inherited: &mut Inherited) -> Result<(), Failure> {
    let preloads: Preloads = postcard::from_bytes(inherited.payload())?;
    let [requests, leash] = <[OwnedFd; 2]>::try_from(inherited.take_fds())
        .map_err(|fds| Failure::Refused(format!("a fork server needs 2 descriptors, not {}", fds.len())))?;
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
    // From here on it keeps no output, no folder and no terminal of its client busy.
    let null = || Ok::<_, tensorferry_os::Error>(Outputs { stdout: os::null()?, stderr: os::null()? });
    null()?.take_over()?;
    os::enter_dir(os::open_dir("/".as_ref())?)?;
    let dispositions = os::serve_undisturbed()?;
    Server { alone, requests, leash, children: Vec::new(), dispositions }.run(inherited)
}

fn preload(inherited: &mut Inherited, preloads: Preloads) -> Result<(), Failure> {
    for (name, payload) in preloads {
        let run =
            entry::find_run(&name).ok_or_else(|| Failure::Refused(format!("there is no entry `{name}`")))?;
        inherited.with_payload(payload, run)?;
    }
    Ok(())
}

/// Tells the client of a child that was just forked. The child waits for its client meanwhile.
fn announce(pid: u32, request: &Request, words: &OwnedFd) -> Result<PidFd, ProtocolError> {
    // Nobody else collects it, so the number is still its own.
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
                    // The client is gone, and so will be its children: it held their leash.
                    Ok(None) => return Ok(()),
                    // It makes no sense, or its descriptors could not be opened here (RLIMIT_NOFILE), and what follows
                    // cannot be understood either. The client is told and starts another server.
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }

    /// Tells about those that have ended.
    fn collect(&mut self) {
        self.children.retain(|child| match os::reap(&child.pidfd) {
            Ok(None) => true,
            Ok(Some(ended)) => {
                // That nobody listens any more is no error: the client is gone, or has lost interest in the child.
                let _ = wire::say(&child.words, &Word::Ended(ended.into()), None);
                false
            }
            // It cannot be collected; that the socket is closed says so.
            Err(_) => false,
        });
    }

    /// Forks. Returns in the server only.
    fn answer(
        mut self,
        inherited: &Inherited,
        request: Request,
        fds: Descriptors<OwnedFd>,
    ) -> Result<Self, Failure> {
        let refuse = |words: &OwnedFd, error: &dyn std::fmt::Display| {
            // Where not even that can be said, the client sees its socket closed.
            let _ = wire::say(words, &Word::Refused { reason: error.to_string() }, None);
        };
        // SAFETY: no thread is parked. Since it was looked, this thread has run nothing but this file, which starts no thread and
        // no driver. The server is a member of no domain, whose service thread would have been in the way, so it has no memory
        // that is shared and written.
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

    /// The rest of the life of what was forked.
    fn become_child(self, inherited: &Inherited, mut request: Request, fds: Descriptors<OwnedFd>) -> ! {
        let Descriptors { control, words, stdout, stderr, current_dir } = fds;
        self.dispositions.restore();
        let (nonce, environment) = (request.nonce.clone(), request.take_environment());
        let settle = || {
            // The client is gone, and nobody would ever end this process. Its pidfd may not tell yet: a process that ends
            // closes its files first.
            let Some(leash) = Leash::arm(&self.leash)? else { exit_at_once(EXIT_CODE_NO_PARENT) };
            // The others' sockets tell their client that the server is gone, which must not wait for this process.
            drop((self, words));
            inherited.link().close();
            Outputs { stdout, stderr }.take_over()?;
            os::enter_dir(current_dir)?;
            os::replace_environment(environment)?;
            Ok(leash)
        };
        std::process::exit(entry::live_forked(control, &nonce, entry::Parent::Other, settle))
    }
}
