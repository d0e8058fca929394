//! Bytes through a socket, encrypted: frames of a length (16 bits, big-endian), and so many bytes of the
//! Noise protocol.

use std::io::{self, Read as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tensorferry_os::event::poll_readable;

use crate::cipher::{Opening, Sealing, TAG_LEN_BYTES};
use crate::error::ConnectionError;
use crate::patience::Patience;

/// The longest frame, without its length: that of a message of the Noise protocol.
pub(crate) const MAX_FRAME_LEN_BYTES: usize = 65_535;
const LEN_LEN_BYTES: usize = 2;
/// The most bytes in a frame.
const MAX_PLAIN_LEN_BYTES: usize = MAX_FRAME_LEN_BYTES - TAG_LEN_BYTES;

/// How long the other side may stand still in the middle of a message.
pub(crate) const STALL: Duration = Duration::from_secs(60);

type Result<T> = std::result::Result<T, ConnectionError>;

/// Writes what the other side reads.
#[derive(Debug)]
pub(crate) struct FrameWriter {
    stream: Arc<TcpStream>,
    patience: Patience,
    /// When the other side is to have made room, whoever answers.
    deadline: Option<Instant>,
    cipher: Sealing,
    /// What waits for a frame to be full.
    plain: Vec<u8>,
    frame: Box<[u8]>,
}

impl FrameWriter {
    pub(crate) fn new(stream: Arc<TcpStream>, cipher: Sealing) -> Self {
        let frame = vec![0; LEN_LEN_BYTES + MAX_FRAME_LEN_BYTES].into_boxed_slice();
        let plain = Vec::with_capacity(MAX_PLAIN_LEN_BYTES);
        Self { stream, patience: Patience::default(), deadline: None, cipher, plain, frame }
    }

    pub(crate) fn set_patience(&mut self, patience: Patience) {
        self.patience = patience;
    }

    pub(crate) fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Writes all bytes, perhaps only with a later call or [`flush`](Self::flush).
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.plain.is_empty()
                && let Some((plain, rest)) = bytes.split_at_checked(MAX_PLAIN_LEN_BYTES)
            {
                let sealed = seal(&mut self.cipher, &mut self.frame, plain)?;
                self.patience.write_all(&self.stream, sealed, self.deadline)?;
                bytes = rest;
                continue;
            }
            let (fitting, rest) = bytes.split_at(bytes.len().min(MAX_PLAIN_LEN_BYTES - self.plain.len()));
            self.plain.extend_from_slice(fitting);
            bytes = rest;
            if self.plain.len() == MAX_PLAIN_LEN_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Sends what was written.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if !self.plain.is_empty() {
            let sealed = seal(&mut self.cipher, &mut self.frame, &self.plain)?;
            self.patience.write_all(&self.stream, sealed, self.deadline)?;
            self.plain.clear();
        }
        Ok(())
    }
}

/// Makes a frame of `plain`.
fn seal<'a>(cipher: &mut Sealing, frame: &'a mut [u8], plain: &[u8]) -> Result<&'a [u8]> {
    let (len, sealed) = frame.split_at_mut(LEN_LEN_BYTES);
    let sealed_len = cipher.seal(plain, sealed)?;
    len.copy_from_slice(&u16::try_from(sealed_len).unwrap_or(u16::MAX).to_be_bytes());
    Ok(&frame[..LEN_LEN_BYTES + sealed_len])
}

/// Reads what the other side writes.
#[derive(Debug)]
pub(crate) struct FrameReader {
    stream: Arc<TcpStream>,
    patience: Patience,
    cipher: Opening,
    frame: Box<[u8]>,
    /// What has arrived, from `at` on still to be read.
    plain: Vec<u8>,
    at: usize,
}

impl FrameReader {
    pub(crate) fn new(stream: Arc<TcpStream>, cipher: Opening) -> Self {
        let frame = vec![0; MAX_FRAME_LEN_BYTES].into_boxed_slice();
        let plain = vec![0; MAX_PLAIN_LEN_BYTES];
        Self { stream, patience: Patience::default(), cipher, frame, plain, at: MAX_PLAIN_LEN_BYTES }
    }

