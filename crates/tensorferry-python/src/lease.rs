//! Values that come back to their queue when the process that works on them dies.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::message::Object;
use crate::queue::{Queue, next_lease};
use crate::view::{forked, is_forked};

/// A value that this process works on: if the process dies before `ack`, another one gets the value.
///
/// `with lease:` acknowledges when the block ends, and gives the value back when the block raises. A lease
/// that nobody refers to any more gives it back too.
#[pyclass(frozen, module = "tensorferry")]
pub(crate) struct Lease {
    /// Nothing of Python is dropped while it is locked: that may run other code, which may want the lock.
    state: Mutex<State>,
    deliveries: u16,
}

enum State {
    Held(tensorferry_queue::Lease<Object>),
    Acknowledged(Object),
    /// The value belongs to whoever gets it next.
    GivenBack,
}

impl State {
    fn value(&self) -> Option<&Py<PyAny>> {
        match self {
            Self::Held(lease) => Some(&lease.0),
            Self::Acknowledged(value) => Some(&value.0),
            Self::GivenBack => None,
        }
    }

    /// Whether this process can end the lease.
    fn check_held(&self) -> PyResult<()> {
        match self {
            _ if is_forked() => Err(forked()),
            Self::Held(_) => Ok(()),
            Self::Acknowledged(_) => Err(PyValueError::new_err("the lease was acknowledged already")),
            Self::GivenBack => Err(given_back()),
        }
    }
}

impl Lease {
    pub(crate) fn over(lease: tensorferry_queue::Lease<Object>) -> Self {
        Self { deliveries: lease.deliveries(), state: Mutex::new(State::Held(lease)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lease out, to end it.
    fn take(&self) -> PyResult<tensorferry_queue::Lease<Object>> {
        let mut state = self.lock();
        state.check_held()?;
        match mem::replace(&mut *state, State::GivenBack) {
            State::Held(lease) => Ok(lease),
            _ => Err(given_back()),
        }
    }
}

fn given_back() -> PyErr {
    PyValueError::new_err("the lease was given back, and the value may be another process's")
}

#[pymethods]
impl Lease {
    /// The value. Raises `ValueError` once it was given back.
    #[getter]
    fn value(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.lock().value().map(|value| value.clone_ref(py)).ok_or_else(given_back)
    }

    /// How often the value has been delivered, this time included. More than 1 means that an earlier holder
    /// died or gave it back.
    #[getter]
    fn deliveries(&self) -> u16 {
        self.deliveries
    }

    /// The work is done, and nobody gets the value again. Returns it. Raises `ValueError` when the lease was
    /// acknowledged or given back before.
    fn ack(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let acknowledged = self.take()?.ack();
        let Object(value) = acknowledged.map_err(|lost| PyRuntimeError::new_err(lost.to_string()))?;
        *self.lock() = State::Acknowledged(Object(value.clone_ref(py)));
        Ok(value)
    }

    /// Gives the value back, for the next one who gets or leases. Raises `ValueError` when the lease was
    /// acknowledged or given back before.
    fn give_back(&self) -> PyResult<()> {
        self.take()?.give_back();
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().lock().check_held()?;
        Ok(slf)
    }

    /// Acknowledges, or gives back after an exception; nothing if the block has done either.
    #[pyo3(signature = (exception, *_more))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exception: &Bound<'_, PyAny>,
        _more: &Bound<'_, pyo3::types::PyTuple>,
    ) -> PyResult<()> {
        if !matches!(*self.lock(), State::Held(_)) {
            return Ok(());
        }
        if exception.is_none() {
            return self.ack(py).map(drop);
        }
        // The exception goes on, and says more than that the lease is not this process's.
        drop(self.take());
        Ok(())
    }

    /// There is nothing to clear: a cycle goes through the value, which is then a list or a dict.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // While somebody has it locked, the lease is in use.
        let Ok(state) = self.state.try_lock() else { return Ok(()) };
        state.value().map_or(Ok(()), |value| visit.call(value))
    }

    fn __repr__(&self) -> String {
        let what = match &*self.lock() {
            State::Held(_) => "",
            State::Acknowledged(_) => ", acknowledged",
            State::GivenBack => ", given back",
        };
        format!("tensorferry.Lease(deliveries={}{what})", self.deliveries)
    }
}

/// The leases of a queue, one after the other.
#[pyclass(frozen, module = "tensorferry")]
pub(crate) struct Leases {
    queue: Py<Queue>,
}

impl Leases {
    pub(crate) fn of(queue: Py<Queue>) -> Self {
        Self { queue }
    }
}

#[pymethods]
impl Leases {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Lease>> {
        next_lease(py, self.queue.get())
    }
}
