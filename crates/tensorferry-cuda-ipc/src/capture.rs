//! Driver calls of this library that do not belong to what a program captures into graphs.

use std::marker::PhantomData;

use crate::driver::Driver;
use crate::raw::CAPTURE_RELAXED;

/// While this guard lives, its thread may query events, free and unmap although a stream captures.
///
/// Without it, while any stream captures in global mode, the default, the driver refuses such calls in every
/// thread. The refused call also invalidates the capture (`cuThreadExchangeStreamCaptureMode` in the CUDA
/// reference). No call of this library is meant for a graph: the library refuses streams that capture.
#[derive(Debug)]
pub(crate) struct Relaxed {
    /// The driver and the thread's mode before; `None` without a driver.
    before: Option<(Driver, u32)>,
    /// The mode belongs to one thread, so the guard must not move to another.
    not_send: PhantomData<*const ()>,
}

impl Relaxed {
    pub(crate) fn begin() -> Self {
        // If the exchange is refused, the calls are made in the mode that the thread has.
        let before = Driver::loaded().and_then(|driver| {
            let mode = driver.exchange_capture_mode(CAPTURE_RELAXED).ok()?;
            Some((driver.clone(), mode))
        });
        Self { before, not_send: PhantomData }
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        if let Some((driver, mode)) = &self.before {
            let _ = driver.exchange_capture_mode(*mode);
        }
    }
}
