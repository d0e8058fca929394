//! Wakers of asyncio's tasks that call Python only while there is an interpreter.
//!
//! A thread of the library wakes tasks, and takes the interpreter's lock for it. Where the interpreter has
//! begun to end, CPython before 3.14 ends such a thread in the middle (`PyGILState_Ensure` in its reference),
//! which is fatal here. So before that, at exit, nobody is let in any more, and whoever is in is waited for.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

use pyo3::prelude::*;

use crate::view::is_forked;

struct State {
    /// The threads that are waking tasks.
    n_inside: usize,
    is_over: bool,
}

static STATE: Mutex<State> = Mutex::new(State { n_inside: 0, is_over: false });
static LEFT: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While it lives, the interpreter does not end.
struct Inside;

impl Inside {
    fn enter() -> Option<Self> {
        let mut state = lock();
        if state.is_over {
            return None;
        }
        state.n_inside += 1;
        Some(Self)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut state = lock();
        state.n_inside -= 1;
        if state.is_over && state.n_inside == 0 {
            LEFT.notify_all();
        }
    }
}

/// From now on no task is woken. For the end of the interpreter.
#[pyfunction]
fn _end_waking(py: Python<'_>) {
    // In a process that was forked, the threads are the parent's, and so may the lock be.
    if is_forked() {
        return;
    }
    // They need the interpreter's lock to leave.
    py.detach(|| {
        let mut state = lock();
        state.is_over = true;
        let is_any = |state: &mut State| state.n_inside > 0;
        drop(LEFT.wait_while(state, is_any).unwrap_or_else(PoisonError::into_inner));
    });
}

/// Has the interpreter end only when no thread wakes tasks.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let end = wrap_pyfunction!(_end_waking, module)?;
    module.py().import("atexit")?.call_method1("register", (end,)).map(drop)
}

struct Guarded(Waker);

impl Wake for Guarded {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(_inside) = Inside::enter() {
            self.0.wake_by_ref();
        }
    }
}

/// The same work, whose wakers may be called at any time.
pub(crate) async fn guarded<R>(work: impl Future<Output = R>) -> R {
    let mut work = pin!(work);
    poll_fn(|context| {
        let waker = Waker::from(Arc::new(Guarded(context.waker().clone())));
        work.as_mut().poll(&mut Context::from_waker(&waker))
    })
    .await
}
