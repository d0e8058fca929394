//! Waiting without the interpreter's lock, and with an ear for Ctrl-C.

use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::starting;

/// How long a call waits until it looks for signals. Python runs their handlers in its main thread, between
/// the instructions of its own code.
const SLICE: Duration = Duration::from_millis(50);

/// The end of a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until(Option<Instant>);

impl Until {
    /// Seconds, as Python's time-outs are; `None` waits for ever.
    pub(crate) fn after(timeout: Option<f64>) -> PyResult<Self> {
        let Some(seconds) = timeout else { return Ok(Self(None)) };
        if seconds.is_nan() {
            return Err(PyValueError::new_err("the timeout is no number"));
        }
        // What no duration can hold is for ever.
        let timeout = Duration::try_from_secs_f64(seconds.max(0.0)).ok();
        Ok(Self(timeout.and_then(|timeout| Instant::now().checked_add(timeout))))
    }

    /// How long to wait until signals are looked for.
    pub(crate) fn slice(self) -> Duration {
        self.left().map_or(SLICE, |left| left.min(SLICE))
    }

    pub(crate) fn is_over(self) -> bool {
        self.left() == Some(Duration::ZERO)
    }

    /// What is left of it; `None` is for ever.
    pub(crate) fn left(self) -> Option<Duration> {
        self.0.map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// As `queue.Queue` has it: without `block` there is no waiting.
    pub(crate) fn of_queue(block: bool, timeout: Option<f64>) -> PyResult<Self> {
        match timeout {
            _ if !block => Ok(Self(Some(Instant::now()))),
            Some(seconds) if seconds < 0.0 => {
                Err(PyValueError::new_err("'timeout' must be a non-negative number"))
            }
            timeout => Self::after(timeout),
        }
    }
}

/// Calls `attempt` with a time to wait, without the interpreter's lock, until it has an outcome or the time
/// is up: then `None`. Signals are looked for in between.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    until: Until,
    mut attempt: impl FnMut(Duration) -> Option<T> + Send,
) -> PyResult<Option<T>> {
    loop {
        let left = until.left();
        let slice = left.map_or(SLICE, |left| left.min(SLICE));
        if let Some(outcome) = py.detach(|| attempt(slice)) {
            return Ok(Some(outcome));
        }
        if left == Some(slice) {
            return Ok(None);
        }
        look_around(py)?;
    }
}

/// What a call does now and then that waits: hears signals, and looks after processes that are being started.
pub(crate) fn look_around(py: Python<'_>) -> PyResult<()> {
    starting::settle(py);
    py.check_signals()
}
