//! Where a listener is found.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr;
use std::path::Path;

/// A path, or a name after `@`.
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

    /// Refuses what is too long for the kernel: 107 bytes.
    pub(crate) fn socket(self) -> io::Result<SocketAddr> {
        match self {
            Self::Path(path) => SocketAddr::from_pathname(path),
            Self::Name(name) => SocketAddr::from_abstract_name(name),
        }
    }
}
