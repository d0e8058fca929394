//! Processes by descriptor: a pidfd never refers to another process that got the same number (pidfd_open(2)).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt::PeerPidfd};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};

use crate::descriptor::off_standard_streams;
use crate::{Error, Result, proc_file};

/// The magic number of pidfs (linux/magic.h), where a pidfd's inode is unique since boot (Linux 6.9).
const PIDFS_MAGIC: u64 = 0x5049_4446;

/// A descriptor of one process. It becomes readable when every thread of the process is gone, even before the
/// parent has waited for it.
#[derive(Debug)]
pub struct PidFd {
    fd: OwnedFd,
    pid: u32,
    /// Its inode when it was opened; 0 where the kernel has no pidfs.
    inode: u64,
}

/// Tells a process from a later one with the same number. Plain numbers, so that it can be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Identity {
    /// The process number in the PID namespace of the process that read it.
    pub pid: u32,
    /// That PID namespace (pid_namespaces(7)). The number means something only there. 0 where it cannot be
    /// read.
    pub namespace: u32,
    /// The inode of the pidfd on pidfs; 0 where the kernel has no pidfs.
    pub inode: u64,
    /// Start time in clock ticks since boot (field 22 of `/proc/PID/stat`). 0 when there is an inode, which
    /// identifies the process better, or when the start time cannot be read.
    pub start_ticks: u64,
}

impl Identity {
    /// Whether it tells this process from every other. Otherwise nothing can be proven about the process.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.inode != 0 || self.start_ticks != 0
    }

    /// Whether both have an inode, or both a start time, so that a difference has a meaning.
    #[must_use]
    pub fn is_comparable(&self, other: &Self) -> bool {
        (self.inode != 0 && other.inode != 0) || (self.start_ticks != 0 && other.start_ticks != 0)
    }

    /// Whether `other`, found under the same number, is the same process: by inode where both have one,
    /// otherwise by start time.
    #[must_use]
    pub fn is_same_process(&self, other: &Self) -> bool {
        if self.inode != 0 && other.inode != 0 {
            self.inode == other.inode
        } else {
            self.start_ticks == other.start_ticks
        }
    }
}

/// The pidfd of the process at the other end of a socket (`SO_PEERPIDFD`, Linux 6.5).
fn peer_pidfd(socket: &impl AsFd) -> Result<OwnedFd> {
    getsockopt(socket, PeerPidfd)
        .map_err(|e| Error::new("getsockopt(SO_PEERPIDFD)", Errno::from_raw_os_error(e as i32)))
}

