//! What Python's `multiprocessing` needs for tensors and queues to travel where it pickles: arguments of
//! processes, its queues and pipes, tasks of pools and what they return.
//!
//! Such a pickle has a token (`offer`), by which whoever reads it takes the value. Only the pickler of
//! `multiprocessing` makes one: other pickles are kept, or read more than once.
//!
//! A process that it starts is told how to become a member of its parent's domain, and becomes one when it
//! first needs a domain. So what it makes lies where its parent finds it, also when no argument has brought
//! it there.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyException, PyImportError, PyRuntimeWarning, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict as _, PyType};
use tensorferry_listen::{Token, announce_end, invite, is_ending, join_timeout};
use tensorferry_storage::Heap;

use crate::cuda::CudaTensor;
use crate::lost::Lost;
use crate::offer::{left, take};
use crate::queue::Queue;
use crate::starting;
use crate::tensor::{SharedTensor, Tensor, TensorMut};
use crate::view::is_forked;

/// Under which name a process has a [`Parent`] in the configuration that its children are given a copy of.
const KEY: &str = "tensorferry";
/// How long a process waits for its parent to let it in. A parent that is not stopped does so at once.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a process that ends waits for what it has pickled to be received.
const LAST_WAIT: Duration = Duration::from_secs(10);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(2);
/// After the threads of its queues have written everything, which end with -5.
const LAST: i32 = -100;
/// Before it waits for its children, which comes before what has a priority below 0.
const FIRST: i32 = 1;

/// By what this process can join its parent's domain, or why it cannot.
static PARENT: Mutex<Option<Result<Token, String>>> = Mutex::new(None);

fn parent() -> MutexGuard<'static, Option<Result<Token, String>>> {
    PARENT.lock().unwrap_or_else(PoisonError::into_inner)
}

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
    module.add_function(wrap_pyfunction!(received, module)?)?;
    let pickler = reduction.getattr("ForkingPickler")?;
    let reduced_by = |class: Bound<'_, PyType>, reduce: &Bound<'_, PyAny>| {
        pickler.call_method1("register", (class, reduce)).map(drop)
    };
    let reduce = wrap_pyfunction!(reduce, module)?.into_any();
    reduced_by(py.get_type::<Tensor>(), &reduce)?;
    reduced_by(py.get_type::<SharedTensor>(), &reduce)?;
    reduced_by(py.get_type::<CudaTensor>(), &reduce)?;
    reduced_by(py.get_type::<Queue>(), &reduce)?;
    reduced_by(py.get_type::<TensorMut>(), &wrap_pyfunction!(refuse, module)?.into_any())?;
    // A process of `forkserver` first forgets what is to be called at its end, and then calls this. One of
    // `spawn` does neither.
    let at_start = (module, wrap_pyfunction!(after_start, module)?);
    py.import("multiprocessing.util")?.call_method1("register_after_fork", at_start)?;
    let processes = py.import("multiprocessing.process")?;
    if processes.call_method0("parent_process")?.is_none() {
        finalize(wrap_pyfunction!(before_children_are_joined, module)?.as_any(), FIRST)?;
    } else {
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

/// How one is pickled: as a call of [`received`].
#[pyfunction]
fn reduce<'py>(py: Python<'py>, value: Py<PyAny>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
    let token = left(py, value)?;
    starting::note(py, token)?;
    Ok((py.import("tensorferry")?.getattr("_received")?, (token.to_string(),)))
}

/// Called where a pickle is read.
#[pyfunction(name = "_received")]
fn received(py: Python<'_>, token: &str) -> PyResult<Py<PyAny>> {
    match take(py, token, None) {
        // Not what interrupts.
        Err(error) if error.is_instance_of::<PyException>(py) => Ok(Py::new(py, Lost::by(error))?.into_any()),
        taken => taken,
    }
}

#[pyfunction]
fn refuse(_tensor: &TensorMut) -> PyResult<()> {
    Err(PyTypeError::new_err(
        "a TensorMut is one process's alone, and pickles are made at any time: freeze() or share() it, or send it \
         through a queue of tensorferry, which moves it",
    ))
}

/// Stands for the process that starts others. For a process that is being started it is pickled into an
/// invitation, whoever pickles.
#[pyclass(frozen, module = "tensorferry", name = "_Parent")]
struct Parent;

#[pymethods]
impl Parent {
    #[expect(clippy::type_complexity, reason = "the form of what `pickle` wants")]
    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Option<String>, Option<String>))> {
        let popen = py.import("multiprocessing.context")?.call_method0("get_spawning_popen")?;
        // A process that was forked has nothing to share, and its children are told nothing.
        let invited = match popen.is_none() || is_forked() {
            true => (None, None),
            false => match py.detach(invite) {
                Ok(invitation) => (Some(invitation.leave().to_string()), None),
                Err(error) => (None, Some(error.to_string())),
            },
        };
        Ok((py.import("tensorferry")?.getattr("_child_of")?, invited))
    }
}