    pub(crate) fn set_patience(&mut self, patience: Patience) {
        self.patience = patience;
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Waits until something has arrived, or the other side has ended. Returns whether it has, in time.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Result<bool> {
        if self.at < self.plain.len() {
            return Ok(true);
        }
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            // A socket's time-out is at least one tick of the kernel's clock, some milliseconds.
            let is_readable = poll_readable(&[self.stream.as_fd()], timeout).map_err(io::Error::from)?;
            return Ok(is_readable == [true]);
        }
        // Later than can be said is never.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            self.stream.set_read_timeout(Some(self.patience.slice(left)))?;
            match self.stream.peek(&mut [0]) {
                Ok(_) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // `TimedOut` would be the kernel's, about a machine that does not answer.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // What this side has sent may be what is not answered.
                    self.patience.check(&self.stream)?;
                    if left.is_some_and(|left| left.is_zero()) {
                        return Ok(false);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Fills `out` with what comes next, within [`STALL`] for each part of it.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> Result<()> {
        self.read_before(None, out)
    }

    /// As [`read`](Self::read), with a deadline for all of it.
    pub(crate) fn read_before(&mut self, deadline: Option<Instant>, mut out: &mut [u8]) -> Result<()> {
        while !out.is_empty() {
            if self.at == self.plain.len() {
                let frame_len = self.receive(deadline)?;
                let plain_len = frame_len.checked_sub(TAG_LEN_BYTES).filter(|len| *len > 0);
                let plain_len = plain_len.ok_or(ConnectionError::Nonsense("a frame of nothing"))?;
                if plain_len <= out.len() {
                    // It goes to where it is wanted.
                    let (part, rest) = std::mem::take(&mut out).split_at_mut(plain_len);
                    self.cipher.open(&self.frame[..frame_len], part)?;
                    out = rest;
                    continue;
                }
                self.plain.resize(plain_len, 0);
                self.at = plain_len;
                self.cipher.open(&self.frame[..frame_len], &mut self.plain)?;
                self.at = 0;
            }
            let ready = &self.plain[self.at..];
            let len = ready.len().min(out.len());
            let (part, rest) = std::mem::take(&mut out).split_at_mut(len);
            part.copy_from_slice(&ready[..len]);
            self.at += len;
            out = rest;
        }
        Ok(())
    }

    /// Receives a frame. Returns its length.
    fn receive(&mut self, deadline: Option<Instant>) -> Result<usize> {
        let mut len = [0; LEN_LEN_BYTES];
        fill(&self.stream, &mut len, deadline)?;
        let len = usize::from(u16::from_be_bytes(len));
        fill(&self.stream, &mut self.frame[..len], deadline)?;
        Ok(len)
    }
}

/// Fills `out`, however slowly it comes, before the deadline; without one, as long as something comes within
/// [`STALL`]. Fails with [`WouldBlock`](io::ErrorKind::WouldBlock) when it is late.
pub(crate) fn fill(mut stream: &TcpStream, mut out: &mut [u8], deadline: Option<Instant>) -> io::Result<()> {
    while !out.is_empty() {
        let left = deadline.map_or(STALL, |deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(out) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => out = &mut std::mem::take(&mut out)[len..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn what_comes_byte_by_byte_has_a_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (here, _) = listener.accept().unwrap();
        let (end, patience) = (std::sync::mpsc::channel::<()>(), Duration::from_millis(200));
        let drips = std::thread::spawn(move || {
            while end.1.recv_timeout(patience / 10) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                there.write_all(&[0]).unwrap();
            }
            there.write_all(&[0; 3]).unwrap();
        });
        let begin = Instant::now();
        let error = fill(&here, &mut [0; 1 << 16], Some(begin + patience)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(begin.elapsed() >= patience);
        drop(end.0);
        drips.join().unwrap();
        fill(&here, &mut [1; 3], None).unwrap();
        let error = fill(&here, &mut [1; 1 << 16], None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
