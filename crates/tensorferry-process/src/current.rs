//! This process, as its parent named it.

use std::sync::{Arc, Mutex, PoisonError};

use crate::parent::ParentProcess;

/// What a process is called that was not started by this library.
const MAIN_NAME: &str = "MainProcess";

/// Where this process comes from, if it is a child.
static ORIGIN: Mutex<Option<Arc<Origin>>> = Mutex::new(None);

/// What a child was told about itself.
#[derive(Debug)]
pub(crate) struct Origin {
    /// Whose story this is: a process that was forked from this one has the memory and another number.
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

/// Where this process comes from; `None` when something else has started it.
pub(crate) fn origin() -> Option<Arc<Origin>> {
    let origin = ORIGIN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    origin.filter(|origin| origin.pid == std::process::id())
}

/// The process that asks, from [`current_process`].
#[derive(Clone, Debug)]
pub struct CurrentProcess {
    origin: Option<Arc<Origin>>,
}

impl CurrentProcess {
    /// What its parent calls it; `MainProcess` when it was not started by this library.
    #[must_use]
    pub fn name(&self) -> &str {
        self.origin.as_ref().map_or(MAIN_NAME, |origin| &origin.name)
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        std::process::id()
    }

    /// Its index among those that were started together; `None` when it was started by itself.
    #[must_use]
    pub fn rank(&self) -> Option<usize> {
        self.origin.as_ref().and_then(|origin| origin.rank)
    }

    /// Whether it was not started by this library.
    #[must_use]
    pub fn is_main(&self) -> bool {
        self.origin.is_none()
    }

    /// Whether it may start no children; see [`Start::daemon`](crate::Start::daemon).
    #[must_use]
    pub fn is_daemon(&self) -> bool {
        self.origin.as_ref().is_some_and(|origin| origin.is_daemon)
    }
}

/// This process: its name, and whether and as what it was started by this library.
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