/// Called in a new process, by what its parent has pickled.
#[pyfunction(name = "_child_of")]
#[pyo3(signature = (token, why_not))]
fn child_of(py: Python<'_>, token: Option<&str>, why_not: Option<String>) -> PyResult<Parent> {
    let invited = match (token.map(str::parse::<Token>), why_not) {
        (Some(token), _) => Some(token.map_err(|error| error.to_string())),
        (None, why_not) => why_not.map(Err),
    };
    let is_late = invited.is_some() && !is_forked() && Heap::current_if_any().is_some();
    *parent() = invited;
    if is_late {
        warn_of_own_memory(
            py,
            "it was made when the main module was imported: make tensors and queues under \
             `if __name__ == \"__main__\":`",
        );
    }
    call_at_end(py)?;
    Ok(Parent)
}

/// Before this process makes a domain: joins that of its parent, if that is there.
fn join_parent() {
    // Nothing is locked while it joins. Another thread that comes meanwhile joins too, as the same member.
    let Some(invited) = parent().clone() else { return };
    let joined = invited.and_then(|token| join_timeout(token, PATIENCE).map_err(|error| error.to_string()));
    if let Err(why_not) = joined {
        // Whoever is told may want memory for what it does about it.
        *parent() = None;
        Python::attach(|py| warn_of_own_memory(py, &why_not));
    }
}

fn warn_of_own_memory(py: Python<'_>, why: &str) {
    warn(
        py,
        &format!(
            "this process does not share the memory of its parent, and tensors of its own are copied when they are \
             sent: {why}"
        ),
    );
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
    finalize(wrap_pyfunction!(at_end, py)?.as_any(), LAST)
}

/// Has `multiprocessing` call it when this process ends: what has the highest priority first.
fn finalize(function: &Bound<'_, PyAny>, priority: i32) -> PyResult<()> {
    let py = function.py();
    let priority = [("exitpriority", priority)].into_py_dict(py)?;
    py.import("multiprocessing.util")?.call_method("Finalize", (py.None(), function), Some(&priority))?;
    Ok(())
}

/// Waits for what this process has offered to be received, because that goes with it, for as long as its
/// parent lives and has not begun to end. A process that `multiprocessing` has not started does not wait: it
/// has waited for its children.
///
/// A process that was started by `forkserver` ends without letting go of anything. So it says that it ends in
/// order, or those at the other ends of its queues would be told that it was killed.
#[pyfunction]
fn at_end(py: Python<'_>) -> PyResult<()> {
    if is_forked() {
        return Ok(());
    }
    let finished = finish_threads(py);
    let n_left = || Heap::current_if_any().map_or(0, Heap::n_unopened_parcels);
    let end = Instant::now() + LAST_WAIT;
    let mut heard = Ok(());
    while n_left() > 0 && Instant::now() < end && heard.is_ok() && somebody_may_come(py) {
        py.detach(|| thread::park_timeout(LOOK));
        heard = py.check_signals();
    }
    // Where the parent is gone or ends, nobody misses it.
    if n_left() > 0 && heard.is_ok() && somebody_may_come(py) {
        warn(
            py,
            &format!(
                "{} tensors or queues that this process has offered, or that were pickled, were not received within \
                 ten seconds of its end, and are lost from now on: get before you join, or use a queue of tensorferry",
                n_left()
            ),
        );
    }
    announce_end();
    finished.and(heard)
}

/// Whether the parent lives, and is not about to end.
fn somebody_may_come(py: Python<'_>) -> bool {
    let invited = parent().clone();
    if invited.and_then(Result::ok).is_some_and(is_ending) {
        return false;
    }
    let parent =
        py.import("multiprocessing.process").and_then(|module| module.call_method0("parent_process"));
    let is_alive = parent.and_then(|parent| parent.call_method0("is_alive")?.is_truthy());
    is_alive.unwrap_or(true)
}

/// Called when the first process of all ends, before it waits for its children. They need not wait for it.
#[pyfunction]
fn before_children_are_joined(py: Python<'_>) -> PyResult<()> {
    let is_child = !py.import("multiprocessing.process")?.call_method0("parent_process")?.is_none();
    if !is_child && !is_forked() {
        announce_end();
    }
    Ok(())
}

/// Waits for the threads that are no daemons, as Python does before a process ends. CPython before 3.13 does
/// so only later, and they may still send.
fn finish_threads(py: Python<'_>) -> PyResult<()> {
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?;
    if !threading.call_method0("current_thread")?.is(&main) {
        return Ok(());
    }
    for thread in threading.call_method0("enumerate")?.try_iter()? {
        let thread = thread?;
        if !thread.is(&main) && !thread.getattr("daemon")?.is_truthy()? {
            // What Python calls next, and then finds done.
            return threading.call_method0("_shutdown").map(drop);
        }
    }
    Ok(())
}
