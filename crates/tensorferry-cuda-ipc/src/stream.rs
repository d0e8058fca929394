//! Streams: what a device does one after the other.
//!
//! The program and this library count apart who has a stream. What only the library knows still is a stream that nobody can give
//! any work.

use std::any::Any;
#[cfg(feature = "cudarc")]
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
#[cfg(feature = "cudarc")]
use std::sync::{Mutex, PoisonError, Weak};

use crate::context::PrimaryContext;
use crate::error::{CudaError, Result};

/// A stream of a device's primary context: work that is queued in it is done in order. Clones are the same stream.
pub struct Stream {
    inner: Arc<Inner>,
}

/// A stream that the library knows, which keeps it from being destroyed.
pub(crate) struct KnownStream {
    inner: Arc<Inner>,
}

struct Inner {
    context: PrimaryContext,
    handle: usize,
    /// What keeps the stream of another library alive; `None` for one of ours, which is destroyed at the end.
    lender: Option<Lender>,
    /// How many [`Stream`]s there are.
    n_handles: AtomicUsize,
}

/// What keeps the stream of another library alive.
pub(crate) struct Lender {
    keeper: Box<dyn Any + Send + Sync>,
    /// Whether the other library, or the program by it, can give the stream work.
    is_used: fn(&(dyn Any + Send + Sync)) -> bool,
}

/// By context and handle.
#[cfg(feature = "cudarc")]
type Known = HashMap<(usize, usize), Weak<Inner>>;

/// Streams of another library: each is one here as long as it is known, however often it came.
#[cfg(feature = "cudarc")]
static LENT: Mutex<Option<Known>> = Mutex::new(None);

impl Lender {
    pub(crate) fn new<L: Any + Send + Sync>(
        keeper: L,
        is_used: fn(&(dyn Any + Send + Sync)) -> bool,
    ) -> Self {
        Self { keeper: Box::new(keeper), is_used }
    }

    /// For a stream that is there as long as its context.
    pub(crate) fn nobody() -> Self {
        Self::new((), |_| true)
    }
}

impl Stream {
    /// Makes one that does not wait for the null stream.
    ///
    /// # Errors
    /// What the driver says.
    pub fn create(context: &PrimaryContext) -> Result<Self> {
        let _current = context.make_current()?;
        let handle = context.device().driver().stream_create()?;
        Ok(Self::new(context.clone(), handle, None))
    }

    fn new(context: PrimaryContext, handle: usize, lender: Option<Lender>) -> Self {
        Self { inner: Arc::new(Inner { context, handle, lender, n_handles: AtomicUsize::new(1) }) }
    }

    /// The null stream of the context. It and the *blocking* streams of the context wait for each other. Streams of
    /// [`Stream::create`] and of cudarc's `new_stream` are not blocking: order those with an event. The software driver
    /// models no such waiting at all.
    #[must_use]
    pub fn null(context: &PrimaryContext) -> Self {
        Self::lent(context.clone(), 0, Lender::nobody())
    }

    /// A stream of another library, which lives as long as `lender` does.
    pub(crate) fn lent(context: PrimaryContext, handle: usize, lender: Lender) -> Self {
        Self::new(context, handle, Some(lender))
    }

    /// The one that is known already for this stream of another library, or a new one.
    #[cfg(feature = "cudarc")]
    pub(crate) fn lent_once(context: PrimaryContext, handle: usize, lender: Lender) -> Self {
        let mut lent = LENT.lock().unwrap_or_else(PoisonError::into_inner);
        let lent = lent.get_or_insert_default();
        let key = (context.handle(), handle);
        if let Some(inner) = lent.get(&key).and_then(Weak::upgrade) {
            return KnownStream { inner }.get();
        }
        lent.retain(|_, inner| inner.strong_count() > 0);
        let stream = Self::lent(context, handle, lender);
        lent.insert(key, Arc::downgrade(&stream.inner));
        stream
    }

    /// What keeps the stream of another library alive, if it is of that type.
    #[cfg(feature = "cudarc")]
    pub(crate) fn lender<L: 'static>(&self) -> Option<&L> {
        self.inner.lender.as_ref()?.keeper.downcast_ref()
    }

    /// The same stream, for those who have to know when the program has it no more.
    pub(crate) fn to_known(&self) -> KnownStream {
        KnownStream { inner: Arc::clone(&self.inner) }
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
}

impl Clone for Stream {
    fn clone(&self) -> Self {
        self.inner.n_handles.fetch_add(1, Ordering::SeqCst);
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.inner.n_handles.fetch_sub(1, Ordering::SeqCst);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("handle", &self.handle()).finish_non_exhaustive()
    }
}

impl KnownStream {
    /// The stream, for a moment: while the answer lives, the program seems to have it.
    pub(crate) fn get(&self) -> Stream {
        self.inner.n_handles.fetch_add(1, Ordering::SeqCst);
        Stream { inner: Arc::clone(&self.inner) }
    }

    /// Whether both are the same stream of the same context.
    pub(crate) fn is(&self, stream: &Stream) -> bool {
        let Inner { context, handle, .. } = &*self.inner;
        *handle == stream.handle() && context.handle() == stream.context().handle()
    }

    /// Whether nobody can give it work any more: the program has no handle on it.
    pub(crate) fn is_unused(&self) -> bool {
        let is_lent = |lender: &Lender| (lender.is_used)(&*lender.keeper);
        self.inner.n_handles.load(Ordering::SeqCst) == 0 && !self.inner.lender.as_ref().is_some_and(is_lent)
    }
}

impl fmt::Debug for KnownStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
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
