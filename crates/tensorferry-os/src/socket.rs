//! Unix sockets: bytes, descriptors that travel with them, and the identity of the peer (unix(7)).
//!
//! Descriptors arrive close-on-exec (`MSG_CMSG_CLOEXEC`). Writing to a socket whose other end is closed is an
//! error, never SIGPIPE (`MSG_NOSIGNAL`). Neither they nor the ends of a pair are a standard stream, also
//! where one of these is closed.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt::Timeout,
};

use crate::descriptor::off_standard_streams;
use crate::{Error, Result};

/// The most descriptors that the kernel lets one message carry (`SCM_MAX_FD`, unix(7)).
pub const MAX_FDS_PER_MESSAGE: usize = 253;

/// Ancillary space for one full message, in bytes.
const ANCILLARY_LEN_BYTES: usize = rustix::cmsg_space!(ScmRights(MAX_FDS_PER_MESSAGE));

/// The process at the other end of a socket, as the kernel recorded it when the two were connected
/// (`SO_PEERCRED`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process number in our PID namespace; 0 when it has none there.
    pub pid: u32,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
}

/// The user as which this process's peers see it.
#[must_use]
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Makes two connected stream sockets, both close-on-exec.
///
/// # Errors
/// EMFILE or ENFILE when no descriptor is left.
pub fn pair() -> Result<(OwnedFd, OwnedFd)> {
    pair_of(SocketType::STREAM)
}

fn pair_of(kind: SocketType) -> Result<(OwnedFd, OwnedFd)> {
    let (one, other) = rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
        .map_err(|e| Error::new("socketpair", e))?;
    Ok((off_standard_streams(one)?, off_standard_streams(other)?))
}

/// As [`pair`], but each message arrives whole or not at all, and apart from those of other senders
/// (`SOCK_SEQPACKET`). Many processes may share one end.
///
/// # Errors
/// As [`pair`].
pub fn message_pair() -> Result<(OwnedFd, OwnedFd)> {
    pair_of(SocketType::SEQPACKET)
}

/// Connects a stream socket to the one at a path, waiting for at most `timeout` (without limit if `None`)
/// while too many others wait there to be accepted.
///
/// # Errors
/// ENOENT or ECONNREFUSED when nobody listens there, EACCES when this user may not, ENAMETOOLONG, EMFILE;
/// EAGAIN when the time is up.
///
/// # Blocking
/// As said.
pub fn connect_path(path: &Path, timeout: Option<Duration>) -> Result<OwnedFd> {
    connect(&SocketAddrUnix::new(path).map_err(|e| Error::new("connect", e))?, timeout)
}

/// As [`connect_path`], to an abstract name (unix(7)).
///
/// # Errors
/// As [`connect_path`].
///
/// # Blocking
/// As [`connect_path`].
pub fn connect_abstract(name: &[u8], timeout: Option<Duration>) -> Result<OwnedFd> {
    connect(&SocketAddrUnix::new_abstract_name(name).map_err(|e| Error::new("connect", e))?, timeout)
}

fn connect(address: &SocketAddrUnix, timeout: Option<Duration>) -> Result<OwnedFd> {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|e| Error::new("socket", e))?;
    let limit = |timeout| {
        rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Send, timeout)
            .map_err(|e| Error::new("setsockopt(SO_SNDTIMEO)", e))
    };
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // 0 is no limit to the kernel.
        limit(left.map(|left| left.max(Duration::from_millis(1))))?;
        match rustix::net::connect(&socket, address) {
            Ok(()) => break,
            // The kernel would begin the time anew, and signals may come without end.
            Err(Errno::INTR) if left != Some(Duration::ZERO) => {}
            Err(Errno::INTR) => return Err(Error::new("connect", Errno::AGAIN)),
            Err(e) => return Err(Error::new("connect", e)),
        }
    }
    limit(None)?;
    Ok(socket)
}

/// Whether the descriptor is a socket of any kind. False when it is closed.
pub(crate) fn is_socket(fd: impl AsFd) -> bool {
    rustix::fs::fstat(fd)
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Socket)
}

/// Ends the use of a socket in all processes that have it (shutdown(2)). Nobody can connect to one that was
/// listened at.
///
/// # Errors
/// ENOTSOCK when the descriptor is not a socket.
pub fn shut_down(socket: impl AsFd) -> Result<()> {
    rustix::net::shutdown(socket, rustix::net::Shutdown::Both).map_err(|e| Error::new("shutdown", e))
}

/// The process at the other end.
///
/// # Errors
/// ENOTSOCK when the descriptor is not a socket.
pub fn peer(socket: impl AsFd) -> Result<Peer> {
    let credentials = getsockopt(&socket, PeerCredentials)
        .map_err(|e| Error::new("getsockopt(SO_PEERCRED)", Errno::from_raw_os_error(e as i32)))?;
    let pid = u32::try_from(credentials.pid()).unwrap_or(0);
    Ok(Peer { pid, uid: credentials.uid(), gid: credentials.gid() })
}

