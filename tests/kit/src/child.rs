//! A child process as the test sees it.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::resource::{Resource, setrlimit};
use serde::{Deserialize, Serialize};
use tensorferry::domain::Member;
use tensorferry_os::pidfd::PidFd;

use crate::task::Welcome;
use crate::wait::deadline;
use crate::{Link, until};

/// A limit that a child sets for itself before it does anything else (getrlimit(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit {
    /// `RLIMIT_NOFILE`: descriptors.
    OpenFiles,
    /// `RLIMIT_AS`: bytes of address space.
    AddressSpace,
    /// `RLIMIT_FSIZE`: bytes of a file.
    FileSize,
}

impl Limit {
    /// Sets the soft and the hard limit of this process.
    pub fn set(self, value: u64) {
        let resource = match self {
            Self::OpenFiles => Resource::RLIMIT_NOFILE,
            Self::AddressSpace => Resource::RLIMIT_AS,
            Self::FileSize => Resource::RLIMIT_FSIZE,
        };
        setrlimit(resource, value, value).unwrap();
    }
}

/// A process that the test started. Dropping it kills and reaps it.
#[derive(Debug)]
pub struct Child {
    name: &'static str,
    process: std::process::Child,
    pidfd: PidFd,
    link: Option<Link>,
    stderr: File,
    reaped: bool,
    /// Whether it may keep a processor busy while it waits for a device.
    pub(crate) may_spin: bool,
    pub(crate) member: Option<Member>,
}

impl Child {
    /// Starts the child binary with this sub-command.
    pub(crate) fn start(name: &'static str) -> Self {
        Self::start_with(name, &[])
    }

    /// As [`Child::start`], with these variables in its environment.
    pub(crate) fn start_with(name: &'static str, variables: &[(&str, &OsStr)]) -> Self {
        #[expect(clippy::disallowed_methods, reason = "the kit starts children without the code under test")]
        let mut command = Command::new(child_executable());
        command.arg(name).envs(variables.iter().copied());
        Self::launch(name, &mut command)
    }

