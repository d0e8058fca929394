//! Errors between a parent and its children.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use tensorferry_os::fork::ForkError;

use crate::StartMethod;
use crate::entry::VARIABLE;

/// Why a child could not be started. No process remains in any of these cases.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// This process was itself started as a child, but ran its `main` instead of its entry.
    #[error(
        "refused to start a process from a process that was started as a child but never entered as one \
         ({VARIABLE} is still set); call `init()` as the first line of `main`, or unset {VARIABLE}"
    )]
    NeverEntered,
    /// [`allow_fork`](crate::allow_fork) has not been called.
    #[error(
        "this process may not be forked: call `unsafe {{ allow_fork() }}` first, which says what a program must keep to \
         then, or use another start method"
    )]
    ForkNotAllowed,
    /// This process is daemonic.
    #[error(
        "refused to start a process from `{name}`, which was started as a daemonic process; those have no children"
    )]
    Daemonic {
        /// The name of this process.
        name: String,
    },
    /// The running program is not the file that this library is linked into.
    #[error(
        "the running program is {}, but this library is part of {}, so running the program again would not \
         come back here; name an executable that links this library and calls its entries", .program.display(),
        .library.display()
    )]
    ForeignExecutable {
        /// The target of `/proc/self/exe`.
        program: PathBuf,
        /// The file that contains this library's code.
        library: PathBuf,
    },
    /// Several entries have the same name, so the child cannot know which one is meant.
    #[error("{n} entries are registered as `{name}`; give each its own name")]
    DuplicateEntry {
        /// The name.
        name: &'static str,
        /// How many entries have it.
        n: usize,
    },
    /// More descriptors than one message can carry.
    #[error(
        "{n_fds} descriptors cannot be handed over, the limit is {limit}; pass one that leads to the others"
    )]
    TooManyDescriptors {
        /// How many were given.
        n_fds: usize,
        /// How many one message can carry.
        limit: usize,
    },
    /// A payload, a name or an entry's name over its limit.
    #[error("the start message for the child cannot be sent: {0}; put large data into shared memory")]
    Message(ProtocolError),
    /// The function that makes the payload failed.
    #[error("the payload for the child cannot be made: {0}")]
    Payload(Box<dyn std::error::Error + Send + Sync>),
    /// The program could not be executed.
    #[error("cannot execute {}: {error}", .executable.display())]
    Execute {
        /// The program.
        executable: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
    /// An environment cannot hold this variable, or a program cannot look it up.
    #[error(
        "the child cannot have the variable {name:?}: a name must not be empty and has no `=` in it, and neither a name nor a \
         value has a zero byte"
    )]
    Variable {
        /// Its name.
        name: OsString,
    },
    /// The working directory cannot be entered.
    #[error("the child cannot have {} as its working directory: {error}", .path.display())]
    CurrentDir {
        /// The directory.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
    /// Another program was named for a method that can only start this one.
    #[error(
        "{method} starts the running program and cannot start {}; use spawn for it", .executable.display()
    )]
    OtherProgram {
        /// The program that was named.
        executable: PathBuf,
        /// The method.
        method: StartMethod,
    },
    /// This process cannot be forked.
    #[error("this process cannot be forked: {0}")]
    Fork(ForkError),
    /// A library of this process reports that the process must not be forked.
    #[error("this process cannot be forked: {reason}; use another start method")]
    Hazard {
        /// The library's reason.
        reason: String,
    },
    /// The fork server could not start the child.
    #[error(transparent)]
    ForkServer(#[from] ForkServerError),
    /// A system call failed.
    #[error(transparent)]
    Os(#[from] tensorferry_os::Error),
}

tensorferry_os::debug_as_display!(StartError);

impl From<ProtocolError> for StartError {
    fn from(error: ProtocolError) -> Self {
        Self::Message(error)
    }
}

impl From<ForkError> for StartError {
    fn from(error: ForkError) -> Self {
        Self::Fork(error)
    }
}

/// Why a fork server did not carry out a request.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForkServerError {
    /// It ended before it had answered the request. The next start begins a new one.
    #[error("the fork server (process {pid}) has not started the child: it {how}")]
    Died {
        /// Its process ID.
        pid: u32,
        /// How it ended, with its report if a preload failed.
        how: String,
    },
    /// It could not fork, or could not set the child's nice value or processors.
    #[error("the fork server (process {pid}) has not started the child: {reason}")]
    Refused {
        /// Its process ID.
        pid: u32,
        /// The server's reason.
        reason: String,
    },
    /// It runs already, so nothing can be preloaded into it.
    #[error("the fork server (process {pid}) runs already; preload before the first start")]
    Running {
        /// Its process ID.
        pid: u32,
    },
}

