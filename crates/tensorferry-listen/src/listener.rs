//! The side that is there.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use tensorferry_os::socket::{self, Interest};
use tensorferry_queue::{AnyConnection, Connection, pipe_in};
use tensorferry_reduce::Parcel;
use tensorferry_storage::{Heap, StorageError};

use crate::address::Address;
use crate::joined::Serving;
use crate::newcomer::Newcomer;
use crate::{AcceptError, ListenError};

/// An address at which processes [`connect`](crate::connect): Python's `Listener`.
///
/// Dropping it removes the socket's file. If its process is killed, the file stays; the next listener at the
/// path finds that nobody listens there, and takes its place.
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
    #[expect(dead_code, reason = "it is removed when it is dropped")]
    file: Option<SocketFile>,
    heap: Heap,
    #[expect(dead_code, reason = "it is known until it is dropped")]
    serving: Serving,
}

impl Listener {
    /// Listens at an address: a path, or a name after `@`. Processes that connect become members of the
    /// default domain.
    ///
    /// # Errors
    /// [`ListenError::Bind`] when somebody listens there already, or the kernel refuses for another reason;
    /// [`ListenError::Storage`].
    pub fn bind(address: impl AsRef<OsStr>) -> Result<Self, ListenError> {
        Self::bind_in(Heap::current()?, address)
    }

    /// As [`Listener::bind`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub fn bind_in(heap: &Heap, address: impl AsRef<OsStr>) -> Result<Self, ListenError> {
        let address = address.as_ref();
        let cannot = |error| ListenError::Bind { address: address.into(), error };
        let bound = match Address::of(address) {
            Address::Path(path) => SocketFile::bind(path).map(|(listener, file)| (listener, Some(file))),
            name @ Address::Name(_) => name.bind().map(|listener| (listener, None)),
        };
        let (listener, file) = bound.map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        Ok(Self { listener, file, heap: heap.clone(), serving: Serving::domain_of(heap) })
    }

    /// Waits for a process that connects. Each direction of the connection has room for `capacity_items`
    /// messages (at least one).
    ///
    /// # Errors
    /// [`AcceptError`]. If it [is of the peer](AcceptError::is_of_peer), that one was not let in, and the
    /// call can be made again.
    ///
    /// # Blocking
    /// Until a process connects and has taken its end. One that has connected and says nothing delays others
    /// by two seconds; one that stops on its way into the domain, by ten more.
    pub fn accept<S, R>(&self, capacity_items: usize) -> Result<Connection<S, R>, AcceptError> {
        self.accept_until(None, || pipe_in(&self.heap, capacity_items))
    }

    /// As [`Listener::accept`], waiting for at most `timeout` for a process that connects.
    ///
    /// # Errors
    /// As [`Listener::accept`], and [`AcceptError::TimedOut`].
    ///
    /// # Blocking
    /// As [`Listener::accept`]: `timeout` is for a process to connect, and does not count its delays.
    pub fn accept_timeout<S, R>(
        &self,
        capacity_items: usize,
        timeout: Duration,
    ) -> Result<Connection<S, R>, AcceptError> {
        // A time that no clock can hold is for ever.
        self.accept_until(Instant::now().checked_add(timeout), || pipe_in(&self.heap, capacity_items))
    }

    /// As [`Listener::accept`], for values of any type, waiting for at most `timeout` if there is one. The
    /// other side decides what they are.
    ///
    /// # Errors
    /// As [`Listener::accept_timeout`].
    ///
    /// # Blocking
    /// As [`Listener::accept_timeout`].
    pub fn accept_any(
        &self,
        capacity_items: usize,
        timeout: Option<Duration>,
    ) -> Result<AnyConnection, AcceptError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.accept_until(deadline, || AnyConnection::pipe_in(&self.heap, capacity_items))
    }

    /// `pipe` makes our end and theirs.
    fn accept_until<C, D: Serialize>(
        &self,
        deadline: Option<Instant>,
        pipe: impl Fn() -> Result<(C, D), StorageError>,
    ) -> Result<C, AcceptError> {
        let mut newcomer = Newcomer::meet(self.wait_for_socket(deadline)?)?;
        loop {
            let pack = || {
                let (ours, theirs) = pipe()?;
                Ok((ours, Parcel::pack(&self.heap, &theirs)?))
            };
            if let Some(ours) = newcomer.go_on(&self.heap, None, pack)? {
                return Ok(ours);
            }
        }
    }

    /// Has nobody connect any more, not even to a copy of the socket in a process that was forked from this
    /// one.
    pub(crate) fn refuse_all(&self) {
        // Cannot fail: it is a socket. If other code has closed it, there is nothing to refuse.
        let _ = socket::shut_down(&self.listener);
    }

    /// A socket to the next one that connects.
    pub(crate) fn wait_for_socket(&self, deadline: Option<Instant>) -> Result<OwnedFd, AcceptError> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => return Ok(stream.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(AcceptError::Accept(error)),
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let is_there = socket::wait_ready(&[(self.listener.as_fd(), Interest::Readable)], left);
            if is_there.map_err(|error| AcceptError::Accept(error.into()))? != [true] {
                return Err(AcceptError::TimedOut);
            }
        }
    }
}

/// Whether the path is a socket that no process has any more. A socket of another kind asks, so that whoever
/// listens there is not disturbed: to it the kernel has another error (EPROTOTYPE, connect(2)).
fn is_left_behind(path: &Path) -> bool {
    // To connect to any other file is refused too.
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let asked = || UnixDatagram::unbound().and_then(|socket| socket.connect(path));
    is_socket && asked().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

impl AsFd for Listener {
    /// Readable when somebody connects (epoll(7)).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// The file of a listening socket. Dropping it removes the file.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode: somebody may have put another file there.
    id: (u64, u64),
    /// A process that was forked from the one that made it removes nothing.
    made_by: u32,
}

impl SocketFile {
    /// Listens at a path, in the place of a socket at which nobody listens any more.
    fn bind(path: &Path) -> io::Result<(UnixListener, Self)> {
        // So that of two that find such a socket one does not remove what the other has just made.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = File::open(folder)?;
        folder.lock()?;
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left_behind(path) => {
                fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            bound => bound?,
        };
        // Between the two calls others could connect, whom `accept` refuses.
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        let file = Self { path: path.to_owned(), id: id_of(path)?, made_by: std::process::id() };
        Ok((listener, file))
    }
}

fn id_of(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = self.made_by == std::process::id() && id_of(&self.path).is_ok_and(|id| id == self.id);
        if is_ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}
