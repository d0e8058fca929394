//! Values that other programs find by name, as with `multiprocessing.shared_memory`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use tensorferry_listen::{ConnectError, Connecting, PublishError, publish_any};
use tensorferry_queue::PutErrorKind;
use tensorferry_reduce::EncodeError;

use crate::connection::refuse_fork;
use crate::error;
use crate::message::{self, Object};
use crate::waiting::{self, Until};

type Inner = tensorferry_listen::Publication<Object>;

/// A value that is published at an address, until this is closed or the process ends.
#[pyclass(frozen, module = "tensorferry")]
pub(crate) struct Publication {
    /// `None` once it was closed. Not locked while a value is written, for which others may have to run.
    inner: Mutex<Option<Arc<Inner>>>,
}

impl Publication {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Inner>>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn inner(&self) -> PyResult<Arc<Inner>> {
        self.lock().clone().ok_or_else(|| PyValueError::new_err("the publication is closed"))
    }
}

#[pymethods]
impl Publication {
    /// Publishes another value in the place of this one. Whoever has attached before keeps what it has.
    fn replace(&self, py: Python<'_>, value: Py<PyAny>) -> PyResult<()> {
        let inner = self.inner()?;
        let outcome = py.detach(move || inner.replace(&Object(value)));
        encoded(py, outcome)
    }

    /// How often a process has attached so far.
    #[getter]
    fn n_attached(&self) -> PyResult<u64> {
        Ok(self.inner()?.n_attached())
    }

    /// How often somebody was refused so far.
    #[getter]
    fn n_refused(&self) -> PyResult<u64> {
        Ok(self.inner()?.n_refused())
    }

    /// Why nobody was let in the last time that this happened.
    #[getter]
    fn last_refusal(&self) -> PyResult<Option<String>> {
        Ok(self.inner()?.last_refusal().map(|error| error.to_string()))
    }

    /// Ends the publication: the address is free, and whoever has attached keeps what it has.
    fn close(&self, py: Python<'_>) {
        let inner = self.lock().take();
        py.detach(|| drop(inner));
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        self.close(py);
    }
}

/// Publishes a value at an address, a path or a name after `@`, where any program of this user can `attach`
/// to it. Raises `OSError` when the address is in use, and `TypeError` when the value cannot be sent to
/// several.
#[pyfunction]
pub(crate) fn publish(py: Python<'_>, address: PathBuf, value: Py<PyAny>) -> PyResult<Publication> {
    refuse_fork()?;
    let inner = published(py, py.detach(|| publish_any(address, &Object(value))))?;
    Ok(Publication { inner: Mutex::new(Some(Arc::new(inner))) })
}

/// What publishing or offering a value has come to.
pub(crate) fn published<T>(py: Python<'_>, outcome: Result<T, PublishError>) -> PyResult<T> {
    match outcome {
        Err(PublishError::Encode(error)) => encoded(py, Err(error)),
        Err(PublishError::Listen(error)) => Err(error::of_listen(&error)),
        outcome => outcome.map_err(|error| PyOSError::new_err(error.to_string())),
    }
}

/// What writing a value has come to. What user code has raised meanwhile says more than the error.
fn encoded<T>(py: Python<'_>, outcome: Result<T, EncodeError>) -> PyResult<T> {
    let raised = message::take_raised();
    outcome.map_err(|error| {
        let error = error::of_put(py, &PutErrorKind::Encode(error));
        match raised {
            Some(raised) if message::is_passed_on(py, &raised) => raised,
            raised => {
                error.set_cause(py, raised);
                error
            }
        }
    })
}

/// Takes the value that is published at an address. Raises `ConnectionError` (`ConnectionRefusedError` or
/// `FileNotFoundError` when nothing is published there), or `TimeoutError`. With `wait`, one that is not
/// published yet is waited for.
#[pyfunction]
#[pyo3(signature = (address, timeout = None, wait = false))]
pub(crate) fn attach(
    py: Python<'_>,
    address: PathBuf,
    timeout: Option<f64>,
    wait: bool,
) -> PyResult<Py<PyAny>> {
    refuse_fork()?;
    let attaching = Connecting::to(address);
    let mut attaching = if wait { attaching.when_there() } else { attaching };
    // Why the last attempt did not come to an end.
    let mut not_yet = ConnectError::TimedOut;
    let outcome = waiting::wait(py, Until::after(timeout)?, |slice| match attaching.try_attach_any(slice) {
        Err(error) if error.is_timeout() => {
            not_yet = error;
            None
        }
        outcome => Some(outcome),
    })?;
    let Object(value) = outcome.unwrap_or(Err(not_yet)).map_err(|error| error::of_connect(&error))?;
    Ok(value)
}
