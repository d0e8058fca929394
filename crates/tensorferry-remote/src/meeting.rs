//! Where two machines meet.

use std::any::type_name;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use tensorferry_storage::Heap;

use crate::connection::Connection;
use crate::error::ConnectError;
use crate::handshake::{self, Side};
use crate::key::Key;

/// How long one address of a name is tried.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for other machines at an address: Python's `multiprocessing.connection.Listener` with an address of
/// TCP.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    key: Key,
}

impl Listener {
    /// Listens at an address, `0.0.0.0:7000`, say, for those who have the key. Port 0 is any that is free
    /// ([`local_addr`](Self::local_addr)).
    ///
    /// # Errors
    /// The system's: the address is taken, or not this machine's.
    pub fn bind(address: impl ToSocketAddrs, key: &Key) -> io::Result<Self> {
        Ok(Self { socket: TcpListener::bind(address)?, key: key.clone() })
    }

    /// The address at which it listens.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The next one who connects. What arrives lies in the default domain of this process.
    ///
    /// # Blocking
    /// Until somebody connects, and then until both have introduced themselves, for 10 seconds at most. So
    /// long somebody who says nothing holds up the call; others are let in by other threads, which may call
    /// it too.
    ///
    /// # Errors
    /// [`ConnectError`]: somebody has connected who does not have the key, or means something else. Others
    /// can still connect, so a program that goes on accepts in a loop and does not end with this.
    pub fn accept<S, R>(&self) -> Result<Connection<S, R>, ConnectError> {
        self.accept_in(Heap::current()?)
    }

    /// As [`accept`](Self::accept), with a domain for what arrives.
    ///
    /// # Blocking
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub fn accept_in<S, R>(&self, heap: &Heap) -> Result<Connection<S, R>, ConnectError> {
        let (stream, _) = self.socket.accept()?;
        meet(stream, &self.key, Side::Listens, heap)
    }
}

impl AsFd for Listener {
    /// Readable when somebody has connected.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Connects to the [`Listener`] of another machine: Python's `multiprocessing.connection.Client`. What
/// arrives lies in the default domain of this process.
///
/// # Blocking
/// Until the other machine has answered, for at most 30 seconds for each address that a name has, and until
/// both have introduced themselves, for 10 seconds at most.
///
/// # Errors
/// [`ConnectError`]; [`ConnectError::Io`] at once where nobody listens, or not yet: try again after a while.
pub fn connect<S, R>(address: impl ToSocketAddrs, key: &Key) -> Result<Connection<S, R>, ConnectError> {
    connect_in(Heap::current()?, address, key)
}

/// As [`connect`], with a domain for what arrives.
///
/// # Blocking
/// As there.
///
/// # Errors
/// As there.
pub fn connect_in<S, R>(
    heap: &Heap,
    address: impl ToSocketAddrs,
    key: &Key,
) -> Result<Connection<S, R>, ConnectError> {
    let mut outcome = Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    for address in address.to_socket_addrs()? {
        outcome = TcpStream::connect_timeout(&address, PATIENCE);
        if outcome.is_ok() {
            break;
        }
    }
    meet(outcome?, key, Side::Connects, heap)
}

fn meet<S, R>(
    stream: TcpStream,
    key: &Key,
    side: Side,
    heap: &Heap,
) -> Result<Connection<S, R>, ConnectError> {
    let (writer, reader) = handshake::meet(stream, key, side, (type_name::<S>(), type_name::<R>()))?;
    Ok(Connection::new(writer, reader, heap)?)
}
