//! What is there instead of something that could not be received.

use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;

/// Names with two underscores that somebody asks for who wants the elements.
const OF_ARRAYS: [&str; 6] = [
    "__array__",
    "__array_interface__",
    "__array_struct__",
    "__cuda_array_interface__",
    "__dlpack__",
    "__dlpack_device__",
];

/// In the place of a tensor or queue that `multiprocessing` has brought, but that is gone. Whatever is done
/// with it raises the error that says why. Where pickles are read nobody could catch that, and a pool would
/// wait for ever.
#[pyclass(frozen, module = "tensorferry")]
pub(crate) struct Lost {
    error: PyErr,
}

impl Lost {
    pub(crate) fn by(error: PyErr) -> Self {
        Self { error }
    }

    fn raise<T>(&self, py: Python<'_>) -> PyResult<T> {
        Err(self.error.clone_ref(py))
    }
}

#[pymethods]
impl Lost {
    fn __getattr__(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        // Others only look whether it is there.
        if name.starts_with("__") && !OF_ARRAYS.contains(&name) {
            return Err(PyAttributeError::new_err(name.to_owned()));
        }
        self.raise(py)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.raise(py)
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<()> {
        self.raise(py)
    }

    fn __repr__(&self) -> String {
        format!("tensorferry.Lost({})", self.error)
    }
}