tensorferry_os::debug_as_display!(ForkServerError);

/// A message of the start-up protocol that cannot be read, or a step of the protocol that failed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The variable is set, but standard input is not a socket.
    #[error(
        "{VARIABLE} is set, but standard input is not the socket of a parent; this process was not started by \
         tensorferry, unset {VARIABLE} to run it by itself"
    )]
    NoSocket,
    /// The variable is set, but the socket is empty.
    #[error(
        "{VARIABLE} is set, but the socket on standard input holds no greeting from a parent; unset {VARIABLE} \
         to run this program by itself"
    )]
    NoGreeting,
    /// The stream ended inside a frame.
    #[error("the stream ended after {got_bytes} of {wanted_bytes} bytes")]
    Ended {
        /// The bytes received.
        got_bytes: usize,
        /// The bytes announced.
        wanted_bytes: usize,
    },
    /// The first frame begins with the wrong magic number.
    #[error("the first frame begins with {found:#010x}, expected {expected:#010x}")]
    WrongMagic {
        /// The number found.
        found: u32,
        /// The number expected.
        expected: u32,
    },
    /// Parent and child use different protocol versions, because they are different programs.
    #[error("the parent speaks version {found} of the start-up protocol, this program speaks {expected}")]
    WrongVersion {
        /// The parent's version.
        found: u16,
        /// This program's version.
        expected: u16,
    },
    /// The socket and the environment variable belong to different starts.
    #[error("the greeting on standard input is for another process ({VARIABLE} differs)")]
    WrongNonce,
    /// A frame's length is over the limit.
    #[error("a frame of {len_bytes} bytes is over the limit of {limit_bytes}")]
    FrameTooLong {
        /// The announced length.
        len_bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// A payload's length is over the limit.
    #[error("a payload of {len_bytes} bytes is over the limit of {limit_bytes}")]
    PayloadTooLong {
        /// The announced length.
        len_bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// The bytes of a frame cannot be encoded or decoded.
    #[error("a {what} of {len_bytes} bytes cannot be read: {error}")]
    Malformed {
        /// The kind of frame.
        what: &'static str,
        /// Its length; 0 where it could not be encoded.
        len_bytes: usize,
        /// What is wrong with it.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A frame has more bytes than its content.
    #[error("a {what} has {left_bytes} bytes too many")]
    Trailing {
        /// The kind of frame.
        what: &'static str,
        /// How many more.
        left_bytes: usize,
    },
    /// Not all descriptors arrived.
    #[error("{got} of {sent} descriptors arrived")]
    Descriptors {
        /// How many were announced.
        sent: u32,
        /// How many arrived.
        got: usize,
    },
    /// The parent died while this process was starting.
    #[error("the parent (process {pid}) is gone")]
    Orphan {
        /// Its process ID.
        pid: u32,
    },
    /// This program has no entry with this name.
    #[error("no entry is registered as `{name}` in this program; it has {}", crate::entry::listed(.known))]
    UnknownEntry {
        /// The requested name.
        name: String,
        /// The names of this program's entries.
        known: Vec<&'static str>,
    },
    /// A system call failed.
    #[error(transparent)]
    Os(#[from] tensorferry_os::Error),
}

tensorferry_os::debug_as_display!(ProtocolError);
