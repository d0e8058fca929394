//! Starting a child.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use tensorferry_os::child as os;
use tensorferry_os::pidfd::PidFd;
use tensorferry_os::socket::{self, Interest, MAX_FDS_PER_MESSAGE};

use crate::child::{Child, OnDrop};
use crate::children::{ChildProcess, Identity};
use crate::current::current_process;
use crate::entry::{self, Entry, FORKSERVER, VARIABLE};
use crate::error::StartError;
use crate::executable;
use crate::fork;
use crate::forkserver::wire::Request;
use crate::forkserver::{ForkFds, ForkServer, Started};
use crate::leash;
use crate::link::N_OWN_FDS;
use crate::method::StartMethod;
use crate::program::Program;
use crate::protocol::{self, Hello};
use crate::redirect::{Outputs, Redirect};
use crate::starter;

/// A child about to be started. It is this program, which runs `entry` instead of `main`.
///
/// The child has the arguments and the environment of this process, and `/dev/null` as standard input. It
/// shares standard output and error with this process by default. It is killed when this process ends,
/// however that ends.
#[derive(Debug)]
pub struct Start {
    entry: &'static Entry,
    name: String,
    payload: Vec<u8>,
    fds: Vec<OwnedFd>,
    environment: Vec<(OsString, Option<OsString>)>,
    executable: Option<PathBuf>,
    stdout: Redirect,
    stderr: Redirect,
    method: StartMethod,
    parked: Vec<u32>,
    current_dir: Option<PathBuf>,
    nice: Option<i32>,
    cpus: Option<Vec<usize>>,
    rank: Option<usize>,
    is_daemon: bool,
    on_drop: OnDrop,
}

impl Start {
    /// A child that will run `entry`.
    #[must_use]
    pub fn new(entry: &'static Entry) -> Self {
        Self {
            entry,
            name: entry.name().to_owned(),
            payload: Vec::new(),
            fds: Vec::new(),
            environment: Vec::new(),
            executable: None,
            stdout: Redirect::Inherit,
            stderr: Redirect::Inherit,
            method: StartMethod::Spawn,
            parked: Vec::new(),
            current_dir: None,
            nice: None,
            cpus: None,
            rank: None,
            is_daemon: false,
            on_drop: OnDrop::default(),
        }
    }

    /// Sets the child's name, for reports and, cut to 15 bytes, for `ps`. The entry's name by default.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the bytes for the entry, at most 16 MiB.
    #[must_use]
    pub fn payload(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.payload = bytes.into();
        self
    }

    /// Adds a descriptor for the entry. At most 251 are allowed.
    #[must_use]
    pub fn fd(mut self, fd: OwnedFd) -> Self {
        self.fds.push(fd);
        self
    }

    /// Sets how the child is created: [`StartMethod::Spawn`] by default.
    #[must_use]
    pub fn method(mut self, method: StartMethod) -> Self {
        self.method = method;
        self
    }

    /// For [`StartMethod::Fork`]: names threads of this process by their thread ID (gettid(2)). They must
    /// stay blocked and hold no lock until [`Start::start`] has returned. A fork fails if there is any thread
    /// other than these and the calling one.
    #[must_use]
    pub fn parked(mut self, thread_ids: impl IntoIterator<Item = u32>) -> Self {
        self.parked.extend(thread_ids);
        self
    }

