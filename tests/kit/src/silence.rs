//! A machine that does not answer, as far as another one can tell.
//!
//! # Safety
//!
//! The kernel reads a structure and an instruction of this frame, and copies both.
#![expect(unsafe_code, reason = "an option of a socket that no library has as safe code")]

use std::os::fd::{AsFd, AsRawFd as _};

use nix::errno::Errno;
use nix::libc;

/// `BPF_RET | BPF_K`: a filter returns how many bytes of a packet are kept.
const RETURN: u16 = 0x06;

const PROGRAM_LEN_BYTES: libc::socklen_t = 16;
const _: () = assert!(size_of::<libc::sock_fprog>() == PROGRAM_LEN_BYTES as usize);

/// Has the kernel lose whatever arrives for this socket, before it is acknowledged (`SO_ATTACH_FILTER`,
/// socket(7)): to the other side its machine is off from now on.
///
/// # Panics
/// If the kernel does not take the filter.
pub fn lose_what_arrives(socket: impl AsFd) {
    let mut filter = [libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: 1, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel reads a `sock_fprog`, which is what `program` is and as long as it says, and one
    // instruction, which `filter` has. Both live until after the call, which copies them.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            PROGRAM_LEN_BYTES,
        )
    };
    Errno::result(outcome).expect("the filter is attached");
}
