//! Holding the streams of a process until it says otherwise, with nothing but what every CUDA driver has.
//!
//! A held stream runs a function of the host that waits. So what is queued behind it is not done, whatever
//! the machine does.

use std::ffi::c_void;
use std::sync::{Condvar, Mutex, PoisonError};

use crate::raw_driver::RawDriver;

static GATE: Gate =
    Gate { state: Mutex::new(State { is_held: false, n_opened: 0 }), changed: Condvar::new() };

struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    is_held: bool,
    /// How often it was opened: a function that waits does so until the next time.
    n_opened: u64,
}

/// Runs in a stream, on a thread of the driver.
extern "C" fn wait_at_gate(_: *mut c_void) {
    let mut state = GATE.state.lock().unwrap_or_else(PoisonError::into_inner);
    let n_opened = state.n_opened;
    while state.is_held && state.n_opened == n_opened {
        state = GATE.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

/// From now on streams that [`hold_if_closed`] is called with are held.
pub(crate) fn close() {
    GATE.state.lock().unwrap_or_else(PoisonError::into_inner).is_held = true;
}

/// Lets the streams go on.
pub(crate) fn open() {
    let mut state = GATE.state.lock().unwrap_or_else(PoisonError::into_inner);
    state.is_held = false;
    state.n_opened += 1;
    GATE.changed.notify_all();
}

/// Holds a stream of the current context, if the gate is closed.
pub(crate) fn hold_if_closed(driver: &RawDriver, stream: usize) {
    let is_held = GATE.state.lock().unwrap_or_else(PoisonError::into_inner).is_held;
    assert!(!is_held || driver.launch_host(stream, wait_at_gate, 0) == 0, "cuLaunchHostFunc refuses");
}
