//! Connections to other machines (tcp(7)).

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;

pub use crate::tcp_info::unanswered_for;
use crate::{Error, Result};

/// How many probes go unanswered before a silent peer is given up.
const N_PROBES: u32 = 3;

/// Has the kernel end a quiet connection when the other machine has not answered for `limit`: it is off, or
/// unreachable. A machine whose program stands still answers.
///
/// The connection is probed (`SO_KEEPALIVE`): first after half the limit, then three times. While something
/// is under way that is not acknowledged, the kernel sends that again instead, and gives up by the setting
/// `net.ipv4.tcp_retries2` (some 15 minutes); look at [`unanswered_for`] meanwhile. `TCP_USER_TIMEOUT` would
/// shorten this, but it also ends the connection to a machine that answers and whose program does not read
/// for so long.
///
/// The kernel counts in seconds, and the least is two.
///
/// # Errors
/// When the socket is none of TCP.
pub fn give_up_after(socket: impl AsFd, limit: Duration) -> Result<()> {
    let socket = socket.as_fd();
    let first = (limit / 2).max(Duration::from_secs(1));
    let interval = (limit / 2 / N_PROBES).max(Duration::from_secs(1));
    sockopt::set_socket_keepalive(socket, true).map_err(|e| Error::new("setsockopt(SO_KEEPALIVE)", e))?;
    sockopt::set_tcp_keepidle(socket, first).map_err(|e| Error::new("setsockopt(TCP_KEEPIDLE)", e))?;
    sockopt::set_tcp_keepintvl(socket, interval).map_err(|e| Error::new("setsockopt(TCP_KEEPINTVL)", e))?;
    sockopt::set_tcp_keepcnt(socket, N_PROBES).map_err(|e| Error::new("setsockopt(TCP_KEEPCNT)", e))
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_kernel_is_told_when_to_give_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        give_up_after(&socket, Duration::from_secs(30)).unwrap();
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&socket).unwrap(), Duration::from_secs(15));
        assert_eq!(sockopt::tcp_keepintvl(&socket).unwrap(), Duration::from_secs(5));
        assert_eq!(sockopt::tcp_keepcnt(&socket).unwrap(), 3);
        let (unix, _other) = crate::socket::pair().unwrap();
        assert_eq!(
            give_up_after(unix, Duration::from_secs(30)).unwrap_err().call(),
            "setsockopt(TCP_KEEPIDLE)"
        );
    }
    #[test]
    fn a_machine_whose_program_reads_nothing_is_not_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _reads_nothing = listener.accept().unwrap();
        give_up_after(&socket, Duration::from_secs(1)).unwrap();
        // Twice the limit, with the buffers of both sides full.
        socket.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
        let error = loop {
            if let Err(error) = socket.write_all(&[0; 1 << 16]) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
    }
}
