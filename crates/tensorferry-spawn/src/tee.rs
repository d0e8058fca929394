//! The thread that forwards the output of processes: to their files, and line by line to the outputs of this
//! process.
//!
//! One thread serves all processes of a context. It waits in poll(2) for their pipes and for the event that
//! the processes have ended. Then it reads the rest from the pipes and ends, even if other processes hold
//! their write ends open.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, PipeReader, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tensorferry_os::event::EventFd;
use tensorferry_os::socket::{Interest, wait_ready};

use crate::output::{LogFile, OutputError};

/// How much is read at once, in bytes.
const CHUNK_LEN_BYTES: usize = 16 << 10;

/// A line that is as long as this and does not end is forwarded so far, in bytes. With what was read last a
/// piece may be nearly twice as long.
const MAX_LINE_LEN_BYTES: usize = 16 << 10;

/// How much is read from the pipes once the processes have ended, in chunks: the 1 MiB that a process may set
/// as the capacity of its pipe (`/proc/sys/fs/pipe-max-size`, pipe(7)). Any more comes from a process that
/// still writes.
const MAX_LAST_CHUNKS: usize = (1 << 20) / CHUNK_LEN_BYTES;

/// How much a pipe that poll(2) reports as writable takes without blocking (`PIPE_BUF`, pipe(7)).
const PIECE_LEN_BYTES: usize = 4096;

/// How long to wait for an output of this process that nothing reads, once the processes have ended.
const LAST_OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);

/// One output of one process.
#[derive(Debug)]
pub(crate) struct Stream {
    reader: PipeReader,
    file: Option<LogFile>,
    prefix: String,
    /// `None` once nothing reads it.
    to: Option<File>,
    /// An incomplete line.
    line: Vec<u8>,
}

impl Stream {
    /// Copies `reader` to `file`, and its lines, each after `prefix`, to `to`.
    pub(crate) fn new(reader: PipeReader, file: Option<LogFile>, prefix: String, to: OwnedFd) -> Self {
        Self { reader, file, prefix, to: Some(to.into()), line: Vec::new() }
    }

    /// Forwards the available bytes. Returns false at the end of the stream.
    fn pass_on(
        &mut self,
        chunk: &mut [u8],
        end: &End<'_>,
        failed: &mut Option<OutputError>,
    ) -> io::Result<bool> {
        let n = loop {
            match self.reader.read(chunk) {
                Ok(n) => break n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        let bytes = chunk.get(..n).unwrap_or_default();
        if let Some(mut log) = self.file.take() {
            match log.file.write_all(bytes) {
                Ok(()) => self.file = Some(log),
                // The rest is still read, so that the process does not block.
                Err(error) if failed.is_none() => {
                    *failed =
                        Some(OutputError::File { rank: log.rank, path: log.path, error: Arc::new(error) });
                }
                Err(_) => {}
            }
        }
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.line.len() >= MAX_LINE_LEN_BYTES {
                self.end_line(end);
            }
        }
        Ok(n > 0)
    }

    /// Forwards the line so far.
    fn end_line(&mut self, end: &End<'_>) {
        if self.line.is_empty() {
            return;
        }
        let mut text = Vec::with_capacity(self.prefix.len() + self.line.len() + 1);
        text.extend_from_slice(self.prefix.as_bytes());
        text.append(&mut self.line);
        if !text.ends_with(b"\n") {
            text.push(b'\n');
        }
        if self.to.as_ref().is_some_and(|to| put(to, &text, end).is_err()) {
            self.to = None;
        }
    }
}

/// The event that the processes have ended, and the deadline for writes after it.
struct End<'a> {
    ended: &'a EventFd,
    until: OnceCell<Instant>,
}

impl End<'_> {
    /// Waits until `to` accepts bytes. Once the processes have ended, waits for at most
    /// [`LAST_OUTPUT_TIMEOUT`] in all.
    fn wait_writable(&self, to: &File) -> io::Result<()> {
        let writable = (to.as_fd(), Interest::Writable);
        if wait_ready(&[writable, (self.ended.as_fd(), Interest::Readable)], None)?[0] {
            return Ok(());
        }
        let until = *self.until.get_or_init(|| Instant::now() + LAST_OUTPUT_TIMEOUT);
        let left = until.saturating_duration_since(Instant::now());
        if wait_ready(&[writable], Some(left))?[0] { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
    }
}

/// Writes to an output of this process.
fn put(mut to: &File, bytes: &[u8], end: &End<'_>) -> io::Result<()> {
    let mut left = bytes;
    while !left.is_empty() {
        end.wait_writable(to)?;
        match to.write(&left[..left.len().min(PIECE_LEN_BYTES)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => left = &left[n..],
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads until all pipes are closed or the processes have ended. Returns the first error.
fn run(mut streams: Vec<Stream>, ended: &EventFd) -> Result<(), OutputError> {
    let (mut chunk, mut failed) = (vec![0; CHUNK_LEN_BYTES], None);
    let mut last_chunks = 0;
    let end = End { ended, until: OnceCell::new() };
    while !streams.is_empty() && last_chunks < MAX_LAST_CHUNKS {
        let pipes = streams.iter().map(|stream| stream.reader.as_fd());
        let fds = std::iter::once(ended.as_fd()).chain(pipes).map(|fd| (fd, Interest::Readable));
        let ready = wait_ready(&fds.collect::<Vec<_>>(), None).map_err(OutputError::tee)?;
        if ready.first() == Some(&true) {
            last_chunks += 1;
            if !ready[1..].contains(&true) {
                break;
            }
        }
        let mut ready = ready.into_iter().skip(1);
        let mut broken = None;
        streams.retain_mut(|stream| {
            if !ready.next().unwrap_or(false) {
                return true;
            }
            let goes_on = stream.pass_on(&mut chunk, &end, &mut failed).unwrap_or_else(|error| {
                broken = Some(error);
                false
            });
            if !goes_on {
                stream.end_line(&end);
            }
            goes_on
        });
        if let Some(error) = broken {
            failed.get_or_insert(OutputError::tee(error));
        }
    }
    streams.iter_mut().for_each(|stream| stream.end_line(&end));
    failed.map_or(Ok(()), Err)
}

/// The thread. Dropping this ends it, so drop it after the processes have ended.
#[derive(Debug)]
pub(crate) struct TeeThread {
    /// The process that the thread belongs to. A process forked from it has this memory too, but not the
    /// thread.
    pid: u32,
    ended: Arc<EventFd>,
    thread: Option<JoinHandle<Result<(), OutputError>>>,
}

impl TeeThread {
    pub(crate) fn start(streams: Vec<Stream>) -> Result<Self, OutputError> {
        let ended = Arc::new(EventFd::new().map_err(OutputError::tee)?);
        let ring = Arc::clone(&ended);
        let thread = std::thread::Builder::new().name(String::from("tf-tee"));
        let thread = thread.spawn(move || run(streams, &ended)).map_err(OutputError::tee)?;
        Ok(Self { pid: std::process::id(), ended: ring, thread: Some(thread) })
    }

    /// Waits until everything in the pipes has been forwarded.
    pub(crate) fn finish(mut self) -> Result<(), OutputError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), OutputError> {
        let is_here = self.pid == std::process::id();
        let Some(thread) = self.thread.take().filter(|_| is_here) else { return Ok(()) };
        self.ended.signal();
        // The thread does not panic. If it did, the files of the processes would be incomplete.
        thread.join().unwrap_or_else(|_| Err(OutputError::tee(io::Error::other("its thread panicked"))))
    }
}

impl Drop for TeeThread {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
