//! Processes that carry the mark of a child without being one: an error and an end, never a run of `main`.
#![expect(
    clippy::disallowed_methods,
    reason = "starts this binary by hand, as something other than us would"
)]

use std::io::Write;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};

use tensorferry_os::leash;
use tensorferry_os::pidfd::PidFd;
use tensorferry_os::socket::{Interest, send_all, wait_ready};

use crate::support::within_deadline;

/// This binary, marked as a child, told to list its tests: a run of `main` would print them.
fn run_marked(stdin: impl Into<Stdio>) -> Output {
    let mut command = Command::new("/proc/self/exe");
    command.arg("--list").env("TENSORFERRY_CHILD", "0123456789abcdef").stdin(stdin);
    within_deadline("the end of a marked process", move || command.output().unwrap())
}

fn assert_refused(output: &Output, reason: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(tensorferry_process::EXIT_CODE_NO_PARENT), "{stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "main must not run");
    assert!(stderr.contains(reason), "{stderr}");
}

#[test]
fn without_a_socket() {
    assert_refused(&run_marked(Stdio::null()), "standard input is not the socket of a parent");
}

#[test]
fn with_a_socket_that_says_nothing() {
    let (_ours, theirs) = UnixStream::pair().unwrap();
    assert_refused(&run_marked(OwnedFd::from(theirs)), "holds no greeting");
}

#[test]
fn with_a_socket_that_is_closed() {
    let (_, theirs) = UnixStream::pair().unwrap();
    assert_refused(&run_marked(OwnedFd::from(theirs)), "ended after 0 of 4 bytes");
}

#[test]
fn with_a_socket_that_says_something_else() {
    for (bytes, reason) in [
        (&b"\x10\0\0\0GET / HTTP/1.1\r\n"[..], "begins with 0x20544547"),
        (&b"GET / HTTP/1.1\r\n"[..], "over the limit"),
        (&b"\x10\0\0\0TFCH"[..], "ended after 4 of 16 bytes"),
        (&b"\x06\0\0\0TFCH\xff\xff"[..], "speaks version 65535"),
    ] {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(bytes).unwrap();
        assert_refused(&run_marked(OwnedFd::from(theirs)), reason);
    }
}

/// A hello as docs/WIRE.md has it, for an entry that does not matter.
fn hello() -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let mut body = b"TFCH\x05\0".to_vec();
    body.extend(text("0123456789abcdef"));
    let mut pid = std::process::id();
    while pid >= 0x80 {
        body.push(u8::try_from(pid & 0x7f).unwrap() | 0x80);
        pid >>= 7;
    }
    body.push(u8::try_from(pid).unwrap());
    body.extend([text("MainProcess"), text("test.nothing"), text("child")].concat());
    // No rank, not daemonic, no forks, two descriptors.
    body.extend([0, 0, 0, 2]);
    [&u32::try_from(body.len()).unwrap().to_le_bytes(), &body[..]].concat()
}

/// As when Ctrl-C ends a parent in the middle of a start: each child would say so otherwise.
#[test]
fn with_a_parent_that_goes_before_all_is_said() {
    for rest in [&b""[..], b"\x05\0\0", b"\x05\0\0\0\0\0\0\0ab"] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (me, (_held, leash)) = (PidFd::of_self().unwrap(), leash::pair().unwrap());
        send_all(&ours, &hello(), &[me.as_fd(), leash.as_fd()]).unwrap();
        send_all(&ours, rest, &[]).unwrap();
        drop(ours);
        let output = run_marked(OwnedFd::from(theirs));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(tensorferry_process::EXIT_CODE_NO_PARENT), "{stderr}");
        assert!(output.stdout.is_empty() && stderr.is_empty(), "{stderr}");
    }
}

#[test]
fn without_the_mark_the_same_binary_runs_its_main() {
    let output = Command::new("/proc/self/exe").arg("--list").stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("without_the_mark"));
}

/// That it has entered lies unread in the socket then, which makes its end an error (unix(7)).
#[test]
fn with_a_parent_that_ends_without_a_look_at_what_this_one_says() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (me, (_held, leash)) = (PidFd::of_self().unwrap(), leash::pair().unwrap());
    send_all(&ours, &hello(), &[me.as_fd(), leash.as_fd()]).unwrap();
    let parent = std::thread::spawn(move || {
        within_deadline("a word of the child", move || {
            assert_eq!(wait_ready(&[(ours.as_fd(), Interest::Readable)], None).unwrap(), [true]);
        });
    });
    let output = run_marked(OwnedFd::from(theirs));
    parent.join().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(tensorferry_process::EXIT_CODE_NO_PARENT), "{stderr}");
    assert!(output.stdout.is_empty() && stderr.is_empty(), "{stderr}");
}

/// A parent that is exiting closes its files before its pidfd shows that.
#[test]
fn with_a_parent_whose_leash_is_loose() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (me, (held, leash)) = (PidFd::of_self().unwrap(), leash::pair().unwrap());
    drop(held);
    send_all(&ours, &hello(), &[me.as_fd(), leash.as_fd()]).unwrap();
    let output = run_marked(OwnedFd::from(theirs));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(tensorferry_process::EXIT_CODE_NO_PARENT), "{stderr}");
    assert!(output.stdout.is_empty() && stderr.is_empty(), "{stderr}");
}