impl PidFd {
    /// Opens the process that has this number now. Compare its [`PidFd::identity`] to tell it from an earlier
    /// one.
    ///
    /// # Errors
    /// ESRCH when there is no such process, EMFILE when this process has no descriptor left.
    pub fn open(pid: u32) -> Result<Self> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let raw = raw.ok_or_else(|| Error::new(format!("pidfd_open of {pid}"), Errno::SRCH))?;
        let fd = rustix::process::pidfd_open(raw, PidfdFlags::empty())
            .map_err(|e| Error::new(format!("pidfd_open of process {pid}"), e))?;
        Ok(Self::from_fd(off_standard_streams(fd)?, pid))
    }

    /// Opens this process, even without pidfd_open(2). valgrind does not implement that call, and programs
    /// should run under it.
    ///
    /// # Errors
    /// As [`PidFd::open`].
    pub fn of_self() -> Result<Self> {
        match Self::open(std::process::id()) {
            Err(error) if error.is_not_implemented() => Self::of_own_peer(),
            opened => opened,
        }
    }

    /// Opens this process as the peer of a socket to itself (`SO_PEERPIDFD`, unix(7), Linux 6.5).
    fn of_own_peer() -> Result<Self> {
        let (end, _peer) = crate::socket::pair()?;
        Ok(Self::from_fd(peer_pidfd(&end)?, std::process::id()))
    }

    /// Opens the process at the other end of a socket: the one that connected, or that made the pair.
    ///
    /// Before Linux 6.5 it is found by the number that it had then, so it may be another one that got the
    /// number since.
    ///
    /// # Errors
    /// ESRCH when it is gone, or lies in a PID namespace that this process does not see; EMFILE when this
    /// process has no descriptor left.
    pub fn of_peer(socket: impl AsFd) -> Result<Self> {
        let pid = crate::socket::peer(&socket)?.pid;
        match peer_pidfd(&socket) {
            Ok(fd) => Ok(Self::from_fd(fd, pid)),
            Err(error) if error.is_no_such_option() => Self::open(pid),
            Err(error) => Err(error),
        }
    }

    /// Wraps a pidfd that came from elsewhere. `pid` is its process number in this namespace.
    #[must_use]
    pub fn from_fd(fd: OwnedFd, pid: u32) -> Self {
        let inode = pidfs_inode(fd.as_fd()).unwrap_or(0);
        Self { fd, pid, inode }
    }

    /// The number that it was opened with.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The identity of this process, which no other process since boot has.
    ///
    /// # Errors
    /// The kernel's error of fstat(2).
    pub fn identity(&self) -> Result<Identity> {
        Ok(Identity { namespace: pid_namespace(), ..self.identity_anywhere()? })
    }

    /// Whether it is the process with this identity, in whichever namespace that was read.
    ///
    /// # Errors
    /// As [`PidFd::identity`].
    pub fn is_process(&self, identity: &Identity) -> Result<bool> {
        Ok(self.identity_anywhere()?.is_same_process(identity))
    }

    /// As [`PidFd::identity`], without the namespace. Reading the namespace takes as long as all the rest.
    fn identity_anywhere(&self) -> Result<Identity> {
        let inode = if self.inode == 0 { pidfs_inode(self.fd.as_fd())? } else { self.inode };
        let start_ticks = if inode == 0 { start_ticks(self.pid).unwrap_or(0) } else { 0 };
        Ok(Identity { pid: self.pid, namespace: 0, inode, start_ticks })
    }

    /// Whether the process and all its threads are gone. True is a proof, not a hint.
    ///
    /// # Errors
    /// As [`PidFd::wait_dead`].
    pub fn is_dead(&self) -> Result<bool> {
        self.wait_dead(Some(Duration::ZERO))
    }

    /// Waits until the process is gone, for at most `timeout` (without limit if `None`). Returns whether it
    /// is.
    ///
    /// # Errors
    /// The kernel's error of poll(2). EBADF when other code has closed this descriptor, as daemons close all
    /// of theirs, even if the number belongs to another file by now, or to the pidfd of another process.
    /// Nothing is known about the process then. (Before Linux 6.9, one of another process that its parent has
    /// waited for is taken for this one.)
    ///
    /// # Blocking
    /// Until the process is gone or `timeout` has passed.
    pub fn wait_dead(&self, timeout: Option<Duration>) -> Result<bool> {
        // A deadline beyond the range of the clock means none.
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        loop {
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            let spec = left.map(|t| Timespec {
                tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(t.subsec_nanos()),
            });
            let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
            match rustix::event::poll(&mut fds, spec.as_ref()) {
                Ok(0) => return Ok(false),
                Ok(_) => return self.check_is_itself().map(|()| true),
                Err(Errno::INTR) => {}
                Err(e) => return Err(Error::new("poll of a pidfd", e)),
            }
        }
    }

    /// Checks that the descriptor still is the pidfd that was opened.
    ///
    /// # Errors
    /// EBADF when the number belongs to something else (waitid(2)), or to another process.
    fn check_is_itself(&self) -> Result<()> {
        let looks = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // ECHILD if the process is not a child of this one.
        if let Err(e @ Errno::BADF) = rustix::process::waitid(WaitId::PidFd(self.fd.as_fd()), looks) {
            return Err(Error::new("waitid of what was a pidfd", e));
        }
        let is_itself = match self.inode {
            0 => is_pid_in_fdinfo(self.fd.as_fd(), self.pid),
            inode => pidfs_inode(self.fd.as_fd())? == inode,
        };
        let other = || Error::new(format!("look at what was the pidfd of process {}", self.pid), Errno::BADF);
        is_itself.then_some(()).ok_or_else(other)
    }

    /// Sends a signal by number (pidfd_send_signal(2)). It is no error if the process is gone already.
    ///
    /// # Errors
    /// EPERM when the process belongs to another user, EINVAL for a number that is not a signal, or
    /// that is a real-time one; EBADF as for
    /// [`PidFd::wait_dead`], so that no other process gets the signal.
    pub fn send_signal(&self, signal: i32) -> Result<()> {
        let named = Signal::from_named_raw(signal)
            .ok_or_else(|| Error::new(format!("signal number {signal}"), Errno::INVAL))?;
        self.check_is_itself()?;
        match rustix::process::pidfd_send_signal(&self.fd, named) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(e) => Err(Error::new(format!("pidfd_send_signal({signal}) to process {}", self.pid), e)),
        }
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The inode of a pidfd; 0 where the kernel has no pidfs. The kernel never changes that, so it is asked once.
fn pidfs_inode(pidfd: BorrowedFd<'_>) -> Result<u64> {
    static HAS_PIDFS: OnceLock<bool> = OnceLock::new();
    let has_pidfs = HAS_PIDFS.get_or_init(|| {
        let fs = rustix::fs::fstatfs(pidfd);
        fs.is_ok_and(|fs| u64::try_from(fs.f_type).is_ok_and(|magic| magic == PIDFS_MAGIC))
    });
    if !has_pidfs {
        return Ok(0);
    }
    Ok(rustix::fs::fstat(pidfd).map_err(|e| Error::new("fstat of a pidfd", e))?.st_ino)
}

/// Whether a pidfd may be that of process `pid`, by the field `Pid` of `/proc/self/fdinfo/N`
/// (proc_pid_fdinfo(5)). That is -1 once the process has been waited for, and 0 for one of another namespace.
fn is_pid_in_fdinfo(pidfd: BorrowedFd<'_>, pid: u32) -> bool {
    let info = proc_file::read(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd()));
    let pid_of =
        |info: &str| info.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse::<i64>().ok());
    let found = info.ok().as_deref().and_then(pid_of);
    found.is_none_or(|found| found <= 0 || found == i64::from(pid))
}

