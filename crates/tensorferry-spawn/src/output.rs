//! Where the standard output and error of processes go.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tensorferry_process::Redirect;

use crate::options::Options;
use crate::tee::{Stream, TeeThread};

/// Which output of the processes is forwarded to the same output of this process. Each line begins with the
/// name of its process: `[train 0] epoch 3`. Set by [`Options::tee`](crate::Options::tee).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Tee {
    /// Neither.
    #[default]
    Off,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Both, each to its own.
    Both,
}

/// Why the output of processes could not be kept.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// A file cannot be created or written. It lacks all later output.
    #[error("the output of process {rank} cannot be written to {}: {error}", .path.display())]
    File {
        /// The index of the process.
        rank: usize,
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        error: Arc<io::Error>,
    },
    /// A pipe or the thread that forwards lines cannot be created, or waiting or reading failed.
    #[error("the output of the processes cannot be passed on: {error}")]
    Tee {
        /// The kernel's error.
        error: Arc<io::Error>,
    },
}

tensorferry_os::debug_as_display!(OutputError);

impl OutputError {
    pub(crate) fn tee(error: impl Into<io::Error>) -> Self {
        Self::Tee { error: Arc::new(error.into()) }
    }
}

/// The outputs of one process.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    pub(crate) stdout: Redirect,
    pub(crate) stderr: Redirect,
}

/// Opens the outputs of all processes, in order of the index. Starts the thread that forwards lines if it is
/// needed.
pub(crate) fn open(
    options: &Options,
    name: &str,
    nprocs: usize,
) -> Result<(Vec<Outputs>, Option<TeeThread>), OutputError> {
    let (mut all, mut streams) = (Vec::with_capacity(nprocs), Vec::new());
    for rank in 0..nprocs {
        let dir = options.log_dir.as_ref().map(|dir| dir.join(rank.to_string()));
        let place = Place { dir: dir.as_deref(), prefix: &format!("[{name} {rank}] "), rank };
        all.push(place.open(options.tee, Outputs::default(), &mut streams)?);
    }
    Ok((all, tee(streams)?))
}

/// As [`open`], for a single process. Outputs that are redirected already stay as they are.
pub(crate) fn open_alone(
    options: &Options,
    name: &str,
    rank: usize,
    outputs: Outputs,
) -> Result<(Outputs, Option<TeeThread>), OutputError> {
    let place = Place { dir: options.log_dir.as_deref(), prefix: &format!("[{name}] "), rank };
    let mut streams = Vec::new();
    let outputs = place.open(options.tee, outputs, &mut streams)?;
    Ok((outputs, tee(streams)?))
}

fn tee(streams: Vec<Stream>) -> Result<Option<TeeThread>, OutputError> {
    if streams.is_empty() { Ok(None) } else { TeeThread::start(streams).map(Some) }
}

/// Where the output of one process is kept, and the prefix of its forwarded lines.
struct Place<'a> {
    dir: Option<&'a Path>,
    prefix: &'a str,
    rank: usize,
}

impl Place<'_> {
    fn open(&self, tee: Tee, outputs: Outputs, streams: &mut Vec<Stream>) -> Result<Outputs, OutputError> {
        let (tee_stdout, tee_stderr) = match tee {
            Tee::Off => (false, false),
            Tee::Stdout => (true, false),
            Tee::Stderr => (false, true),
            Tee::Both => (true, true),
        };
        let stdout = match outputs.stdout {
            Redirect::Inherit => self.connect("stdout.log", own(tee_stdout, io::stdout())?, streams)?,
            elsewhere => elsewhere,
        };
        let stderr = match outputs.stderr {
            Redirect::Inherit => self.connect("stderr.log", own(tee_stderr, io::stderr())?, streams)?,
            elsewhere => elsewhere,
        };
        Ok(Outputs { stdout, stderr })
    }

    fn connect(
        &self,
        file_name: &str,
        to: Option<OwnedFd>,
        streams: &mut Vec<Stream>,
    ) -> Result<Redirect, OutputError> {
        let file = self.dir.map(|dir| LogFile::open(dir, file_name, self.rank)).transpose()?;
        let Some(to) = to else { return Ok(file.map_or(Redirect::Inherit, |log| Redirect::from(log.file))) };
        let (reader, writer) = io::pipe().map_err(OutputError::tee)?;
        streams.push(Stream::new(reader, file, self.prefix.to_owned(), to));
        Ok(Redirect::from(writer))
    }
}

/// A copy of an output of this process. It is not the standard library's handle, because a thread that holds
/// that lock while it waits for the processes would block them.
fn own(is_wanted: bool, output: impl AsFd) -> Result<Option<OwnedFd>, OutputError> {
    is_wanted.then(|| output.as_fd().try_clone_to_owned()).transpose().map_err(OutputError::tee)
}

/// A file that is opened for appending, so that several processes can share it.
#[derive(Debug)]
pub(crate) struct LogFile {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    pub(crate) rank: usize,
}

impl LogFile {
    fn open(dir: &Path, file_name: &str, rank: usize) -> Result<Self, OutputError> {
        let path = dir.join(file_name);
        let opened =
            std::fs::create_dir_all(dir).and_then(|()| File::options().create(true).append(true).open(&path));
        match opened {
            Ok(file) => Ok(Self { file, path, rank }),
            Err(error) => Err(OutputError::File { rank, path, error: Arc::new(error) }),
        }
    }
}
