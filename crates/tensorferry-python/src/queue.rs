//! Queues, as a class like Python's `queue.Queue`.

use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use tensorferry_queue::{AnyEnd, GetError, OpenError, PutError, Receiver, Sender};

use crate::connection::refuse_fork;
use crate::error;
use crate::lease::{Lease, Leases};
use crate::message::{self, Object};
use crate::waiting::{Until, look_around, wait};
use crate::waker::guarded;

/// A bounded queue between processes, or one end of a channel. What `put` and `get` do is as in Python's
/// `queue.Queue`; tensors are not copied.
#[pyclass(frozen, module = "tensorferry")]
pub(crate) struct Queue {
    /// To send it on.
    end: AnyEnd,
    sender: Option<Sender<Object>>,
    receiver: Option<Receiver<Object>>,
}

impl Queue {
    pub(crate) fn over(end: AnyEnd) -> Result<Self, String> {
        let opened = || {
            let sender = if end.sends() { Some(end.clone().into_sender()?) } else { None };
            let receiver = if end.receives() { Some(end.clone().into_receiver()?) } else { None };
            Ok::<_, tensorferry_queue::OpenError>((sender, receiver))
        };
        let (sender, receiver) = opened().map_err(|error| error.to_string())?;
        Ok(Self { end, sender, receiver })
    }

    pub(crate) fn end(&self) -> &AnyEnd {
        &self.end
    }

    fn sender(&self) -> PyResult<&Sender<Object>> {
        self.sender.as_ref().ok_or_else(|| PyTypeError::new_err("this end of the queue can only get"))
    }

    fn receiver(&self) -> PyResult<&Receiver<Object>> {
        self.receiver.as_ref().ok_or_else(|| PyTypeError::new_err("this end of the queue can only put"))
    }
}

/// Gets a value, waiting as `until` says.
fn get(py: Python<'_>, receiver: &Receiver<Object>, until: Until) -> PyResult<Py<PyAny>> {
    let outcome = wait(py, until, |slice| match receiver.get_timeout(slice) {
        Err(GetError::Empty) => None,
        outcome => Some(outcome),
    })?;
    match outcome {
        Some(Ok(Object(object))) => Ok(object),
        Some(Err(error)) => Err(error::of_get(py, &error)),
        None => Err(error::of_get(py, &GetError::Empty)),
    }
}

/// Leases a value, waiting as `until` says.
fn get_leased(py: Python<'_>, receiver: &Receiver<Object>, until: Until) -> PyResult<Lease> {
    let outcome = wait(py, until, |slice| match receiver.get_leased_timeout(slice) {
        Err(GetError::Empty) => None,
        outcome => Some(outcome),
    })?;
    outcome.unwrap_or(Err(GetError::Empty)).map(Lease::over).map_err(|error| error::of_get(py, &error))
}

/// Waits until everything that was put is done.
fn join(py: Python<'_>, sender: &Sender<Object>, until: Until) -> PyResult<()> {
    let mut interrupted = Ok(());
    let outcome = py.detach(|| {
        sender.join_while(until.slice(), || {
            interrupted = Python::attach(look_around);
            interrupted.is_ok() && !until.is_over()
        })
    });
    interrupted?;
    outcome.map_err(|error| error::of_join(&error))
}

/// Puts a value, waiting as `until` says.
pub(crate) fn put(py: Python<'_>, sender: &Sender<Object>, object: Py<PyAny>, until: Until) -> PyResult<()> {
    // It is encoded once, and then waits: what it holds is copied once, and is nobody else's meanwhile.
    let mut interrupted = Ok(());
    let outcome = py.detach(|| {
        sender.put_while(Object(object), until.slice(), || {
            interrupted = Python::attach(look_around);
            interrupted.is_ok() && !until.is_over()
        })
    });
    interrupted.and_then(|()| after_put(py, outcome))
}

/// The outcome of a put, whose value was written in this thread just now.
pub(crate) fn after_put(py: Python<'_>, outcome: Result<(), PutError<Object>>) -> PyResult<()> {
    // What user code has raised while the value was looked at says more than the error of the queue.
    let raised = message::take_raised();
    outcome.map_err(|refused| {
        let error = error::of_put(py, &refused.kind);
        match raised {
            Some(raised) if message::is_passed_on(py, &raised) => raised,
            raised => {
                error.set_cause(py, raised);
                error
            }
        }
    })
}

