//! For the tests of this workspace.

use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use tensorferry_os::socket;

use crate::greeting::{Answer, Hello, Incoming, encode};

/// Reads these bytes as a hello, or else as an answer, and writes what they say.
#[must_use]
pub fn read_greeting(bytes: &[u8]) -> Option<Vec<u8>> {
    let hello = || Incoming::default().receive::<Hello>(&said(bytes)?, Some(Instant::now())).ok();
    let answer = || Incoming::default().receive::<Answer>(&said(bytes)?, Some(Instant::now())).ok();
    hello().map(|(hello, _)| encode(&hello)).or_else(|| answer().map(|(answer, _)| encode(&answer)))
}

/// A socket whose other end has said these bytes and no more.
fn said(bytes: &[u8]) -> Option<OwnedFd> {
    let (ours, theirs) = UnixStream::pair().ok()?;
    socket::try_send(&theirs, bytes, &[]).ok()?;
    theirs.shutdown(Shutdown::Write).ok()?;
    Some(ours.into())
}
