//! What was pickled for a process that was being started. If it ends before it has received that, nobody
//! will: its main module could not be imported, say. An end of a queue would be held for ever.
//!
//! Whoever waits looks after it, because whoever waits may wait for just that.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyWeakrefReference;
use tensorferry_domain::PidFd;
use tensorferry_listen::{Token, is_offered, withdraw};

/// A process that is being started, or was started and has not received everything yet.
struct Starting {
    /// The `Popen` of `multiprocessing`, which has a process ID once there is a process.
    popen: Py<PyWeakrefReference>,
    process: Option<PidFd>,
    tokens: Vec<Token>,
}

static STARTING: Mutex<Vec<Starting>> = Mutex::new(Vec::new());
/// How many there are, so that who waits need not look.
static N_STARTING: AtomicUsize = AtomicUsize::new(0);

/// Nothing of Python runs while it is locked.
fn lock() -> MutexGuard<'static, Vec<Starting>> {
    STARTING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes what this token is for, if this thread is pickling for a process that it starts.
pub(crate) fn note(py: Python<'_>, token: Token) -> PyResult<()> {
    settle(py);
    let popen = py.import("multiprocessing.context")?.call_method0("get_spawning_popen")?;
    if popen.is_none() {
        return Ok(());
    }
    let popen = PyWeakrefReference::new(&popen)?;
    let mut all = lock();
    // There is one reference for each object.
    match all.iter_mut().find(|starting| starting.popen.is(&popen)) {
        Some(starting) => starting.tokens.push(token),
        None => all.push(Starting { popen: popen.unbind(), process: None, tokens: vec![token] }),
    }
    N_STARTING.store(all.len(), Ordering::Relaxed);
    Ok(())
}

/// Takes back what was for processes that have ended, and forgets those that have received everything.
pub(crate) fn settle(py: Python<'_>) {
    if N_STARTING.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut looked_at = std::mem::take(&mut *lock());
    looked_at.retain_mut(|starting| starting.goes_on(py));
    let mut all = lock();
    all.append(&mut looked_at);
    N_STARTING.store(all.len(), Ordering::Relaxed);
}

impl Starting {
    fn goes_on(&mut self, py: Python<'_>) -> bool {
        self.tokens.retain(|token| is_offered(*token));
        if self.tokens.is_empty() {
            return false;
        }
        let has_ended = match &self.process {
            Some(process) => process.is_dead().unwrap_or(false),
            None => self.find_process(py),
        };
        if has_ended {
            for token in self.tokens.drain(..) {
                withdraw(token);
            }
        }
        !has_ended
    }

    /// Looks whether there is a process by now. Returns whether there will be none, or none any more.
    fn find_process(&mut self, py: Python<'_>) -> bool {
        // Nobody has it any more: it was never started, or has been joined.
        let Some(popen) = self.popen.bind(py).upgrade() else { return true };
        let Ok(pid) = popen.getattr("pid").and_then(|pid| pid.extract::<u32>()) else { return false };
        match PidFd::open(pid) {
            Ok(process) => self.process = Some(process),
            Err(error) => return error.is_no_such_process(),
        }
        false
    }
}
