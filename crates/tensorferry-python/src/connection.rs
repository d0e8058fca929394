//! Connections and where they are made, as in `multiprocessing.connection`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tensorferry_listen::{AcceptError, ConnectError, Connecting};
use tensorferry_queue::{AnyConnection, GetError, Receiver, Sender};

use crate::error;
use crate::message::Object;
use crate::queue::{after_put, poll, put, until_closed};
use crate::tasks::Tasks;
use crate::view::{forked, is_forked};
use crate::waiting::{self, Until, wait};
use crate::waker::guarded;

/// One end of a connection between two processes.
#[pyclass(frozen, module = "tensorferry")]
pub(crate) struct Connection {
    /// `None` once it was closed.
    ends: Mutex<Option<Ends>>,
    /// Tasks that wait for it, to be told when it is closed.
    tasks: Tasks,
}

#[derive(Clone)]
struct Ends {
    // Dropped first, as that of a `Connection`.
    receiver: Receiver<Object>,
    sender: Sender<Object>,
}

impl Connection {
    fn over(connection: AnyConnection) -> PyResult<Self> {
        let (sender, receiver) = connection.into_ends().map_err(|error| error::of_open(&error))?;
        Ok(Self { ends: Mutex::new(Some(Ends { receiver, sender })), tasks: Tasks::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Ends>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ends(&self) -> PyResult<Ends> {
        self.lock().clone().ok_or_else(closed)
    }

    /// Waits for `work` in a task, until this end is closed.
    async fn unless_closed<R>(&self, work: impl Future<Output = R>) -> PyResult<R> {
        let is_closed = || self.lock().is_none();
        guarded(self.tasks.until(is_closed, work)).await.ok_or_else(closed)
    }

    /// Receives, looking in between whether this end was closed by another thread.
    fn receive(&self, py: Python<'_>, until: Until) -> PyResult<Py<PyAny>> {
        let outcome = wait(py, until, |slice| {
            let Some(ends) = self.lock().clone() else { return Some(Err(None)) };
            match ends.receiver.get_timeout(slice) {
                Err(GetError::Empty) => None,
                outcome => Some(outcome.map_err(Some)),
            }
        })?;
        match outcome {
            Some(Ok(Object(object))) => Ok(object),
            Some(Err(Some(error))) => Err(error::of_get(py, &error)),
            Some(Err(None)) => Err(closed()),
            None => Err(error::of_get(py, &GetError::Empty)),
        }
    }
}

#[pymethods]
impl Connection {
    /// Sends a value; waits while there is no room. Raises `Closed` or `PeerDied` when the other end is
    /// gone, and `TypeError` when the value cannot be sent.
    #[pyo3(signature = (value, timeout = None))]
    fn send(&self, py: Python<'_>, value: Py<PyAny>, timeout: Option<f64>) -> PyResult<()> {
        put(py, &self.ends()?.sender, value, Until::after(timeout)?)
    }

    /// Receives a value. Raises `Closed` (an `EOFError`) when the other end is gone and there is nothing
    /// left, `PeerDied` when it was killed, and `queue.Empty` when nothing came in time.
    #[pyo3(signature = (timeout = None))]
    fn recv(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        self.receive(py, Until::after(timeout)?)
    }

    /// As `send`, for a task of asyncio: waits for room without a thread.
    async fn send_async(&self, value: Py<PyAny>) -> PyResult<()> {
        let Ends { sender, .. } = self.ends()?;
        let outcome = self.unless_closed(sender.put_async(Object(value))).await?;
        Python::attach(|py| after_put(py, outcome))
    }

    /// As `recv`, for a task of asyncio: waits without a thread. A task that is cancelled has taken nothing.
    async fn recv_async(&self) -> PyResult<Py<PyAny>> {
        let Ends { receiver, .. } = self.ends()?;
        let outcome = self.unless_closed(receiver.get_async()).await?;
        Python::attach(|py| outcome.map(|Object(object)| object).map_err(|error| error::of_get(py, &error)))
    }

    /// Whether a value is there, or the other end is gone; waits for at most `timeout` seconds, or for ever.
    #[pyo3(signature = (timeout = 0.0))]
    fn poll(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let found = wait(py, Until::after(timeout)?, |slice| {
            // Not while they are locked: other threads use them, and wait with the interpreter's lock.
            let Some(ends) = self.lock().clone() else { return Some(Err(closed())) };
            poll(&ends.receiver, slice).then_some(Ok(()))
        })?;
        Ok(found.transpose()?.is_some())
    }

    /// Lets go of this end. The other side is told, at once or when a call of another thread has noticed.
    fn close(&self) {
        *self.lock() = None;
        self.tasks.wake();
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Values until the other side has closed its end. Raises `PeerDied` if it was killed.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        until_closed(py, self.receive(py, Until::after(None)?))
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        self.close();
    }
}

/// Connects to a listener: a path, or a name after `@`. Raises `ConnectionError`, or `TimeoutError` when it
/// has not accepted in time. With `wait`, one that is not there yet is waited for.
#[pyfunction]
#[pyo3(signature = (address, timeout = None, wait = false))]
pub(crate) fn connect(
    py: Python<'_>,
    address: PathBuf,
    timeout: Option<f64>,
    wait: bool,
) -> PyResult<Connection> {
    refuse_fork()?;
    let connecting = Connecting::to(address);
    let mut connecting = if wait { connecting.when_there() } else { connecting };
    // Why the last attempt did not come to an end.
    let mut not_yet = ConnectError::TimedOut;
    let outcome = waiting::wait(py, Until::after(timeout)?, |slice| match connecting.try_any(slice) {
        Err(error) if error.is_timeout() => {
            not_yet = error;
            None
        }
        outcome => Some(outcome),
    })?;
    let connected = outcome.unwrap_or(Err(not_yet));
    Connection::over(connected.map_err(|error| error::of_connect(&error))?)
}

/// A process that was forked from a member has a default domain that it cannot use.
pub(crate) fn refuse_fork() -> PyResult<()> {
    if is_forked() { Err(forked()) } else { Ok(()) }
}

fn closed() -> PyErr {
    PyValueError::new_err("the connection is closed")
}

/// An address at which processes connect: a path, or a name after `@`.
#[pyclass(frozen, module = "tensorferry")]
pub(crate) struct Listener {
    /// `None` once it was closed.
    listener: Mutex<Option<Arc<tensorferry_listen::Listener>>>,
}

impl Listener {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<tensorferry_listen::Listener>>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Listener {
    #[new]
    fn new(py: Python<'_>, address: PathBuf) -> PyResult<Self> {
        refuse_fork()?;
        let bound = py.detach(|| tensorferry_listen::Listener::bind(address));
        let listener = bound.map_err(|error| error::of_listen(&error))?;
        Ok(Self { listener: Mutex::new(Some(Arc::new(listener))) })
    }

    /// Waits for a process that connects. Each direction has room for `maxsize` values. Raises
    /// `TimeoutError` when none came in time, and `OSError` when one was refused; then the call can be made
    /// again.
    #[pyo3(signature = (maxsize = 16, timeout = None))]
    fn accept(&self, py: Python<'_>, maxsize: usize, timeout: Option<f64>) -> PyResult<Connection> {
        let outcome = wait(py, Until::after(timeout)?, |slice| {
            // Not while it is locked: another thread may close it.
            let Some(listener) = self.lock().clone() else { return Some(None) };
            match listener.accept_any(maxsize, Some(slice)) {
                Err(AcceptError::TimedOut) => None,
                outcome => Some(Some(outcome)),
            }
        })?;
        match outcome.unwrap_or(Some(Err(AcceptError::TimedOut))) {
            Some(Ok(connection)) => Connection::over(connection),
            Some(Err(error)) => Err(error::of_accept(&error)),
            None => Err(PyValueError::new_err("the listener is closed")),
        }
    }

    /// Listens no more, at once or when a call of another thread has noticed.
    fn close(&self) {
        *self.lock() = None;
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        self.close();
    }
}