/// Sends all of `bytes`, with `fds` attached to the first of them.
///
/// # Errors
/// EINVAL for more than [`MAX_FDS_PER_MESSAGE`] descriptors, or for descriptors without a byte to carry them;
/// EPIPE when the other end is closed.
///
/// # Blocking
/// While the buffer of the other end is full.
pub fn send_all(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
    let socket = socket.as_fd();
    let mut sent = 0;
    while sent < bytes.len() || (sent == 0 && !fds.is_empty()) {
        let attached = if sent == 0 { fds } else { &[] };
        sent += send(socket, &bytes[sent..], attached, SendFlags::NOSIGNAL)?.unwrap_or(0);
    }
    Ok(())
}

/// Sends what fits into the buffer of the other end now, with `fds` attached to the first byte. Returns the
/// number of bytes sent, or `None` when there is no room for one. Never blocks.
///
/// # Errors
/// As [`send_all`].
pub fn try_send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Option<usize>> {
    send(socket.as_fd(), bytes, fds, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
}

fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<Option<usize>> {
    let what = || format!("sendmsg of {} bytes and {} descriptors", bytes.len(), fds.len());
    if fds.len() > MAX_FDS_PER_MESSAGE || (bytes.is_empty() && !fds.is_empty()) {
        return Err(Error::new(what(), Errno::INVAL));
    }
    let mut space = [MaybeUninit::uninit(); ANCILLARY_LEN_BYTES];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Error::new(what(), Errno::INVAL));
    }
    loop {
        match rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags) {
            Ok(n) => return Ok(Some(n)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(e) => return Err(Error::new(what(), e)),
        }
    }
}

/// Waits for bytes and reads what is there, at most `buffer.len()`. Descriptors that came with them are
/// appended to `fds`. Returns the number of bytes; 0 is the end of the stream.
///
/// # Errors
/// ECONNRESET when the other end died with bytes of ours unread. EMFILE when this process could not take all
/// descriptors; those that it could take are closed again.
///
/// # Blocking
/// Until bytes arrive or the other end is closed.
pub fn receive(socket: impl AsFd, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> Result<usize> {
    loop {
        let flags = RecvFlags::CMSG_CLOEXEC;
        if let Some(n) = receive_with(socket.as_fd(), buffer, fds, flags)? {
            return Ok(n);
        }
    }
}

/// As [`receive`], but returns `None` at once when nothing is there.
///
/// # Errors
/// As [`receive`].
pub fn try_receive(socket: impl AsFd, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> Result<Option<usize>> {
    receive_with(socket.as_fd(), buffer, fds, RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT)
}

fn receive_with(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    flags: RecvFlags,
) -> Result<Option<usize>> {
    let mut space = [MaybeUninit::uninit(); ANCILLARY_LEN_BYTES];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags) {
            Ok(received) => break received,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(e) => return Err(Error::new("recvmsg", e)),
        }
    };
    let already = fds.len();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(arrived) = message {
            fds.extend(arrived);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        let got = fds.len() - already;
        fds.truncate(already);
        let call =
            format!("recvmsg: only {got} of the descriptors sent could be opened here (RLIMIT_NOFILE)");
        return Err(Error::new(call, Errno::MFILE));
    }
    let arrived = fds.split_off(already);
    for fd in arrived {
        fds.push(off_standard_streams(fd)?);
    }
    Ok(Some(received.bytes))
}

/// The event to wait for on a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Bytes to read, the end of the stream, or, for a pidfd, the death of its process.
    Readable,
    /// Room to write, or the other end is closed.
    Writable,
}