    /// Starts a program that has the other end of the link as its standard input.
    pub(crate) fn launch(name: &'static str, command: &mut Command) -> Self {
        let (link, theirs) = Link::pair();
        // A memory file takes whatever the child has to say without anybody having to read it in time.
        let stderr = rustix::fs::memfd_create("stderr", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let stderr = File::from(stderr);
        let process =
            command.stdin(theirs).stdout(Stdio::null()).stderr(stderr.try_clone().unwrap()).spawn().unwrap();
        let pidfd = PidFd::open(process.id()).unwrap();
        Self { name, process, pidfd, link: Some(link), stderr, reaped: false, may_spin: false, member: None }
    }

    pub(crate) fn welcome(&self, welcome: &Welcome, fds: &[BorrowedFd<'_>]) {
        self.link().say_with(&serde_json::to_string(welcome).unwrap(), fds);
    }

    /// Its descriptor.
    #[must_use]
    pub fn pidfd(&self) -> &PidFd {
        &self.pidfd
    }

    /// The name of its task.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Which member of the family it is.
    #[must_use]
    pub fn member(&self) -> Member {
        self.member.expect("a member of a domain")
    }

    /// Tells it something.
    pub fn say(&self, line: impl AsRef<str>) {
        self.link().say(line.as_ref());
    }

    /// As [`Child::say`], with descriptors beside the line.
    pub fn say_with(&self, line: &str, fds: &[BorrowedFd<'_>]) {
        self.link().say_with(line, fds);
    }

    /// Waits for its next line.
    #[track_caller]
    pub fn hear(&self) -> String {
        match self.link().hear_within(deadline()) {
            Ok(Some(line)) => line,
            Ok(None) => panic!("{} ended instead of saying something\n{}", self.name, self.stderr()),
            Err(_) => panic!("{} said nothing for {:?}\n{}", self.name, deadline(), self.stderr()),
        }
    }

    /// Its next line, if it says one within this time.
    pub(crate) fn hear_within(&self, patience: Duration) -> Option<String> {
        self.link().hear_within(patience).ok().flatten()
    }

    /// As [`Child::hear`]; `None` when it has ended instead.
    #[track_caller]
    pub fn hear_unless_ended(&self) -> Option<String> {
        let heard = self.link().hear_within(deadline());
        heard.unwrap_or_else(|_| panic!("{} said nothing for {:?}\n{}", self.name, deadline(), self.stderr()))
    }

    /// Waits for its next line, which must be this one.
    #[track_caller]
    pub fn expect(&self, line: &str) {
        assert_eq!(self.hear(), line, "from {}\n{}", self.name, self.stderr());
    }

    /// Waits for its next line, which must be a number.
    #[track_caller]
    pub fn hear_number(&self) -> u64 {
        let line = self.hear();
        line.parse().unwrap_or_else(|_| panic!("{} said {line:?} instead of a number", self.name))
    }

    /// Takes the descriptor that came beside the lines heard so far.
    #[track_caller]
    pub fn take_fd(&self) -> OwnedFd {
        self.link().take_fd().expect("a descriptor came")
    }

    pub(crate) fn try_take_fd(&self) -> Option<OwnedFd> {
        self.link().take_fd()
    }

    /// Whether a line has come that was not heard yet.
    #[must_use]
    pub fn has_spoken(&self) -> bool {
        self.link().has_more()
    }

    /// Tells a puppet to do something and waits for the outcome.
    #[track_caller]
    pub fn ask(&self, command: &str) -> String {
        self.begin(command);
        self.hear()
    }

    /// Tells a puppet to do something and waits until it is about to.
    #[track_caller]
    pub fn begin(&self, command: &str) {
        self.say(command);
        self.expect("on it");
    }

    /// Waits until its main thread sleeps in the kernel. A child that has said what it is about to wait for,
    /// and sleeps then, waits. A child whose driver may wait without sleeping has only not said anything yet.
    #[track_caller]
    pub fn wait_until_asleep(&self) {
        if self.may_spin {
            assert!(!self.has_spoken(), "{} did not wait", self.name);
            return;
        }
        let path = format!("/proc/{0}/task/{0}/stat", self.pid());
        until("the child sleeps", || {
            let stat = std::fs::read_to_string(&path).unwrap();
            let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
            assert!(!matches!(state, Some('Z' | 'X')), "{} ended\n{}", self.name, self.stderr());
            state == Some('S')
        });
    }

    /// Waits until the thread with this name sleeps in the kernel, and not just for a moment for a lock on
    /// its way. A thread of a real driver may wait without sleeping: it only has to be there.
    #[track_caller]
    pub fn wait_until_thread_sleeps(&self, name: &str) {
        const LOOKS: u32 = 100;
        if self.may_spin {
            until("the thread has begun", || self.has_thread(&format!("({name}) ")));
            return;
        }
        let mut looks = 0;
        until("the thread sleeps", || {
            looks = if self.has_thread(&format!("({name}) S ")) { looks + 1 } else { 0 };
            looks == LOOKS
        });
    }

    /// Waits until there is no thread with this name.
    #[track_caller]
    pub fn wait_until_thread_ends(&self, name: &str) {
        until("the thread ends", || !self.has_thread(&format!("({name}) ")));
    }

    fn has_thread(&self, stat: &str) -> bool {
        let mut threads = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        threads.any(|thread| {
            let path = thread.unwrap().path().join("stat");
            std::fs::read_to_string(path).unwrap_or_default().contains(stat)
        })
    }

    /// Whether it has not ended.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !self.pidfd.is_dead().unwrap()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        self.pidfd.send_signal(signal as i32).unwrap();
    }

    /// Stops it with SIGSTOP, and waits until it is.
    #[track_caller]
    pub fn stop(&self) {
        self.signal(nix::sys::signal::Signal::SIGSTOP);
        self.wait_stopped();
    }

    /// Waits until it is stopped, by itself or by somebody else. To let it [go on](Child::go_on) before that
    /// would come too soon.
    #[track_caller]
    pub fn wait_stopped(&self) {
        let path = format!("/proc/{}/stat", self.pid());
        until("the child stops", || {
            let stat = std::fs::read_to_string(&path).unwrap();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        });
    }

    /// Lets it go on after [`Child::stop`].
    pub fn go_on(&self) {
        self.signal(nix::sys::signal::Signal::SIGCONT);
    }

    /// Kills it with SIGKILL and reaps it. It must not have ended before.
    #[track_caller]
    pub fn kill(mut self) {
        self.signal(nix::sys::signal::Signal::SIGKILL);
        let status = self.reap();
        let killed = status.signal() == Some(nix::sys::signal::Signal::SIGKILL as i32);
        assert!(killed, "{} ended before it was killed: {status}\n{}", self.name, self.stderr());
    }

    /// Waits until it has ended by this signal.
    #[track_caller]
    pub fn die_of(mut self, signal: nix::sys::signal::Signal) {
        assert!(
            self.pidfd.wait_dead(Some(deadline())).unwrap(),
            "{} did not end\n{}",
            self.name,
            self.stderr()
        );
        let status = self.reap();
        assert_eq!(status.signal(), Some(signal as i32), "{}: {status}\n{}", self.name, self.stderr());
    }

    /// As [`Child::kill`], for one that may have done its task just before.
    #[track_caller]
    pub fn kill_unless_finished(mut self) {
        self.signal(nix::sys::signal::Signal::SIGKILL);
        let status = self.reap();
        let killed = status.signal() == Some(nix::sys::signal::Signal::SIGKILL as i32);
        assert!(killed || status.success(), "{} failed: {status}\n{}", self.name, self.stderr());
    }

    /// As [`Child::kill`], but its parent does not reap it yet: it is dead and a zombie.
    #[track_caller]
    pub fn kill_unreaped(&self) {
        self.signal(nix::sys::signal::Signal::SIGKILL);
        assert!(self.pidfd.wait_dead(Some(deadline())).unwrap(), "SIGKILL kills");
    }

    /// Waits until it has done its task, and checks that it ended well.
    #[track_caller]
    pub fn finish(mut self) {
        let status = self.end();
        assert!(status.success(), "{} failed: {status}\n{}", self.name, self.stderr());
    }

    /// As [`Child::finish`], where it is to have written nothing to standard error.
    #[track_caller]
    pub fn finish_silently(mut self) {
        let status = self.end();
        let said = self.stderr();
        assert!(status.success() && said == self.said(""), "{status}\n{said}");
    }

    /// Waits until it has failed. Returns what it has written to standard error.
    #[track_caller]
    #[must_use]
    pub fn fail(mut self) -> String {
        let status = self.end();
        assert!(!status.success(), "{} did not fail\n{}", self.name, self.stderr());
        self.stderr()
    }

    #[track_caller]
    fn end(&mut self) -> ExitStatus {
        // A child that waits for another word learns that there is none.
        self.link = None;
        let dead = self.pidfd.wait_dead(Some(deadline())).unwrap();
        assert!(dead, "{} did not end within {:?}\n{}", self.name, deadline(), self.stderr());
        self.reap()
    }

    /// What it has written to standard error so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        // Not `read`: the position in the file is shared with the child.
        let mut bytes = vec![0; 1 << 16];
        let n = self.stderr.read_at(&mut bytes, 0).unwrap_or(0);
        self.said(&String::from_utf8_lossy(&bytes[..n]))
    }

    fn said(&self, text: &str) -> String {
        format!("standard error of {}: {text}", self.name)
    }

    fn link(&self) -> &Link {
        self.link.as_ref().expect("the link lives as long as the child")
    }

    fn reap(&mut self) -> ExitStatus {
        self.reaped = true;
        self.process.wait().unwrap()
    }
}

impl AsFd for Child {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let text = self.stderr();
            let mut out = std::io::stderr();
            let _ = std::io::Write::write_all(&mut out, text.as_bytes());
        }
    }
}

/// The child binary lies beside the other binaries of the tests, which lie above the folder of the test
/// binaries.
fn child_executable() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let folders = here.ancestors().skip(1).take(2);
    let mut candidates = folders.map(|folder| folder.join("child"));
    candidates.find(|child| child.is_file()).expect("the package's binaries are built")
}
