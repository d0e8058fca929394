//! This process, as its parent named it.

use std::sync::{Arc, Mutex, PoisonError};

use crate::parent::ParentProcess;

/// The name of a process that this library did not start.
const MAIN_NAME: &str = "MainProcess";

/// The origin of this process, if it is a child.
static ORIGIN: Mutex<Option<Arc<Origin>>> = Mutex::new(None);

/// What a child was told about itself.
#[derive(Debug)]
pub(crate) struct Origin {
    /// The process that this describes. A process forked from it has this memory too, but another process ID.
    pid: u32,
    pub(crate) name: String,
    pub(crate) rank: Option<usize>,
    pub(crate) is_daemon: bool,
    pub(crate) parent: ParentProcess,
}

impl Origin {
    pub(crate) fn new(name: String, rank: Option<usize>, is_daemon: bool, parent: ParentProcess) -> Self {
        Self { pid: std::process::id(), name, rank, is_daemon, parent }
    }
}

/// Makes this process the child that it was started as.
pub(crate) fn become_child(origin: Origin) {
    *ORIGIN.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(origin));
}

/// The origin of this process; `None` if something other than this library started it.
pub(crate) fn origin() -> Option<Arc<Origin>> {
    let origin = ORIGIN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    origin.filter(|origin| origin.pid == std::process::id())
}

/// The calling process, from [`current_process`].
#[derive(Clone, Debug)]
pub struct CurrentProcess {
    origin: Option<Arc<Origin>>,
}

impl CurrentProcess {
    /// The name that its parent gave it; `MainProcess` if this library did not start it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.origin.as_ref().map_or(MAIN_NAME, |origin| &origin.name)
    }

    /// Its process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        std::process::id()
    }

    /// Its index among the processes that were started together. `None` if it was started without one.
    #[must_use]
    pub fn rank(&self) -> Option<usize> {
        self.origin.as_ref().and_then(|origin| origin.rank)
    }

    /// Whether it was started by something other than this library.
    #[must_use]
    pub fn is_main(&self) -> bool {
        self.origin.is_none()
    }

    /// Whether it is forbidden to start children; see [`Start::daemon`](crate::Start::daemon).
    #[must_use]
    pub fn is_daemon(&self) -> bool {
        self.origin.as_ref().is_some_and(|origin| origin.is_daemon)
    }
}

/// The calling process: its name, and whether and how this library started it.
#[must_use]
pub fn current_process() -> CurrentProcess {
    CurrentProcess { origin: origin() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_program_is_a_main_process() {
        let me = current_process();
        assert_eq!((me.name(), me.pid(), me.rank()), ("MainProcess", std::process::id(), None));
        assert!(me.is_main() && !me.is_daemon());
    }
}
