//! What Python's `multiprocessing` needs for tensors and queues to travel where it pickles: arguments of
//! processes, its queues and pipes, tasks of pools and what they return.
//!
//! Such a pickle has a token (`offer`), by which whoever reads it takes the value. Only the pickler of
//! `multiprocessing` makes one: other pickles are kept, or read more than once.
//!
//! A process that it starts is told how to become a member of its parent's domain, and becomes one when it
//! first needs a domain. So what it makes lies where its parent finds it, also when no argument has brought
//! it there.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::{PyImportError, PyRuntimeWarning, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict as _, PyType};
use tensorferry_listen::{Token, announce_end, invite, join_timeout};
use tensorferry_storage::Heap;

use crate::cuda::CudaTensor;
use crate::offer::offer;
use crate::queue::Queue;
use crate::tensor::{SharedTensor, Tensor, TensorMut};
use crate::view::is_forked;
use crate::waiting::{self, Until};

/// Under which name a process has a [`Parent`] in the configuration that its children are given a copy of.
const KEY: &str = "tensorferry";
/// How long a process waits for its parent to let it in. A parent that is not stopped does so at once.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a process that ends waits for what it has pickled to be received, in seconds.
const LAST_WAIT_SECONDS: f64 = 10.0;
/// How often it looks.
const LOOK: Duration = Duration::from_millis(2);
/// After the threads of its queues have written everything, which end with -5.
const EXIT_PRIORITY: i32 = -100;

/// By what this process can join its parent's domain.
static PARENT: Mutex<Option<Token>> = Mutex::new(None);

/// Stands for the process that starts others. When they are started it is pickled into an invitation.
#[pyclass(frozen, module = "tensorferry", name = "_Parent")]
struct Parent;

/// Has the pickler of `multiprocessing` know what to do. Does nothing where there is no `multiprocessing`, as
/// in some builds of Python.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let reduction = match py.import("multiprocessing.reduction") {
        Err(error) if error.is_instance_of::<PyImportError>(py) => return Ok(()),
        reduction => reduction?,
    };
    Heap::search_first(join_parent);
    module.add_function(wrap_pyfunction!(child_of, module)?)?;
    let pickler = reduction.getattr("ForkingPickler")?;
    let reduced_by = |class: Bound<'_, PyType>, reduce: Bound<'_, PyAny>| {
        pickler.call_method1("register", (class, reduce)).map(drop)
    };
    let reduce = wrap_pyfunction!(reduce, module)?.into_any();
    for class in [
        py.get_type::<Tensor>(),
        py.get_type::<SharedTensor>(),
        py.get_type::<CudaTensor>(),
        py.get_type::<Queue>(),
    ] {
        reduced_by(class, reduce.clone())?;
    }
    reduced_by(py.get_type::<TensorMut>(), wrap_pyfunction!(refuse, module)?.into_any())?;
    reduced_by(py.get_type::<Parent>(), wrap_pyfunction!(reduce_parent, module)?.into_any())?;
    // A new process of `forkserver` forgets what was to be called at its end, and calls this then.
    let at_start = (module, wrap_pyfunction!(after_start, module)?);
    py.import("multiprocessing.util")?.call_method1("register_after_fork", at_start)?;
    let processes = py.import("multiprocessing.process")?;
    if !processes.call_method0("parent_process")?.is_none() {
        call_at_end(py)?;
    }
    let process = processes.call_method0("current_process")?;
    // Not part of what Python documents, so not relied on: without it, a child is a member once it has
    // received something.
    if let Ok(configuration) = process.getattr("_config") {
        configuration.set_item(KEY, Py::new(py, Parent)?)?;
    }
    Ok(())
}

/// How one is pickled: as a call of `take`.
#[pyfunction]
fn reduce<'py>(py: Python<'py>, value: Py<PyAny>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
    let token = offer(py, value)?;
    Ok((py.import("tensorferry")?.getattr("take")?, (token,)))
}

#[pyfunction]
fn refuse(_tensor: &TensorMut) -> PyResult<()> {
    Err(PyTypeError::new_err(
        "a TensorMut is one process's alone, and pickles are made at any time: freeze() or share() it, or send it \
         through a queue of tensorferry, which moves it",
    ))
}

#[pyfunction]
fn reduce_parent<'py>(py: Python<'py>, _parent: &Parent) -> PyResult<(Bound<'py, PyAny>, (Option<String>,))> {
    // A child that is not invited has a domain of its own.
    let invitation = if is_forked() { None } else { py.detach(|| invite().ok()) };
    let token = invitation.map(|invitation| invitation.leave().to_string());
    Ok((py.import("tensorferry")?.getattr("_child_of")?, (token,)))
}

/// Called in a new process, by what its parent has pickled.
#[pyfunction(name = "_child_of")]
fn child_of(py: Python<'_>, token: Option<&str>) -> PyResult<Parent> {
    *PARENT.lock().unwrap_or_else(PoisonError::into_inner) = token.and_then(|token| token.parse().ok());
    call_at_end(py)?;
    Ok(Parent)
}

/// Before this process makes a domain: joins that of its parent, if that is there.
fn join_parent() {
    let parent = *PARENT.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(error) = parent.and_then(|token| join_timeout(token, PATIENCE).err()) else { return };
    Python::attach(|py| {
        let text = format!(
            "this process has memory of its own, from which tensors are copied when they are sent: it cannot share \
             that of its parent: {error}"
        );
        warn(py, &text);
    });
}

fn warn(py: Python<'_>, text: &str) {
    let warned = py.import("warnings").and_then(|warnings| {
        let kind = py.get_type::<PyRuntimeWarning>();
        warnings.call_method("warn", (text, kind), Some(&[("stacklevel", 2)].into_py_dict(py)?))
    });
    // Where warnings are errors, this is no place for one.
    if let Err(error) = warned {
        error.write_unraisable(py, None);
    }
}

#[pyfunction]
fn after_start(py: Python<'_>, _module: &Bound<'_, PyAny>) -> PyResult<()> {
    call_at_end(py)
}

/// Has [`at_end`] called when this process, which `multiprocessing` has started, ends.
fn call_at_end(py: Python<'_>) -> PyResult<()> {
    let priority = [("exitpriority", EXIT_PRIORITY)].into_py_dict(py)?;
    let last = wrap_pyfunction!(at_end, py)?;
    py.import("multiprocessing.util")?.call_method("Finalize", (py.None(), last), Some(&priority))?;
    Ok(())
}

/// Waits for what this process has pickled to be received, because that goes with it. Its parent need not: it
/// waits for its children, and nobody else is left then.
///
/// A process that was started by `forkserver` ends without letting go of anything. So it says that it ends in
/// order, or those at the other ends of its queues would be told that it was killed.
#[pyfunction]
fn at_end(py: Python<'_>) -> PyResult<()> {
    if is_forked() {
        return Ok(());
    }
    let n_left = || Heap::current_if_any().map_or(0, Heap::n_unopened_parcels);
    let waited = waiting::wait(py, Until::after(Some(LAST_WAIT_SECONDS))?, |slice| {
        if n_left() == 0 {
            return Some(());
        }
        thread::park_timeout(slice.min(LOOK));
        None
    });
    match n_left() {
        0 => {}
        n_left => warn(
            py,
            &format!(
                "{n_left} tensors or queues that this process has pickled were not received by its end, and are lost: \
                 what is put into a queue of tensorferry is not"
            ),
        ),
    }
    announce_end();
    waited.map(drop)
}
