//! The error of a system call.

use std::borrow::Cow;
use std::{fmt, io};

use rustix::io::Errno;

#[cfg(not(target_os = "linux"))]
compile_error!("tensorferry needs Linux: memfd_create(2), futex(2), pidfd_open(2)");

/// Implements `Debug` of an error type by its `Display`, because `unwrap` and a `main` that returns the error
/// print `Debug`.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_as_display {
    ($error:ty) => {
        impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }
    };
}

/// A system call that failed: the call and the kernel's answer.
#[derive(thiserror::Error)]
pub struct Error {
    call: Cow<'static, str>,
    error: io::Error,
}

debug_as_display!(Error);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: {}", self.call, self.error)?;
        if self.raw_os_error() == Some(Errno::MFILE.raw_os_error()) {
            let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
            let limit = limit.map_or_else(|| "any number".to_owned(), |limit| limit.to_string());
            write!(f, "; this process may have {limit}: raise RLIMIT_NOFILE (`ulimit -n`)")?;
        }
        Ok(())
    }
}

/// The result of a system call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Makes an error of `call`, which names the system call and its arguments in words.
    pub fn new(call: impl Into<Cow<'static, str>>, error: impl Into<io::Error>) -> Self {
        Self { call: call.into(), error: error.into() }
    }

    /// The call that failed, with its arguments in words.
    #[must_use]
    pub fn call(&self) -> &str {
        &self.call
    }

    /// The kernel's error number, if the error came from the kernel.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        self.error.raw_os_error()
    }

    /// Whether the call named a process that does not exist (ESRCH).
    #[must_use]
    pub fn is_no_such_process(&self) -> bool {
        self.raw_os_error() == Some(Errno::SRCH.raw_os_error())
    }

    /// Whether the call is not implemented (ENOSYS), by the kernel or by a tool between it and this process.
    #[must_use]
    pub fn is_not_implemented(&self) -> bool {
        self.raw_os_error() == Some(Errno::NOSYS.raw_os_error())
    }

    /// Whether the kernel does not know the option of a socket (ENOPROTOOPT).
    #[must_use]
    pub fn is_no_such_option(&self) -> bool {
        self.raw_os_error() == Some(Errno::NOPROTOOPT.raw_os_error())
    }

    /// Whether no descriptor was left, in this process or on the machine (EMFILE, ENFILE).
    #[must_use]
    pub fn is_out_of_descriptors(&self) -> bool {
        [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error())).contains(&self.raw_os_error())
    }

    /// Whether memory was short, in this process, its cgroup or the file system (ENOMEM, ENOSPC).
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        [Errno::NOMEM, Errno::NOSPC].map(|errno| Some(errno.raw_os_error())).contains(&self.raw_os_error())
    }

    /// Whether the call would have had to wait, or the time for it was up (EAGAIN).
    #[must_use]
    pub fn is_would_block(&self) -> bool {
        self.raw_os_error() == Some(Errno::AGAIN.raw_os_error())
    }

    /// Whether nobody listens at the address of a socket (ENOENT, ECONNREFUSED).
    #[must_use]
    pub fn is_nobody_there(&self) -> bool {
        [Errno::NOENT, Errno::CONNREFUSED]
            .map(|errno| Some(errno.raw_os_error()))
            .contains(&self.raw_os_error())
    }

    /// Whether the other end of a socket is gone (EPIPE, ECONNRESET).
    #[must_use]
    pub fn is_closed(&self) -> bool {
        [Errno::PIPE, Errno::CONNRESET].map(|errno| Some(errno.raw_os_error())).contains(&self.raw_os_error())
    }

    /// The kind of the underlying error.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.error.kind()
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}