fn unbounded() -> PyErr {
    PyValueError::new_err("every queue is bounded: maxsize is at least 1")
}

fn open(end: Result<AnyEnd, OpenError>) -> PyResult<Queue> {
    let end = end.map_err(|error| error::of_open(&error))?;
    Queue::over(end).map_err(PyRuntimeError::new_err)
}

#[pymethods]
impl Queue {
    /// A queue with room for `maxsize` messages, at least one: there are no unbounded ones.
    #[new]
    #[pyo3(signature = (maxsize = 16))]
    fn new(py: Python<'_>, maxsize: usize) -> PyResult<Self> {
        if maxsize == 0 {
            return Err(unbounded());
        }
        open(py.detach(|| AnyEnd::create(maxsize)).map_err(OpenError::from))
    }

    /// An end of it that only puts. Those who only get learn when all such ends are gone.
    #[pyo3(name = "sender")]
    fn sender_end(&self) -> PyResult<Self> {
        refuse_fork()?;
        open(self.end.sender())
    }

    /// An end of it that only gets. Those who only put learn when all such ends are gone.
    #[pyo3(name = "receiver")]
    fn receiver_end(&self) -> PyResult<Self> {
        refuse_fork()?;
        open(self.end.receiver())
    }

    /// Puts a value. Raises `queue.Full` when there was no room in time, `Closed` or `PeerDied` when nobody
    /// will ever take it, and `TypeError` when it cannot be sent.
    #[pyo3(signature = (item, block = true, timeout = None))]
    fn put(&self, py: Python<'_>, item: Py<PyAny>, block: bool, timeout: Option<f64>) -> PyResult<()> {
        put(py, self.sender()?, item, Until::of_queue(block, timeout)?)
    }

    /// As `put` without waiting.
    fn put_nowait(&self, py: Python<'_>, item: Py<PyAny>) -> PyResult<()> {
        self.put(py, item, false, None)
    }

    /// Gets a value. Raises `queue.Empty` when none came in time, `Closed` or `PeerDied` when none will ever
    /// come.
    #[pyo3(signature = (block = true, timeout = None))]
    fn get(&self, py: Python<'_>, block: bool, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        get(py, self.receiver()?, Until::of_queue(block, timeout)?)
    }

    /// As `get` without waiting.
    fn get_nowait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.get(py, false, None)
    }

    /// Gets a value that comes back to the queue unless its lease is acknowledged, so also when this process
    /// is killed. Raises what `get` raises, `TypeError` when the queue has no leases, and `RuntimeError` when
    /// this process has all of them.
    #[pyo3(signature = (block = true, timeout = None))]
    fn get_leased(&self, py: Python<'_>, block: bool, timeout: Option<f64>) -> PyResult<Lease> {
        get_leased(py, self.receiver()?, Until::of_queue(block, timeout)?)
    }

    /// As `get_leased` without waiting.
    fn get_leased_nowait(&self, py: Python<'_>) -> PyResult<Lease> {
        self.get_leased(py, false, None)
    }

    /// As `put`, for a task of asyncio: waits for room without a thread.
    async fn put_async(&self, item: Py<PyAny>) -> PyResult<()> {
        let outcome = guarded(self.sender()?.put_async(Object(item))).await;
        Python::attach(|py| after_put(py, outcome))
    }

    /// As `get`, for a task of asyncio: waits without a thread. A task that is cancelled has taken nothing.
    async fn get_async(&self) -> PyResult<Py<PyAny>> {
        let outcome = guarded(self.receiver()?.get_async()).await;
        Python::attach(|py| outcome.map(|Object(object)| object).map_err(|error| error::of_get(py, &error)))
    }

    /// As `get_leased`, for a task of asyncio.
    async fn get_leased_async(&self) -> PyResult<Lease> {
        let outcome = guarded(self.receiver()?.get_leased_async()).await;
        Python::attach(|py| outcome.map(Lease::over).map_err(|error| error::of_get(py, &error)))
    }

    /// Leases until the queue is closed and nothing can come back to it, or all who put have let go of it.
    fn leases(slf: Bound<'_, Self>) -> PyResult<Leases> {
        slf.get().receiver()?;
        Ok(Leases::of(slf.unbind()))
    }

    /// Waits until everything that was put before this call is done: got, or, where it was leased,
    /// acknowledged. Raises `TimeoutError` when something was left, and `Closed` or `PeerDied` when nobody is
    /// left to do it.
    #[pyo3(signature = (timeout = None))]
    fn join(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        join(py, self.sender()?, Until::after(timeout)?)
    }

    /// How many values wait, at this moment.
    fn qsize(&self) -> usize {
        let sender = self.sender.as_ref().map(Sender::len);
        sender.or_else(|| self.receiver.as_ref().map(Receiver::len)).unwrap_or(0)
    }

    /// Whether none waits, at this moment.
    fn empty(&self) -> bool {
        self.qsize() == 0
    }

    /// Whether there is no room, at this moment.
    fn full(&self) -> bool {
        self.qsize() >= self.maxsize()
    }

    /// How many values it has room for.
    #[getter]
    fn maxsize(&self) -> usize {
        let sender = self.sender.as_ref().map(Sender::capacity_items);
        sender.or_else(|| self.receiver.as_ref().map(Receiver::capacity_items)).unwrap_or(0)
    }

    /// Lets nobody put any more, in any process. What is in the queue can still be got.
    fn close(&self) {
        if let Some(sender) = &self.sender {
            sender.close();
        } else if let Some(receiver) = &self.receiver {
            receiver.close();
        }
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Values until the queue is closed and empty, or all who put have let go of it. Raises `PeerDied` if
    /// one of them was killed.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        next(py, self.receiver()?)
    }

    fn __repr__(&self) -> String {
        let what = match (self.end.sends(), self.end.receives()) {
            (true, true) => "",
            (true, false) => ", only to put",
            _ => ", only to get",
        };
        format!("tensorferry.Queue(maxsize={}{what})", self.maxsize())
    }
}

