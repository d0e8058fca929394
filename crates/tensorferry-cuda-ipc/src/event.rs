//! Events: points in a stream that streams and threads wait for.

use crate::context::PrimaryContext;
use crate::error::Result;
use crate::raw::{EVENT_DISABLE_TIMING, EVENT_INTERPROCESS, IpcHandle};
use crate::stream::Stream;

/// A point in the work of a stream, once it is recorded. Dropping it gives it up, which does not disturb a
/// stream that waits already.
#[derive(Debug)]
pub(crate) struct Event {
    context: PrimaryContext,
    handle: usize,
    /// Whether another process may have opened it, or made it.
    is_shared: bool,
}

impl Event {
    /// An event for this process only. It is one that was dropped before, if there is one: recording it anew
    /// disturbs no stream that waits already.
    pub(crate) fn local(context: &PrimaryContext) -> Result<Self> {
        match context.take_spare_event() {
            Some(handle) => Ok(Self { context: context.clone(), handle, is_shared: false }),
            None => Self::create(context, EVENT_DISABLE_TIMING),
        }
    }

    /// An event that other processes can open.
    pub(crate) fn interprocess(context: &PrimaryContext) -> Result<Self> {
        Self::create(context, EVENT_DISABLE_TIMING | EVENT_INTERPROCESS)
    }

    fn create(context: &PrimaryContext, flags: u32) -> Result<Self> {
        let _current = context.enter()?;
        let handle = context.device().driver().event_create(flags)?;
        Ok(Self { context: context.clone(), handle, is_shared: flags & EVENT_INTERPROCESS != 0 })
    }

    /// Opens an event of another process.
    pub(crate) fn open(context: &PrimaryContext, handle: IpcHandle) -> Result<Self> {
        let _current = context.enter()?;
        let handle = context.device().driver().open_event(handle)?;
        Ok(Self { context: context.clone(), handle, is_shared: true })
    }

    /// An event that is recorded behind all work that is queued on the stream now.
    pub(crate) fn recorded(stream: &Stream) -> Result<Self> {
        let event = Self::local(stream.context())?;
        event.record(stream)?;
        Ok(event)
    }

    /// The handle by which another process opens the event.
    pub(crate) fn ipc_handle(&self) -> Result<IpcHandle> {
        let _current = self.context.enter()?;
        self.context.device().driver().event_handle(self.handle)
    }

    pub(crate) fn record(&self, stream: &Stream) -> Result<()> {
        let _current = stream.context().enter()?;
        self.context.device().driver().event_record(self.handle, stream.handle())
    }

    /// Makes the stream wait for what was recorded before this call.
    pub(crate) fn hold_up(&self, stream: &Stream) -> Result<()> {
        let _current = stream.context().enter()?;
        self.context.device().driver().stream_wait(stream.handle(), self.handle)
    }

    /// Whether the work that was recorded last is done.
    pub(crate) fn is_done(&self) -> Result<bool> {
        let _current = self.context.enter()?;
        self.context.device().driver().event_is_done(self.handle)
    }

    /// Whether the work that was recorded last may still run. True if the driver does not say.
    pub(crate) fn is_pending(&self) -> bool {
        !matches!(self.is_done(), Ok(true))
    }

    /// Blocks until the work that was recorded last is done.
    pub(crate) fn synchronize(&self) -> Result<()> {
        let _current = self.context.enter()?;
        self.context.device().driver().event_synchronize(self.handle)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if !self.is_shared && self.context.keep_spare_event(self.handle) {
            return;
        }
        if let Ok(_current) = self.context.enter() {
            let _ = self.context.device().driver().event_destroy(self.handle);
        }
    }
}