/// The PID namespace of this process, as a number that is unique among the live ones; 0 where `/proc` does
/// not show it.
#[must_use]
pub fn pid_namespace() -> u32 {
    static NAMESPACE: OnceLock<u32> = OnceLock::new();
    if let Some(known) = NAMESPACE.get() {
        return *known;
    }
    let stat = rustix::fs::stat("/proc/self/ns/pid");
    // Only a successful result is cached: `/proc` may be mounted later.
    match stat.ok().and_then(|stat| u32::try_from(stat.st_ino).ok()) {
        Some(inode) => *NAMESPACE.get_or_init(|| inode),
        None => 0,
    }
}

/// Start time of a process in clock ticks since boot: field 22 of `/proc/PID/stat` (proc_pid_stat(5)). Also
/// `None` where `/proc` belongs to another PID namespace, in which the number is that of another process.
#[must_use]
pub fn start_ticks(pid: u32) -> Option<u64> {
    let me = std::fs::read_link("/proc/self").ok()?;
    if me.to_str()? != std::process::id().to_string() {
        return None;
    }
    parse_start_ticks(&proc_file::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The command name is in parentheses and may contain spaces and parentheses, so count from the last one.
fn parse_start_ticks(stat: &str) -> Option<u64> {
    let after_name = stat.rsplit_once(')')?.1;
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_itself() {
        let me = PidFd::of_self().unwrap();
        assert!(!me.is_dead().unwrap());
        let identity = me.identity().unwrap();
        assert!(identity.is_known() && (identity.inode == 0) != (identity.start_ticks == 0));
        assert!(start_ticks(me.pid()).unwrap() > 0);
        assert!(PidFd::of_self().unwrap().is_process(&identity).unwrap());
        assert_eq!(identity.namespace, pid_namespace());
        assert!(!identity.is_same_process(&Identity { inode: identity.inode + 1, ..identity }));
        assert!(!identity.is_same_process(&Identity { inode: 0, start_ticks: 1, ..identity }));
    }

    #[test]
    fn the_process_at_the_other_end_of_a_socket_is_found() {
        let (end, _peer) = crate::socket::pair().unwrap();
        let me = PidFd::of_peer(&end).unwrap();
        assert_eq!(me.pid(), std::process::id());
        assert!(me.identity().unwrap().is_same_process(&PidFd::of_self().unwrap().identity().unwrap()));
        assert!(PidFd::of_peer(std::fs::File::open("/dev/null").unwrap()).is_err());
    }

    #[test]
    fn the_peer_of_a_socket_to_itself_is_this_process() {
        let (opened, as_peer) = (PidFd::of_self().unwrap(), PidFd::of_own_peer().unwrap());
        assert_eq!(opened.identity().unwrap(), as_peer.identity().unwrap());
        assert!(!as_peer.is_dead().unwrap());
    }

    #[test]
    fn the_longest_time_there_is_can_be_waited_for() {
        let (mut child, pidfd) = {
            #[expect(clippy::disallowed_methods, reason = "some process that ends")]
            let child = std::process::Command::new("true").spawn().unwrap();
            let pidfd = PidFd::open(child.id()).unwrap();
            (child, pidfd)
        };
        assert!(pidfd.wait_dead(Some(Duration::MAX)).unwrap());
        child.wait().unwrap();
    }

    #[test]
    fn what_is_no_pidfd_any_more_is_no_proof_of_a_death() {
        let mut parent = PidFd::open(std::os::unix::process::parent_id()).unwrap();
        assert!(!parent.is_dead().unwrap());
        // Always readable.
        let other = std::fs::File::open("/dev/null").unwrap();
        rustix::io::dup2(&other, &mut parent.fd).unwrap();
        let error = parent.is_dead().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::BADF.raw_os_error()), "{error}");
    }

    #[test]
    fn the_pidfd_of_another_process_is_no_proof_of_a_death_and_leads_no_signal() {
        #[expect(clippy::disallowed_methods, reason = "some process that ends")]
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let other = PidFd::open(child.id()).unwrap();
        assert!(other.wait_dead(None).unwrap());
        let mut parent = PidFd::open(std::os::unix::process::parent_id()).unwrap();
        rustix::io::dup2(&other, &mut parent.fd).unwrap();
        for error in [parent.is_dead().unwrap_err(), parent.send_signal(15).unwrap_err()] {
            assert_eq!(error.raw_os_error(), Some(Errno::BADF.raw_os_error()), "{error}");
        }
        // As where there is no pidfs: the number has to do, while the other one was not waited for.
        parent.inode = 0;
        assert!(parent.is_dead().is_err());
        child.wait().unwrap();
    }

    #[test]
    fn nobody_has_the_number_zero() {
        assert_eq!(PidFd::open(0).unwrap_err().raw_os_error(), Some(Errno::SRCH.raw_os_error()));
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 1";
        assert_eq!(parse_start_ticks(stat), Some(98_765));
        assert_eq!(parse_start_ticks("garbage"), None);
    }
}
