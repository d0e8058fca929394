//! What the kernel knows of a connection (`TCP_INFO`, tcp(7)).
//!
//! # Safety
//!
//! The kernel fills a structure of integers, and is told how long it is.
#![expect(unsafe_code, reason = "an option of a socket that no library has as safe code")]

use std::os::fd::{AsFd, AsRawFd as _};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;

use crate::{Error, Result};

/// The first fields of the kernel's `struct tcp_info` (include/uapi/linux/tcp.h), up to those wanted here.
/// New fields come at its end.
#[repr(C)]
#[derive(Default)]
struct TcpInfo {
    _states: [u8; 2],
    /// How often the same was sent again, without an answer in between.
    retransmits: u8,
    _probes_and_options: [u8; 5],
    _timeouts_and_sizes: [u32; 4],
    /// Segments on their way that were not acknowledged. One that probes a closed window is none.
    unacked: u32,
    _counts: [u32; 4],
    _other_times: [u32; 3],
    /// How long ago the other machine has acknowledged something, or again what it had acknowledged before.
    last_ack_recv_ms: u32,
}

const LEN_BYTES: libc::socklen_t = 60;
const _: () = assert!(size_of::<TcpInfo>() == LEN_BYTES as usize);

fn tcp_info(socket: impl AsFd) -> Result<TcpInfo> {
    let mut info = TcpInfo::default();
    let mut len_bytes = LEN_BYTES;
    let out = (&raw mut info).cast::<libc::c_void>();
    // SAFETY: the kernel writes at most `len_bytes` bytes to `out`, which are those of `info`, and a length
    // to `len_bytes`. All fields are integers, of which every pattern of bits is a value, and a kernel that
    // has fewer leaves the rest as it is.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            out,
            &raw mut len_bytes,
        )
    };
    Errno::result(outcome).map_err(|e| Error::new("getsockopt(TCP_INFO)", e))?;
    Ok(info)
}

/// How often the kernel has to have sent something again before its silence says something.
const MIN_RETRANSMITS: u8 = 2;

/// How long ago the other machine was last heard of, if something is under way to it that it does not
/// acknowledge, though it was sent again; `None` otherwise.
///
/// A machine whose program does not read acknowledges what it has no room for, so it is heard of.
///
/// # Errors
/// When the socket is none of TCP.
pub fn unanswered_for(socket: impl AsFd) -> Result<Option<Duration>> {
    let info = tcp_info(socket)?;
    let is_unanswered = info.unacked > 0 && info.retransmits >= MIN_RETRANSMITS;
    Ok(is_unanswered.then(|| Duration::from_millis(info.last_ack_recv_ms.into())))
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_machine_whose_program_reads_nothing_is_heard_of() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _reads_nothing = listener.accept().unwrap();
        assert_eq!(unanswered_for(&socket).unwrap(), None);
        socket.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        let error = loop {
            if let Err(error) = socket.write_all(&[0; 1 << 16]) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
        assert_eq!(unanswered_for(&socket).unwrap(), None);
        let (unix, _other) = crate::socket::pair().unwrap();
        assert_eq!(unanswered_for(unix).unwrap_err().call(), "getsockopt(TCP_INFO)");
    }
}
