//! Values that one other process takes by a token.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tensorferry_listen::{ConnectError, Connecting, ParseTokenError, Token, offer_any};

use crate::connection::refuse_fork;
use crate::error;
use crate::message::Object;
use crate::publication::published;
use crate::waiting::{self, Until};

/// Offers a value to one other process of this user, whichever takes it first. Returns a text, the token by
/// which that one takes it. The value is offered until then, or until this process ends. Raises `TypeError`
/// when it cannot be sent.
#[pyfunction]
pub(crate) fn offer(py: Python<'_>, value: Py<PyAny>) -> PyResult<String> {
    left(py, value).map(|token| token.to_string())
}

/// Leaves a value to whoever comes with the token.
pub(crate) fn left(py: Python<'_>, value: Py<PyAny>) -> PyResult<Token> {
    refuse_fork()?;
    let offered = published(py, py.detach(|| offer_any(&Object(value))))?;
    Ok(py.detach(|| offered.leave()))
}

/// Takes the value that is offered by this token. Raises `ConnectionError` when it was taken before, or is
/// offered no more (`ConnectionRefusedError` when nobody can be asked), and `TimeoutError`.
#[pyfunction]
#[pyo3(signature = (token, timeout = None))]
pub(crate) fn take(py: Python<'_>, token: &str, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
    refuse_fork()?;
    let token: Token =
        token.parse().map_err(|error: ParseTokenError| PyValueError::new_err(error.to_string()))?;
    let mut connecting = Connecting::to_take(token);
    let outcome =
        waiting::wait(py, Until::after(timeout)?, |slice| match connecting.try_take_any(token, slice) {
            Err(error) if error.is_timeout() => None,
            outcome => Some(outcome),
        })?;
    let outcome = outcome.unwrap_or(Err(ConnectError::TimedOut));
    let Object(value) = outcome.map_err(|error| error::of_connect(&error))?;
    Ok(value)
}
