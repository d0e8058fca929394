//! Where a listener is found.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::time::Duration;

use tensorferry_domain::OsError;
use tensorferry_os::socket;

/// A path, or a name after `@`. The kernel has room for 107 bytes of either.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Address<'a> {
    /// A socket in a folder.
    Path(&'a Path),
    /// An abstract socket: a name that is no file.
    Name(&'a [u8]),
}

impl<'a> Address<'a> {
    pub(crate) fn of(address: &'a OsStr) -> Self {
        match address.as_bytes().strip_prefix(b"@") {
            Some(name) => Self::Name(name),
            None => Self::Path(Path::new(address)),
        }
    }

    pub(crate) fn connect(self, timeout: Option<Duration>) -> Result<OwnedFd, OsError> {
        match self {
            Self::Path(path) => socket::connect_path(path, timeout),
            Self::Name(name) => socket::connect_abstract(name, timeout),
        }
    }

    /// Listens there, if nothing is there.
    pub(crate) fn bind(self) -> io::Result<UnixListener> {
        match self {
            Self::Path(path) => UnixListener::bind(path),
            Self::Name(name) => UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?),
        }
    }
}