    /// Sets a variable in the child's environment. The start fails if the name is empty or contains `=`, or
    /// if name or value contains a zero byte.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    /// Removes a variable from the child's environment.
    #[must_use]
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), None));
        self
    }

    /// Sets another program to run. It must link this library and have the entry. Needed where the running
    /// program does not contain this library, as in a Python extension. For [`StartMethod::Spawn`] only.
    #[must_use]
    pub fn executable(mut self, path: impl Into<PathBuf>) -> Self {
        self.executable = Some(path.into());
        self
    }

    /// Sets where the child's standard output goes.
    #[must_use]
    pub fn stdout(mut self, to: impl Into<Redirect>) -> Self {
        self.stdout = to.into();
        self
    }

    /// Sets where the child's standard error goes.
    #[must_use]
    pub fn stderr(mut self, to: impl Into<Redirect>) -> Self {
        self.stderr = to.into();
        self
    }

    /// Sets the child's working directory. A relative path is relative to that of this process.
    #[must_use]
    pub fn current_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.current_dir = Some(path.into());
        self
    }

    /// Sets the child's nice value before the entry runs, from -20 (most favorable) to 19 (least favorable;
    /// setpriority(2)).
    #[must_use]
    pub fn nice(mut self, value: i32) -> Self {
        self.nice = Some(value);
        self
    }

    /// Sets the processors that the child may run on, by number from 0, before the entry runs.
    #[must_use]
    pub fn cpus(mut self, cpus: impl IntoIterator<Item = usize>) -> Self {
        self.cpus = Some(cpus.into_iter().collect());
        self
    }

    /// Sets the child's index among the processes that are started together.
    /// [`CurrentProcess::rank`](crate::CurrentProcess::rank) returns it in the child, and
    /// [`ChildProcess::rank`] in this process. None by default.
    #[must_use]
    pub fn rank(mut self, rank: usize) -> Self {
        self.rank = Some(rank);
        self
    }

    /// Makes the child daemonic, as Python's `daemon=True`. A daemonic child may not start children with this
    /// library ([`StartError::Daemonic`]). Dropping its [`Child`] kills it, whatever [`Start::on_drop`] says.
    ///
    /// Python also ends daemonic processes, and no others, when their parent exits normally. Here no child
    /// outlives its parent, daemonic or not.
    #[must_use]
    pub fn daemon(mut self) -> Self {
        self.is_daemon = true;
        self
    }

    /// Sets what dropping the [`Child`] does to a process that still runs: [`OnDrop::Kill`] by default.
    #[must_use]
    pub fn on_drop(mut self, policy: OnDrop) -> Self {
        self.on_drop = policy;
        self
    }

    /// Starts the child. Returns once the process exists and the payload has been sent. Does not wait until
    /// the child has entered.
    ///
    /// # Blocking
    /// A payload larger than the socket's buffer (about 200 KiB) blocks until the child has read enough of
    /// it, or dies. [`StartMethod::Forkserver`] also waits for the server's answer.
    ///
    /// # Errors
    /// Each variant of [`StartError`]. No process remains then.
    pub fn start(mut self) -> Result<Child, StartError> {
        let payload = std::mem::take(&mut self.payload);
        protocol::payload_prefix(payload.len())?;
        self.start_with(|_| Ok(payload))
    }

    /// As [`Start::start`], but `payload` makes the payload once the process exists, from its pidfd. This
    /// allows a payload that identifies the child. The child waits for it.
    ///
    /// # Blocking
    /// As [`Start::start`].
    ///
    /// # Errors
    /// [`StartError::Payload`] when `payload` fails, and otherwise as [`Start::start`]. The process has been
    /// killed and reaped then, and also when `payload` panics.
    pub fn start_with<F>(mut self, payload: F) -> Result<Child, StartError>
    where
        F: FnOnce(&PidFd) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>>,
    {
        self.check()?;
        // Before anything is opened, so that the child gets none of it as an output.
        os::open_closed_streams()?;
        let nonce = nonce();
        let (control, theirs) = socket::pair()?;
        self.greet(&control, &nonce)?;
        // The copies attached to the hello are enough.
        self.fds.clear();
        let on_drop = if self.is_daemon { OnDrop::Kill } else { self.on_drop };
        let identity = Identity {
            name: std::mem::take(&mut self.name),
            rank: self.rank,
            is_daemon: self.is_daemon,
            is_helper: self.entry.name() == FORKSERVER.name(),
        };
        let child = match self.method {
            StartMethod::Spawn => self.execute(control, theirs, &nonce, identity)?,
            StartMethod::Forkserver => {
                let Started { pidfd, relay } = self.ask_forkserver(theirs, nonce)?;
                Child::new(ChildProcess::new(identity, pidfd), control).relayed(relay)
            }
            StartMethod::Fork => {
                let (nice, cpus) = (self.nice, self.cpus.take());
                let outputs = Outputs::open(self.stdout, self.stderr)?;
                let current_dir = self.current_dir.as_deref().map(os::open_dir).transpose()?;
                let environment = self.environment;
                let forked = fork::Child { control: theirs, nonce, outputs, current_dir, environment };
                let (pidfd, control) = fork::fork(&self.parked, control, forked)?;
                let child = Child::new(ChildProcess::new(identity, pidfd), control);
                schedule(child.pidfd(), nice, cpus.as_deref())?;
                child
            }
        };
        // A child without its payload could only wait for it. So until it has that, dropping it kills it,
        // whatever `on_drop` says, also where `payload` panics.
        let mut payload = payload(child.pidfd()).map_err(StartError::Payload)?;
        let prefix = protocol::payload_prefix(payload.len())?;
        payload.splice(..0, prefix);
        send_watching(&child, &payload)?;
        Ok(child.with_on_drop(on_drop))
    }

    /// Executes the program.
    fn execute(
        self,
        control: OwnedFd,
        theirs: OwnedFd,
        nonce: &str,
        identity: Identity,
    ) -> Result<Child, StartError> {
        let (nice, cpus) = (self.nice, self.cpus.clone());
        // Takes the child's end of the socket with it, of which this process keeps no copy.
        let pidfd = starter::start(self.program(theirs, nonce))?;
        let child = Child::new(ChildProcess::new(identity, pidfd), control);
        // At this point the child waits for its payload and has one thread.
        schedule(child.pidfd(), nice, cpus.as_deref())?;
        Ok(child)
    }

    /// Makes the fork server fork.
    fn ask_forkserver(self, theirs: OwnedFd, nonce: String) -> Result<Started, StartError> {
        let request = Request { nice: self.nice, cpus: self.cpus, ..Request::new(nonce, &self.environment) };
        let Outputs { stdout, stderr } = Outputs::open(self.stdout, self.stderr)?;
        let current_dir = os::open_dir(self.current_dir.as_deref().unwrap_or(Path::new(".")))?;
        ForkServer::get()?.fork(&request, ForkFds { control: theirs, stdout, stderr, current_dir })
    }

    fn check(&self) -> Result<(), StartError> {
        if !entry::has_entered() {
            refuse_unentered(std::env::var_os(VARIABLE).as_deref())?;
        }
        let me = current_process();
        if me.is_daemon() {
            return Err(StartError::Daemonic { name: me.name().to_owned() });
        }
        let name = self.entry.name();
        let n = entry::n_named(name);
        if n > 1 {
            return Err(StartError::DuplicateEntry { name, n });
        }
        if let (Some(executable), method @ (StartMethod::Forkserver | StartMethod::Fork)) =
            (&self.executable, self.method)
        {
            return Err(StartError::OtherProgram { executable: executable.clone(), method });
        }
        if self.executable.is_none() {
            executable::check_is_ours()
                .map_err(|(program, library)| StartError::ForeignExecutable { program, library })?;
        }
        if let Some((name, _)) =
            self.environment.iter().find(|(name, value)| !os::is_variable(name, value.as_deref()))
        {
            return Err(StartError::Variable { name: name.clone() });
        }
        if let Some(dir) = &self.current_dir {
            // The kernel's error at the start would not tell whether it concerns the directory or the
            // program.
            std::fs::metadata(dir.join("."))
                .map_err(|error| StartError::CurrentDir { path: dir.clone(), error })?;
        }
        let (n_fds, limit) = (self.fds.len(), MAX_FDS_PER_MESSAGE - N_OWN_FDS);
        if n_fds > limit {
            return Err(StartError::TooManyDescriptors { n_fds, limit });
        }
        Ok(())
    }

    /// Sends the hello into the socket before the process exists, so that a child never waits for it.
    fn greet(&self, control: &OwnedFd, nonce: &str) -> Result<(), StartError> {
        let leash = leash::held()?;
        let own: [_; N_OWN_FDS] = [leash.holder.as_fd(), leash.reader.as_fd()];
        let fds: Vec<_> = own.into_iter().chain(self.fds.iter().map(AsFd::as_fd)).collect();
        let hello = Hello {
            nonce: nonce.to_owned(),
            parent_pid: std::process::id(),
            parent_name: current_process().name().to_owned(),
            entry: self.entry.name().to_owned(),
            name: self.name.clone(),
            rank: self.rank.and_then(|rank| u64::try_from(rank).ok()),
            is_daemon: self.is_daemon,
            may_fork: fork::is_allowed(),
            n_fds: u32::try_from(fds.len()).unwrap_or(u32::MAX),
        };
        // The socket is empty, and its buffer is larger than the longest frame, so this does not block.
        socket::send_all(control, &hello.encode()?, &fds)?;
        Ok(())
    }

    fn program(self, theirs: OwnedFd, nonce: &str) -> Program {
        let mut environment = self.environment;
        environment.push((VARIABLE.into(), Some(nonce.into())));
        Program {
            executable: self.executable,
            environment,
            current_dir: self.current_dir,
            stdin: theirs,
            stdout: self.stdout,
            stderr: self.stderr,
        }
    }
}

