//! Calls of the driver that have nothing to do with what a program captures into graphs.

use std::marker::PhantomData;

use crate::driver::Driver;
use crate::raw::CAPTURE_RELAXED;

/// While this is there, its thread may ask about events, free and unmap although a stream captures.
///
/// Without it the driver refuses that in every thread while any stream captures in global mode, the default one, and spoils the
/// capture (`cuThreadExchangeStreamCaptureMode` in the CUDA reference). What this library does beside a program is never meant
/// for a graph: it refuses streams that capture.
#[derive(Debug)]
pub(crate) struct Relaxed {
    /// The driver, and how its thread was before; `None` where there is no driver.
    before: Option<(Driver, u32)>,
    /// It is a matter of one thread.
    not_send: PhantomData<*const ()>,
}

impl Relaxed {
    pub(crate) fn begin() -> Self {
        // Where it is refused, the calls are made as they would have been.
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
