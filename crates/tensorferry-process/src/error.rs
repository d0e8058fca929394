//! What can go wrong between a parent and its children.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use tensorferry_os::fork::ForkError;

use crate::StartMethod;
use crate::entry::VARIABLE;

/// Why a child could not be started. No process is left behind in any of these cases.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// This process was itself started as a child, but ran its `main` instead of its entry.
    #[error(
        "refused to start a process from a process that was started as a child but never entered as one \
         ({VARIABLE} is still set); call `init()` as the first line of `main`, or unset {VARIABLE}"
    )]
    NeverEntered,
    /// Nobody has called [`allow_fork`](crate::allow_fork).
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
        /// What this process is called.
        name: String,
    },
    /// The running program is not the one that this library is linked into.
    #[error(
        "the running program is {}, but this library is part of {}, so running the program again would not \
         come back here; name an executable that links this library and calls its entries", .program.display(),
        .library.display()
    )]
    ForeignExecutable {
        /// What `/proc/self/exe` leads to.
        program: PathBuf,
        /// The file that holds this library's code.
        library: PathBuf,
    },
    /// Two entries are registered under one name, so the child could not know which one is meant.
    #[error("{n} entries are registered as `{name}`; give each its own name")]
    DuplicateEntry {
        /// The name.
        name: &'static str,
        /// How many have it.
        n: usize,
    },
    /// More descriptors than one message carries.
    #[error(
        "{n_fds} descriptors cannot be handed over, the limit is {limit}; pass one that leads to the others"
    )]
    TooManyDescriptors {
        /// How many were given.
        n_fds: usize,
        /// How many go.
        limit: usize,
    },
    /// A payload, a name or an entry's name over its limit.
    #[error("what the child is to be told cannot be sent: {0}; put data into shared memory")]
    Message(ProtocolError),
    /// What was to make the payload has failed.
    #[error("the payload for the child cannot be made: {0}")]
    Payload(Box<dyn std::error::Error + Send + Sync>),
    /// The program could not be executed.
    #[error("cannot execute {}: {error}", .executable.display())]
    Execute {
        /// What was to be executed.
        executable: PathBuf,
        /// The kernel's answer.
        error: io::Error,
    },
    /// No environment can hold this variable, or be asked for it.
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
        /// The folder.
        path: PathBuf,
        /// The kernel's answer.
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
    /// A library of this process says that it must not be forked.
    #[error("this process cannot be forked: {reason}; use another start method")]
    Hazard {
        /// What the library says.
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

/// Why a fork server did not do what it was asked for.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForkServerError {
    /// It ended, with the start unanswered. The next start begins a new one.
    #[error("the fork server (process {pid}) has not started the child: it {how}")]
    Died {
        /// Its process number.
        pid: u32,
        /// How it ended, with its report where a preload failed.
        how: String,
    },
    /// It could not fork, or the child could not be given its nice value or processors.
    #[error("the fork server (process {pid}) has not started the child: {reason}")]
    Refused {
        /// Its process number.
        pid: u32,
        /// Why, in the server's words.
        reason: String,
    },
    /// It runs already, so that nothing can be preloaded into it.
    #[error("the fork server (process {pid}) runs already; preload before the first start")]
    Running {
        /// Its process number.
        pid: u32,
    },
}

tensorferry_os::debug_as_display!(ForkServerError);

/// Bytes on the control socket that cannot be understood.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The variable is set, but standard input is no socket.
    #[error(
        "{VARIABLE} is set, but standard input is not the socket of a parent; this process was not started by \
         tensorferry, unset {VARIABLE} to run it by itself"
    )]
    NoSocket,
    /// The variable is set, but nobody has written to the socket.
    #[error(
        "{VARIABLE} is set, but the socket on standard input holds no greeting from a parent; unset {VARIABLE} \
         to run this program by itself"
    )]
    NoGreeting,
    /// The stream ended inside a frame.
    #[error("the stream ended after {got_bytes} of {wanted_bytes} bytes")]
    Ended {
        /// What came.
        got_bytes: usize,
        /// What was announced.
        wanted_bytes: usize,
    },
    /// The first frame does not begin like ours.
    #[error("the first frame begins with {found:#010x}, expected {expected:#010x}")]
    WrongMagic {
        /// What it begins with.
        found: u32,
        /// What it should begin with.
        expected: u32,
    },
    /// Parent and child speak different versions, because they are different programs.
    #[error("the parent speaks version {found} of the start-up protocol, this program speaks {expected}")]
    WrongVersion {
        /// The parent's.
        found: u16,
        /// Ours.
        expected: u16,
    },
    /// Socket and variable do not belong together.
    #[error("the greeting on standard input is for another process ({VARIABLE} differs)")]
    WrongNonce,
    /// A length over the limit.
    #[error("a frame of {len_bytes} bytes is over the limit of {limit_bytes}")]
    FrameTooLong {
        /// The announced length.
        len_bytes: usize,
        /// The longest one.
        limit_bytes: usize,
    },
    /// A payload over the limit.
    #[error("a payload of {len_bytes} bytes is over the limit of {limit_bytes}")]
    PayloadTooLong {
        /// The announced length.
        len_bytes: usize,
        /// The longest one.
        limit_bytes: usize,
    },
    /// A frame's bytes are not what they should be.
    #[error("a {what} of {len_bytes} bytes cannot be read: {error}")]
    Malformed {
        /// Which kind of frame.
        what: &'static str,
        /// Its length.
        len_bytes: usize,
        /// What is wrong with it.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A frame has more bytes than its content.
    #[error("a {what} has {left_bytes} bytes too many")]
    Trailing {
        /// Which kind of frame.
        what: &'static str,
        /// How many.
        left_bytes: usize,
    },
    /// Not all descriptors came.
    #[error("{got} of {sent} descriptors arrived")]
    Descriptors {
        /// Announced.
        sent: u32,
        /// Arrived.
        got: usize,
    },
    /// The parent died while this process was starting.
    #[error("the parent (process {pid}) is gone")]
    Orphan {
        /// Its process number.
        pid: u32,
    },
    /// The thread that ends this process with its parent cannot be started.
    #[error("the thread that watches the parent cannot be started: {0}")]
    Guard(io::Error),
    /// This program has no such entry.
    #[error("no entry is registered as `{name}` in this program; it has {}", crate::entry::listed(.known))]
    UnknownEntry {
        /// What the parent asked for.
        name: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// A system call failed.
    #[error(transparent)]
    Os(#[from] tensorferry_os::Error),
}

tensorferry_os::debug_as_display!(ProtocolError);
