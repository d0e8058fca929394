//! The program that a child executes: in most cases this one once more.

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tensorferry_os::child::{self as os, Strings};
use tensorferry_os::pidfd::PidFd;

use crate::error::StartError;
use crate::executable::OWN_EXECUTABLE;
use crate::redirect::Redirect;

/// A program about to be executed, with the arguments of this process.
#[derive(Debug)]
pub(crate) struct Program {
    /// This one by default. A name without a slash is searched for (execvp(3)).
    pub(crate) executable: Option<PathBuf>,
    /// What differs from the environment of this process: a new value, or none. The last one of a name
    /// counts.
    pub(crate) environment: Vec<(OsString, Option<OsString>)>,
    pub(crate) current_dir: Option<PathBuf>,
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: Redirect,
    pub(crate) stderr: Redirect,
}

impl Program {
    /// Executes it in a new process, whose parent is the calling thread.
    pub(crate) fn start(self) -> Result<PidFd, StartError> {
        // Whatever fails in this way has executed nothing. The standard library may do it, or say why not.
        if self.executable.is_none()
            && let Ok(child) = self.execute_own()
        {
            return Ok(child);
        }
        self.spawn()
    }

    /// Executes this program once more.
    fn execute_own(&self) -> tensorferry_os::Result<PidFd> {
        let path = c_string(OsStr::new(OWN_EXECUTABLE))?;
        let directory = self.current_dir.as_deref().map(|dir| c_string(dir.as_os_str())).transpose()?;
        let given = std::env::args_os();
        let mut arguments = Strings::with_capacity(given.len().max(1));
        if given.len() == 0 {
            arguments.push(&[OsStr::new(OWN_EXECUTABLE)])?;
        }
        given.into_iter().try_for_each(|argument| arguments.push(&[&argument]))?;
        let (mut stdout, mut stderr) = (None, None);
        let program = os::Program {
            path: &path,
            arguments,
            environment: self.environment()?,
            directory: directory.as_deref(),
            stdin: self.stdin.as_fd(),
            stdout: self.stdout.as_fd(&mut stdout)?,
            stderr: self.stderr.as_fd(&mut stderr)?,
        };
        program.execute()
    }

    /// The whole environment of the child.
    fn environment(&self) -> tensorferry_os::Result<Strings> {
        let own = std::env::vars_os();
        let mut variables = Strings::with_capacity(own.size_hint().0 + self.environment.len());
        let mut set = |name: &OsStr, value: &OsStr| variables.push(&[name, OsStr::new("="), value]);
        for (name, value) in own {
            if self.environment.iter().all(|(changed, _)| *changed != name) {
                set(&name, &value)?;
            }
        }
        for (i, (name, value)) in self.environment.iter().enumerate() {
            let is_last = self.environment.iter().skip(i + 1).all(|(later, _)| later != name);
            if let (Some(value), true) = (value, is_last) {
                set(name, value)?;
            }
        }
        Ok(variables)
    }

    /// Executes it by the standard library.
    #[expect(clippy::disallowed_methods, reason = "the one place where processes are started")]
    fn spawn(self) -> Result<PidFd, StartError> {
        let executable = self.executable.unwrap_or_else(|| PathBuf::from(OWN_EXECUTABLE));
        let mut command = Command::new(&executable);
        let mut arguments = std::env::args_os();
        if let Some(name) = arguments.next() {
            command.arg0(name);
        }
        command.args(arguments).stdin(Stdio::from(self.stdin));
        for (name, value) in self.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(dir) = self.current_dir {
            command.current_dir(dir);
        }
        if let Some(stdout) = self.stdout.into_stdio() {
            command.stdout(stdout);
        }
        if let Some(stderr) = self.stderr.into_stdio() {
            command.stderr(stderr);
        }
        let mut child = command.spawn().map_err(|error| StartError::Execute { executable, error })?;
        let pidfd = PidFd::open(child.id()).inspect_err(|_| {
            // Without a pidfd the child cannot be watched. It does not matter if it is dead already.
            let _ = child.kill();
            let _ = child.wait();
        });
        Ok(pidfd?)
    }
}

fn c_string(text: &OsStr) -> tensorferry_os::Result<CString> {
    CString::new(text.as_bytes())
        .map_err(|error| tensorferry_os::Error::new("a path with a zero byte", error))
}
