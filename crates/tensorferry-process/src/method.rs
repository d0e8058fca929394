//! How a child comes into being.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How a child comes into being.
///
/// | | time to start | what the child has of its parent | when |
/// | --- | --- | --- | --- |
/// | [`Spawn`](Self::Spawn) | that of executing the program | its arguments | always works |
/// | [`Forkserver`](Self::Forkserver) | that of a fork of a small process | its arguments, and what was preloaded | many starts, or costly preparation |
/// | [`Fork`](Self::Fork) | that of a fork of the parent | everything | a parent without threads whose state is to be inherited |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum StartMethod {
    /// This program is executed once more. The child begins with nothing but what it is given, whatever threads, locks and
    /// drivers its parent has.
    #[default]
    Spawn,
    /// A server process, started once by this process, forks on request. It is this program executed once more, with one
    /// thread and without any state but what was preloaded, so that forking it is cheap and safe whatever threads its
    /// client has.
    ///
    /// A child has the environment, the working directory, and the standard output and error of its client at the moment of
    /// the start, as a spawned one has. What else the kernel lets processes inherit (user, limits, umask, nice value,
    /// processors, namespaces) is what this process had when the server was started.
    Forkserver,
    /// This process is forked. The child has a copy of all memory of its parent, as it was at the moment of the start.
    ///
    /// Tensors and queues in statics are the child's as they are the parent's; `TensorMut`, leases and the sole ends of
    /// channels stay with the parent, and the child's copies of them are as if sent away. The child holds what its parent held at
    /// the start until it drops it, or ends. The start takes until the child holds it, so it waits for a child that is stopped.
    ///
    /// A slice that is lent from an exclusive tensor is the same memory in both processes, so a program has to allow forks:
    /// [`allow_fork`](crate::allow_fork).
    ///
    /// A child has every end of a queue that its parent has, also those that only the parent uses, until it ends. So a receiver
    /// in it is not told that the senders are gone as long as another forked child, or itself, has such a copy: close queues
    /// whose end matters, as with pipes and fork(2) everywhere.
    ///
    /// Refused when the process has another thread than the calling one, because what such a thread has locked would stay
    /// locked in the child, or when it uses a GPU. The service threads of this library stand still for it. Random number generators that exist already give the same
    /// numbers in each child.
    Fork,
}

impl StartMethod {
    /// All of them, the default first.
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        [Self::Spawn, Self::Forkserver, Self::Fork].into_iter()
    }

    /// `spawn`, `forkserver` or `fork`, as Python calls them.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spawn => "spawn",
            Self::Forkserver => "forkserver",
            Self::Fork => "fork",
        }
    }
}

impl fmt::Display for StartMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no start method has.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no start method `{name}`; there are spawn, forkserver and fork")]
#[non_exhaustive]
pub struct ParseStartMethodError {
    /// The name.
    pub name: String,
}

tensorferry_os::debug_as_display!(ParseStartMethodError);

impl FromStr for StartMethod {
    type Err = ParseStartMethodError;

    fn from_str(name: &str) -> Result<Self, ParseStartMethodError> {
        let known = Self::all().find(|method| method.name() == name);
        known.ok_or_else(|| ParseStartMethodError { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back_to_its_method() {
        for method in StartMethod::all() {
            assert_eq!(method.to_string().parse(), Ok(method));
            assert_eq!(format!("{method:>12}").len(), 12, "a width is kept");
        }
        assert!("thread".parse::<StartMethod>().unwrap_err().to_string().contains("`thread`"));
    }
}
