//! Which calls a thread may make while streams capture: the modes of captures and of threads.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use crate::driver::Driver;
use crate::stream::Stream;
use crate::{Answer, Status};

/// Functions that act at once, whatever streams do, so a graph would lack their effect. NVIDIA names the
/// allocation of memory as one of them. Here it is all functions that allocate, free, map, wait for the
/// device or query it.
const UNSAFE: &[&str] = &[
    "cuCtxSynchronize",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuIpcCloseMemHandle",
    "cuIpcOpenMemHandle_v2",
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemAllocHost_v2",
    "cuMemAlloc_v2",
    "cuMemCreate",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemImportFromShareableHandle",
    "cuMemMap",
    "cuMemPoolImportPointer",
    "cuMemRelease",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemcpyDtoD_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoD_v2",
    "cuMemsetD16_v2",
    "cuMemsetD32_v2",
    "cuMemsetD8_v2",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuStreamQuery",
    "cuStreamSynchronize",
];

/// `CUstreamCaptureMode`. The mode of a capture says which threads may not make such calls. The mode of a
/// thread says which captures stop it from making them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Capture: stops every thread. Thread: stopped by its own captures and by global captures of other
    /// threads.
    #[default]
    Global,
    /// Capture: stops the capturing thread. Thread: stopped by its own captures only.
    ThreadLocal,
    /// Capture: stops no thread. Thread: stopped by no capture.
    Relaxed,
}

impl Mode {
    pub(crate) fn from_code(code: u32) -> Answer<Self> {
        match code {
            0 => Ok(Self::Global),
            1 => Ok(Self::ThreadLocal),
            2 => Ok(Self::Relaxed),
            _ => Err(Status::INVALID_VALUE),
        }
    }

    pub(crate) fn code(self) -> u32 {
        match self {
            Self::Global => 0,
            Self::ThreadLocal => 1,
            Self::Relaxed => 2,
        }
    }
}

thread_local! {
    /// The mode of this thread, by driver. Never dropped, for the same reason as `CURRENT` in `context.rs`.
    static MODES: ManuallyDrop<RefCell<BTreeMap<u32, Mode>>> =
        const { ManuallyDrop::new(RefCell::new(BTreeMap::new())) };
}

#[derive(Debug)]
struct Capture {
    id: usize,
    stream: Arc<Stream>,
    by: ThreadId,
    mode: Mode,
}

impl Capture {
    fn prohibits(&self, thread: Mode) -> bool {
        let is_own = self.by == thread::current().id();
        match thread {
            Mode::Global => self.mode == Mode::Global || (is_own && self.mode == Mode::ThreadLocal),
            Mode::ThreadLocal => is_own && self.mode != Mode::Relaxed,
            Mode::Relaxed => false,
        }
    }
}

/// The captures in progress in a driver.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    ongoing: Mutex<Vec<Capture>>,
}

impl Captures {
    fn lock(&self) -> MutexGuard<'_, Vec<Capture>> {
        self.ongoing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver {
    /// Counts a call of `function`, and invalidates each capture that stops this thread from making it.
    ///
    /// # Errors
    /// STREAM_CAPTURE_UNSUPPORTED if there is such a capture.
    pub(crate) fn meet_captures(&self, function: &str) -> Answer {
        if !UNSAFE.contains(&function) {
            return Ok(());
        }
        let mode = self.thread_mode();
        let mut answer = Ok(());
        for capture in self.captures.lock().iter().filter(|capture| capture.prohibits(mode)) {
            capture.stream.spoil_capture();
            answer = Err(Status::STREAM_CAPTURE_UNSUPPORTED);
        }
        answer
    }

    fn thread_mode(&self) -> Mode {
        MODES.with(|modes| modes.borrow().get(&self.identity.instance).copied().unwrap_or_default())
    }

    /// `cuThreadExchangeStreamCaptureMode`: sets the mode of this thread; returns the mode before.
    pub(crate) fn exchange_thread_mode(&self, mode: Mode) -> Mode {
        MODES.with(|modes| modes.borrow_mut().insert(self.identity.instance, mode).unwrap_or_default())
    }

    /// `cuStreamBeginCapture`. Nothing is captured: the stream refuses all work until the capture ends.
    pub(crate) fn stream_begin_capture(&self, id: usize, mode: Mode) -> Answer {
        let stream = self.stream(id)?;
        if id <= crate::context::LAST_SPECIAL_STREAM {
            return Err(Status::STREAM_CAPTURE_UNSUPPORTED);
        }
        if stream.set_capturing(true) {
            return Err(Status::INVALID_VALUE);
        }
        self.captures.lock().push(Capture { id, stream, by: thread::current().id(), mode });
        Ok(())
    }

    /// `cuStreamEndCapture`. Another thread may end the capture only in relaxed mode.
    pub(crate) fn stream_end_capture(&self, id: usize) -> Answer {
        let stream = self.stream(id)?;
        let mut ongoing = self.captures.lock();
        let at = ongoing.iter().position(|capture| capture.id == id).ok_or(Status::INVALID_VALUE)?;
        if ongoing[at].mode != Mode::Relaxed && ongoing[at].by != thread::current().id() {
            return Err(Status::STREAM_CAPTURE_WRONG_THREAD);
        }
        drop(ongoing.remove(at));
        let is_invalid = stream.is_spoilt();
        stream.set_capturing(false);
        if is_invalid { Err(Status::STREAM_CAPTURE_INVALIDATED) } else { Ok(()) }
    }
}
