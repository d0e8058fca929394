//! How a child process is created.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How a child process is created.
///
/// | | time to start | the child has | use it for |
/// | --- | --- | --- | --- |
/// | [`Spawn`](Self::Spawn) | executing the program | its arguments | any program |
/// | [`Forkserver`](Self::Forkserver) | forking a small process | arguments, preloads | many, costly starts |
/// | [`Fork`](Self::Fork) | forking the parent | the memory of its parent | a parent without other threads |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum StartMethod {
    /// Executes this program again. The child begins with nothing but what it is given, whatever threads,
    /// locks and drivers its parent has.
    ///
    /// Its affinity (sched_setaffinity(2)) is that of the thread that starts it. The main thread starts its
    /// children itself, and they inherit what processes inherit. For all other threads, one thread of this
    /// library starts them. What else Linux keeps for each thread (signal mask, nice value, scheduling
    /// policy, I/O priority, memory policy, capabilities, seccomp filters, namespaces) they have as it was in
    /// the first of these threads when it started its first child. SIGTERM and SIGINT are unblocked in every
    /// child.
    #[default]
    Spawn,
    /// A server process, which this process starts once, forks on request. The server is this program
    /// executed again, with one thread and no state except the preloads. So forking it is cheap, and safe
    /// whatever threads its client has.
    ///
    /// A child has the client's environment, working directory, standard output and standard error as of the
    /// start, like a spawned one. Everything else that processes inherit (user, limits, umask, nice value,
    /// processors, namespaces) is as it was in the client when the server was started.
    Forkserver,
    /// Forks this process. The child has a copy of all memory of its parent, as of the start.
    ///
    /// The child can use tensors and queues in statics, as its parent can. `TensorMut`, leases and the sole
    /// ends of channels stay with the parent; the child's copies of them behave as if they had been sent
    /// away. Until it drops them or ends, the child holds the shared memory that its parent held at the
    /// start. The start waits until the child holds it. So it waits for a child that is stopped.
    ///
    /// A slice lent by an exclusive tensor refers to the same memory in both processes. So a program has to
    /// allow forks: [`allow_fork`](crate::allow_fork).
    ///
    /// A child has every end of a queue that its parent has, until the child ends. This includes ends that
    /// only the parent uses. A receiver in a child does not learn that the senders are gone as long as a
    /// forked child, itself included, has such a copy. Close queues whose end matters, as with pipes and
    /// fork(2).
    ///
    /// What the calling thread has locked, the output with `stdout().lock()` say, stays locked in the child
    /// for its other threads: start without locks.
    ///
    /// The start fails if the process has a thread other than the calling one, because the locks of that
    /// thread would stay locked in the child. It also fails if the process uses a GPU. The service threads of
    /// this library are parked for the fork. Existing random number generators produce the same numbers in
    /// each child.
    Fork,
}

impl StartMethod {
    /// All start methods, the default first.
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        [Self::Spawn, Self::Forkserver, Self::Fork].into_iter()
    }

    /// `spawn`, `forkserver` or `fork`, as in Python.
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

/// The error for a name that no start method has.
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
