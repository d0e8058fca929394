//! Errors of the library as Python's exceptions.

use pyo3::exceptions::{
    PyConnectionError, PyEOFError, PyMemoryError, PyOSError, PyRuntimeError, PyTimeoutError, PyTypeError,
    PyValueError,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use tensorferry_cuda_ipc::CudaTensorError;
use tensorferry_listen::{AcceptError, ConnectError, ListenError};
use tensorferry_queue::{GetError, JoinError, OpenError, PutErrorKind};
use tensorferry_storage::StorageError;
use tensorferry_tensor::TensorError;

use crate::view::{forked, is_forked};

pyo3::create_exception!(
    tensorferry,
    Closed,
    PyEOFError,
    "The queue is closed and empty, or every process at its other end has let go of it."
);
pyo3::create_exception!(
    tensorferry,
    PeerDied,
    Closed,
    "Every process at the other end is gone, and at least one of them was killed or crashed."
);

/// `queue.Empty` or `queue.Full`, which Python programs know.
fn standard(py: Python<'_>, name: &str, text: String) -> PyErr {
    static EMPTY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static FULL: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let known = if name == "Empty" { &EMPTY } else { &FULL };
    match known.import(py, "queue", name) {
        Ok(class) => PyErr::from_type(class.clone(), text),
        Err(error) => error,
    }
}

/// An error that is none of those that a program expects. In a fork of a member nothing works, for one
/// reason.
fn other(text: String) -> PyErr {
    if is_forked() { forked() } else { PyRuntimeError::new_err(text) }
}

pub(crate) fn of_get(py: Python<'_>, error: &GetError) -> PyErr {
    if is_forked() {
        return forked();
    }
    let text = error.to_string();
    match error {
        GetError::Empty => standard(py, "Empty", text),
        GetError::PeerDied => PeerDied::new_err(text),
        GetError::Closed | GetError::Disconnected => Closed::new_err(text),
        GetError::Decode(_) => PyValueError::new_err(text),
        GetError::NoLeases => PyTypeError::new_err(
            "the queue was made without leases: make it by channel_with_leases, or in Rust by Queue::with_leases",
        ),
        _ => other(text),
    }
}

pub(crate) fn of_join(error: &JoinError) -> PyErr {
    let text = error.to_string();
    match error {
        JoinError::TimedOut { .. } => PyTimeoutError::new_err(text),
        JoinError::PeerDied => PeerDied::new_err(text),
        JoinError::Disconnected => Closed::new_err(text),
        JoinError::Storage(error) => of_storage(error),
        _ => other(text),
    }
}

pub(crate) fn of_put(py: Python<'_>, kind: &PutErrorKind) -> PyErr {
    if is_forked() {
        return forked();
    }
    let text = kind.to_string();
    match kind {
        PutErrorKind::Full => standard(py, "Full", text),
        PutErrorKind::PeerDied => PeerDied::new_err(text),
        PutErrorKind::Closed | PutErrorKind::Disconnected => Closed::new_err(text),
        PutErrorKind::Encode(error) if error.is_out_of_memory() => PyMemoryError::new_err(text),
        PutErrorKind::Encode(_) | PutErrorKind::NotRepeatable => PyTypeError::new_err(text),
        PutErrorKind::TooManyHandles { .. } => PyValueError::new_err(text),
        _ => other(text),
    }
}

pub(crate) fn of_storage(error: &StorageError) -> PyErr {
    let text = error.to_string();
    let is_too_much = error.is_out_of_memory() || matches!(error, StorageError::TooLarge { .. });
    if is_too_much { PyMemoryError::new_err(text) } else { other(text) }
}

pub(crate) fn of_tensor(error: &TensorError) -> PyErr {
    match error {
        TensorError::Storage(error) => of_storage(error),
        _ => PyValueError::new_err(error.to_string()),
    }
}

pub(crate) fn of_cuda(error: &CudaTensorError) -> PyErr {
    match error {
        CudaTensorError::Storage(error) => of_storage(error),
        CudaTensorError::Host(error) => of_tensor(error),
        CudaTensorError::DeviceFull { .. } => PyMemoryError::new_err(error.to_string()),
        CudaTensorError::Layout(_) => PyValueError::new_err(error.to_string()),
        _ => other(error.to_string()),
    }
}

pub(crate) fn of_open(error: &OpenError) -> PyErr {
    match error {
        OpenError::Storage(error) => of_storage(error),
        _ => other(error.to_string()),
    }
}

/// An error of the kernel. With its number Python makes it a FileNotFoundError, a ConnectionRefusedError, a
/// PermissionError.
fn numbered(number: Option<i32>, text: String) -> PyErr {
    match number {
        Some(number) => PyOSError::new_err((number, text)),
        None => PyOSError::new_err(text),
    }
}

pub(crate) fn of_listen(error: &ListenError) -> PyErr {
    match error {
        ListenError::Storage(error) => of_storage(error),
        ListenError::Bind { error: cause, .. } => numbered(cause.raw_os_error(), error.to_string()),
        _ => PyOSError::new_err(error.to_string()),
    }
}

pub(crate) fn of_accept(error: &AcceptError) -> PyErr {
    match error {
        AcceptError::TimedOut => PyTimeoutError::new_err(error.to_string()),
        AcceptError::Storage(error) => of_storage(error),
        _ => PyOSError::new_err(error.to_string()),
    }
}

pub(crate) fn of_connect(error: &ConnectError) -> PyErr {
    match error {
        error if error.is_timeout() => PyTimeoutError::new_err(error.to_string()),
        ConnectError::Storage(error) => of_storage(error),
        ConnectError::Connect { error: cause, .. } => numbered(cause.raw_os_error(), error.to_string()),
        _ => PyConnectionError::new_err(error.to_string()),
    }
}