/// A channel with room for `maxsize` messages: its end that only puts, and the one that only gets. Each side
/// learns when the other one is gone.
///
/// A process that has both, or a whole `Queue`, could go on by itself, in another thread say. It is told all
/// the same when the last other process has left, once each time.
#[pyfunction]
#[pyo3(signature = (maxsize = 16))]
pub(crate) fn channel(py: Python<'_>, maxsize: usize) -> PyResult<(Queue, Queue)> {
    let both = Queue::new(py, maxsize)?;
    Ok((both.sender_end()?, both.receiver_end()?))
}

/// As `channel`, for values that are leased, up to `max_leases` at the same time.
#[pyfunction]
#[pyo3(signature = (maxsize = 16, max_leases = 8))]
pub(crate) fn channel_with_leases(
    py: Python<'_>,
    maxsize: usize,
    max_leases: usize,
) -> PyResult<(Queue, Queue)> {
    if maxsize == 0 {
        return Err(unbounded());
    }
    if max_leases == 0 {
        return Err(PyValueError::new_err("without leases it is a channel: max_leases is at least 1"));
    }
    let both = open(py.detach(|| AnyEnd::create_with_leases(maxsize, max_leases)).map_err(OpenError::from))?;
    Ok((both.sender_end()?, both.receiver_end()?))
}

/// The next lease of an iteration.
pub(crate) fn next_lease(py: Python<'_>, queue: &Queue) -> PyResult<Option<Lease>> {
    until_closed(py, get_leased(py, queue.receiver()?, Until::after(None)?))
}

/// The next value of an iteration, which a queue that was closed in order ends.
fn next(py: Python<'_>, receiver: &Receiver<Object>) -> PyResult<Option<Py<PyAny>>> {
    until_closed(py, get(py, receiver, Until::after(None)?))
}

/// What an iteration makes of a value, or of none.
pub(crate) fn until_closed<T>(py: Python<'_>, got: PyResult<T>) -> PyResult<Option<T>> {
    match got {
        Ok(got) => Ok(Some(got)),
        Err(error) if error.get_type(py).is(py.get_type::<error::Closed>()) => {
            // Ctrl-C ends the others too, and is not an end in order.
            py.check_signals()?;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Whether a value is there, waiting for at most `timeout`.
pub(crate) fn poll(receiver: &Receiver<Object>, timeout: Duration) -> bool {
    tensorferry_queue::wait_timeout(&[receiver], timeout).is_ok_and(|ready| !ready.is_empty())
}
