//! Streams: what a device does one after the other.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::context::PrimaryContext;
use crate::error::{CudaError, Result};

/// A stream of a device's primary context: work that is queued in it is done in order. Clones are the same stream.
#[derive(Clone)]
pub struct Stream {
    inner: Arc<Inner>,
}

struct Inner {
    context: PrimaryContext,
    handle: usize,
    /// What keeps the stream of another library alive; `None` for one of ours, which is destroyed at the end.
    lender: Option<Box<dyn Any + Send + Sync>>,
}

impl Stream {
    /// Makes one that does not wait for the null stream.
    ///
    /// # Errors
    /// What the driver says.
    pub fn create(context: &PrimaryContext) -> Result<Self> {
        let _current = context.make_current()?;
        let handle = context.device().driver().stream_create()?;
        Ok(Self { inner: Arc::new(Inner { context: context.clone(), handle, lender: None }) })
    }

    /// The null stream of the context. It and the *blocking* streams of the context wait for each other. Streams of
    /// [`Stream::create`] and of cudarc's `new_stream` are not blocking: order those with an event. The software driver
    /// models no such waiting at all.
    #[must_use]
    pub fn null(context: &PrimaryContext) -> Self {
        Self::lent(context.clone(), 0, Box::new(()))
    }

    /// A stream of another library, which lives as long as `lender` does.
    pub(crate) fn lent(context: PrimaryContext, handle: usize, lender: Box<dyn Any + Send + Sync>) -> Self {
        Self { inner: Arc::new(Inner { context, handle, lender: Some(lender) }) }
    }

    /// What keeps the stream of another library alive, if it is of that type.
    #[cfg(feature = "cudarc")]
    pub(crate) fn lender<L: 'static>(&self) -> Option<&L> {
        self.inner.lender.as_ref()?.downcast_ref()
    }

    /// The context that it belongs to.
    #[must_use]
    pub fn context(&self) -> &PrimaryContext {
        &self.inner.context
    }

    /// The driver's handle (`CUstream`), for libraries beside this one.
    #[must_use]
    pub fn handle(&self) -> usize {
        self.inner.handle
    }

    /// Whether both are the same stream of the same context.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.handle() == other.handle() && self.context().handle() == other.context().handle()
    }

    /// Waits until everything is done that was queued so far.
    ///
    /// # Errors
    /// What the driver says, also about what was queued.
    ///
    /// # Blocking
    /// For as long as the device takes.
    pub fn synchronize(&self) -> Result<()> {
        let _current = self.context().make_current()?;
        self.context().device().driver().stream_synchronize(self.handle())
    }

    /// # Errors
    /// [`CudaError::Capturing`].
    pub(crate) fn refuse_capture(&self) -> Result<()> {
        let _current = self.context().make_current()?;
        let is_capturing = self.context().device().driver().stream_is_capturing(self.handle())?;
        if is_capturing { Err(CudaError::Capturing) } else { Ok(()) }
    }

    /// Whether everything is done that was queued so far.
    pub(crate) fn is_idle(&self) -> Result<bool> {
        let _current = self.context().make_current()?;
        self.context().device().driver().stream_is_idle(self.handle())
    }

    /// Whether nobody but the caller has this value or a clone of it.
    pub(crate) fn is_unused(&self) -> bool {
        Arc::strong_count(&self.inner) == 1
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("handle", &self.handle()).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.lender.is_none()
            && let Ok(_current) = self.context.make_current()
        {
            // The driver finishes what is queued.
            let _ = self.context.device().driver().stream_destroy(self.handle);
        }
    }
}