/// Waits until one of the descriptors is ready, for at most `timeout` (without limit if `None`). Returns one
/// flag for each descriptor, in order. All are false when the time is up. An error on a descriptor counts as
/// ready, so that the next call on it reports the error.
///
/// # Errors
/// The kernel's error of poll(2).
///
/// # Blocking
/// Until a descriptor is ready or `timeout` has passed.
pub fn wait_ready(waited: &[(BorrowedFd<'_>, Interest)], timeout: Option<Duration>) -> Result<Vec<bool>> {
    let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
    let mut polled: Vec<PollFd<'_>> = waited
        .iter()
        .map(|(fd, interest)| {
            let flags = match interest {
                Interest::Readable => PollFlags::IN,
                Interest::Writable => PollFlags::OUT,
            };
            PollFd::from_borrowed_fd(*fd, flags)
        })
        .collect();
    loop {
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        let spec = left.map(|t| Timespec {
            tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(t.subsec_nanos()),
        });
        match rustix::event::poll(&mut polled, spec.as_ref()) {
            Ok(_) => return Ok(polled.iter().map(|p| !p.revents().is_empty()).collect()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(Error::new(format!("poll of {} descriptors", waited.len()), e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_ride_on_the_first_byte_and_are_the_same_file() {
        let (a, b) = pair().unwrap();
        let memory = crate::memfd::create_sealed("test", 4096).unwrap();
        send_all(&a, b"hello", &[memory.as_fd(), a.as_fd()]).unwrap();
        let (mut one, mut fds) = ([0; 1], Vec::new());
        assert_eq!(receive(&b, &mut one, &mut fds).unwrap(), 1);
        assert_eq!((one, fds.len()), (*b"h", 2));
        assert_eq!(crate::memfd::file_id(&fds[0]).unwrap(), crate::memfd::file_id(&memory).unwrap());
        assert!(rustix::io::fcntl_getfd(&fds[0]).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        let mut rest = [0; 8];
        assert_eq!(receive(&b, &mut rest, &mut fds).unwrap(), 4);
        assert_eq!((&rest[..4], fds.len()), (&b"ello"[..], 2));
    }

    #[test]
    fn an_empty_socket_a_full_one_and_a_closed_one_are_told_apart() {
        let (a, b) = pair().unwrap();
        let mut fds = Vec::new();
        assert_eq!(try_receive(&b, &mut [0; 4], &mut fds).unwrap(), None);
        let mut sent = 0;
        while let Some(n) = try_send(&a, &[7; 4096], &[]).unwrap() {
            sent += n;
        }
        assert!(sent >= 4096);
        drop(b);
        assert_eq!(try_send(&a, b"x", &[]).unwrap_err().raw_os_error(), Some(Errno::PIPE.raw_os_error()));
    }

    #[test]
    fn messages_of_several_senders_stay_apart() {
        let (store, members) = message_pair().unwrap();
        let another = members.try_clone().unwrap();
        send_all(&members, b"first", &[store.as_fd()]).unwrap();
        send_all(&another, b"second", &[]).unwrap();
        let (mut buffer, mut fds) = ([0; 32], Vec::new());
        assert_eq!(receive(&store, &mut buffer, &mut fds).unwrap(), 5);
        assert_eq!((receive(&store, &mut buffer, &mut fds).unwrap(), fds.len()), (6, 1));
    }

    #[test]
    fn the_end_of_the_stream_is_zero_bytes() {
        let (a, b) = pair().unwrap();
        drop(a);
        assert_eq!(receive(&b, &mut [0; 4], &mut Vec::new()).unwrap(), 0);
    }

    #[test]
    fn more_descriptors_than_the_kernel_takes_are_refused_before_the_call() {
        let (a, _b) = pair().unwrap();
        let many = vec![a.as_fd(); MAX_FDS_PER_MESSAGE + 1];
        assert_eq!(send_all(&a, b"x", &many).unwrap_err().raw_os_error(), Some(Errno::INVAL.raw_os_error()));
        assert_eq!(
            send_all(&a, b"", &many[..1]).unwrap_err().raw_os_error(),
            Some(Errno::INVAL.raw_os_error())
        );
    }

    #[test]
    fn nobody_connects_to_a_copy_of_what_was_shut_down() {
        let name = format!("tensorferry-shut-down-{}", std::process::id());
        let address =
            <std::os::unix::net::SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name;
        let listener = std::os::unix::net::UnixListener::bind_addr(&address(&name).unwrap()).unwrap();
        let _copy = listener.try_clone().unwrap();
        let waiting = connect_abstract(name.as_bytes(), None).unwrap();
        shut_down(&listener).unwrap();
        drop(listener);
        assert!(connect_abstract(name.as_bytes(), None).unwrap_err().is_nobody_there());
        drop(waiting);
        assert!(shut_down(crate::memfd::create_sealed("test", 4096).unwrap()).is_err());
    }

    #[test]
    fn waiting_tells_which_descriptor_is_ready() {
        let (a, b) = pair().unwrap();
        let waited = [(a.as_fd(), Interest::Readable), (b.as_fd(), Interest::Readable)];
        assert_eq!(wait_ready(&waited, Some(Duration::ZERO)).unwrap(), [false, false]);
        send_all(&a, b"x", &[]).unwrap();
        assert_eq!(wait_ready(&waited, None).unwrap(), [false, true]);
        assert_eq!(wait_ready(&[(a.as_fd(), Interest::Writable)], None).unwrap(), [true]);
    }

    #[test]
    fn the_peer_of_a_pair_is_this_process() {
        let (a, _b) = pair().unwrap();
        assert_eq!(peer(&a).unwrap().pid, std::process::id());
        assert!(is_socket(&a));
        assert!(!is_socket(crate::memfd::create_sealed("test", 4096).unwrap()));
    }
}
