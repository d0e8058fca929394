//! Connections and where they are made, as in `multiprocessing.connection`.

use std::ffi::OsString;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tensorferry_listen::AcceptError;
use tensorferry_queue::{AnyConnection, Receiver, Sender};

use crate::error;
use crate::message::Object;
use crate::queue::{get, next, poll, put};
use crate::waiting::{Until, wait};

/// One end of a connection between two processes.
#[pyclass(frozen, module = "tensorferry")]
pub(crate) struct Connection {
    /// `None` once it was closed.
    ends: Mutex<Option<Ends>>,
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
        Ok(Self { ends: Mutex::new(Some(Ends { receiver, sender })) })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Ends>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ends(&self) -> PyResult<Ends> {
        self.lock().clone().ok_or_else(|| PyValueError::new_err("the connection is closed"))
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
        get(py, &self.ends()?.receiver, Until::after(timeout)?)
    }

    /// Whether a value is there, or the other end is gone; waits for at most `timeout` seconds, or for ever.
    #[pyo3(signature = (timeout = 0.0))]
    fn poll(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let receiver = self.ends()?.receiver;
        let found = wait(py, Until::after(timeout)?, |slice| poll(&receiver, slice).then_some(()))?;
        Ok(found.is_some())
    }

    /// Lets go of this end. The other side is told.
    fn close(&self) {
        *self.lock() = None;
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Values until the other side has closed its end. Raises `PeerDied` if it was killed.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        next(py, &self.ends()?.receiver)
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
/// has not accepted in time.
#[pyfunction]
#[pyo3(signature = (address, timeout = None))]
pub(crate) fn connect(py: Python<'_>, address: OsString, timeout: Option<f64>) -> PyResult<Connection> {
    let until = Until::after(timeout)?;
    let connected = py.detach(|| tensorferry_listen::connect_any(&address, until.left()));
    Connection::over(connected.map_err(|error| error::of_connect(&error))?)
}

/// An address at which processes connect: a path, or a name after `@`.
#[pyclass(frozen, module = "tensorferry")]
pub(crate) struct Listener {
    /// `None` once it was closed.
    listener: Mutex<Option<tensorferry_listen::Listener>>,
}

impl Listener {
    fn lock(&self) -> MutexGuard<'_, Option<tensorferry_listen::Listener>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Listener {
    #[new]
    fn new(address: OsString) -> PyResult<Self> {
        let listener =
            tensorferry_listen::Listener::bind(address).map_err(|error| error::of_listen(&error))?;
        Ok(Self { listener: Mutex::new(Some(listener)) })
    }

    /// Waits for a process that connects. Each direction has room for `maxsize` values. Raises
    /// `TimeoutError` when none came in time, and `OSError` when one was refused; then the call can be made
    /// again.
    #[pyo3(signature = (maxsize = 16, timeout = None))]
    fn accept(&self, py: Python<'_>, maxsize: usize, timeout: Option<f64>) -> PyResult<Connection> {
        let outcome = wait(py, Until::after(timeout)?, |slice| {
            let listener = self.lock();
            let Some(listener) = &*listener else { return Some(None) };
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

    /// Listens no more.
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