/// Sets the nice value and the processors of a child.
pub(crate) fn schedule(
    child: &PidFd,
    nice: Option<i32>,
    cpus: Option<&[usize]>,
) -> tensorferry_os::Result<()> {
    if let Some(value) = nice {
        os::set_nice(child, value)?;
    }
    cpus.map_or(Ok(()), |cpus| os::set_cpus(child, cpus))
}

/// A process that has the variable set and has not entered was started as a child. So it runs its `main` by
/// mistake. If that `main` starts children, they would do the same, without end.
fn refuse_unentered(mark: Option<&OsStr>) -> Result<(), StartError> {
    if mark.is_some() { Err(StartError::NeverEntered) } else { Ok(()) }
}

/// 128 random bits that no other start has. They detect accidents, not attackers: a process that can write to
/// another's standard input socket already controls it.
fn nonce() -> String {
    // The standard library seeds each of these from the system's random numbers.
    let half = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", half(), half())
}

/// Sends bytes while watching the child. Returns early if the child has died; a later wait reports that.
fn send_watching(child: &Child, bytes: &[u8]) -> Result<(), StartError> {
    let Some(control) = child.control() else { return Ok(()) };
    let mut sent = 0;
    while sent < bytes.len() {
        match socket::try_send(control, &bytes[sent..], &[]) {
            Ok(Some(n)) => sent += n,
            Ok(None) => {
                let waited = [(control, Interest::Writable), (child.pidfd().as_fd(), Interest::Readable)];
                let ready = socket::wait_ready(&waited, None)?;
                if ready[1] {
                    return Ok(());
                }
            }
            // EPIPE or ECONNRESET: the child has ended.
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_was_marked_but_never_entered_starts_nothing() {
        let error = refuse_unentered(Some(OsStr::new("x"))).unwrap_err();
        assert!(error.to_string().contains("call `init()`"), "{error}");
        assert!(refuse_unentered(None).is_ok());
    }

    #[test]
    fn no_two_starts_have_the_same_nonce() {
        let (a, b) = (nonce(), nonce());
        assert_eq!((a.len(), b.len()), (32, 32));
        assert_ne!(a, b);
    }
}
