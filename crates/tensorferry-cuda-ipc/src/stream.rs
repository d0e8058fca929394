//! Streams: queues of work that a device runs in order.
//!
//! Handles of the program and handles of this library are counted separately. If only the library still has a
//! stream, no one can queue work on it any more.

use std::any::Any;
#[cfg(feature = "cudarc")]
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
#[cfg(feature = "cudarc")]
use std::sync::{Mutex, PoisonError, Weak};

use crate::capture::Relaxed;
use crate::context::PrimaryContext;
use crate::error::{CudaError, Result};
use crate::event::Event;
use crate::watch;

/// A stream of a device's primary context: its work runs in the order in which it was queued. Clones are the
/// same stream.
pub struct Stream {
    inner: Arc<Inner>,
}

/// A stream that the library has noted. It keeps the stream from being destroyed.
pub(crate) struct KnownStream {
    inner: Arc<Inner>,
}

struct Inner {
    context: PrimaryContext,
    handle: usize,
    /// Keeps the stream of another library alive. `None` for a stream that this library made and destroys on
    /// drop.
    lender: Option<Lender>,
    /// The number of [`Stream`]s.
    n_handles: AtomicUsize,
    /// Whether the stream went on without what it waited for: see [`watch`].
    cut_short: Arc<AtomicBool>,
}

/// An owner that keeps the stream of another library alive.
pub(crate) struct Lender {
    keeper: Box<dyn Any + Send + Sync>,
    /// Whether the other library, or the program through it, can still queue work on the stream.
    is_used: fn(&(dyn Any + Send + Sync)) -> bool,
}

/// By context and handle.
#[cfg(feature = "cudarc")]
type Known = HashMap<(usize, usize), Weak<Inner>>;

/// Streams of another library. Each has one entry while it is noted, however often the program passes it in.
#[cfg(feature = "cudarc")]
static LENT: Mutex<Option<Known>> = Mutex::new(None);

impl Lender {
    pub(crate) fn new<L: Any + Send + Sync>(
        keeper: L,
        is_used: fn(&(dyn Any + Send + Sync)) -> bool,
    ) -> Self {
        Self { keeper: Box::new(keeper), is_used }
    }

    /// For a stream that lives as long as its context.
    pub(crate) fn nobody() -> Self {
        Self::new((), |_| true)
    }
}

impl Stream {
    /// Makes a stream that does not wait for the null stream.
    ///
    /// # Errors
    /// The driver's error ([`CudaError::Driver`]).
    pub fn create(context: &PrimaryContext) -> Result<Self> {
        let _current = context.enter()?;
        let handle = context.device().driver().stream_create()?;
        Ok(Self::new(context.clone(), handle, None))
    }

    fn new(context: PrimaryContext, handle: usize, lender: Option<Lender>) -> Self {
        let (n_handles, cut_short) = (AtomicUsize::new(1), Arc::default());
        Self { inner: Arc::new(Inner { context, handle, lender, n_handles, cut_short }) }
    }

    /// The null stream of the context. The null stream and the *blocking* streams of the context wait for
    /// each other. Streams of [`Stream::create`] and of cudarc's `new_stream` are not blocking: order them
    /// with an event. The software driver does not model such waiting.
    #[must_use]
    pub fn null(context: &PrimaryContext) -> Self {
        Self::lent(context.clone(), 0, Lender::nobody())
    }

    /// A stream of another library. `lender` keeps it alive.
    pub(crate) fn lent(context: PrimaryContext, handle: usize, lender: Lender) -> Self {
        Self::new(context, handle, Some(lender))
    }

    /// The noted entry for this stream of another library, or a new one.
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

    /// The owner that keeps the stream alive, if it has the type `L`.
    #[cfg(feature = "cudarc")]
    pub(crate) fn lender<L: 'static>(&self) -> Option<&L> {
        self.inner.lender.as_ref()?.keeper.downcast_ref()
    }

    /// The same stream, for code that has to learn when the program no longer has it.
    pub(crate) fn to_known(&self) -> KnownStream {
        KnownStream { inner: Arc::clone(&self.inner) }
    }

    /// The context of the stream.
    #[must_use]
    pub fn context(&self) -> &PrimaryContext {
        &self.inner.context
    }

    /// The driver's handle (`CUstream`), for use with other libraries.
    #[must_use]
    pub fn handle(&self) -> usize {
        self.inner.handle
    }

    /// Whether both are the same stream of the same context.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.handle() == other.handle() && self.context().handle() == other.context().handle()
    }

    /// Waits until all work that was queued so far is done.
    ///
    /// # Errors
    /// The driver's error, including errors of the queued work; [`CudaError::WaitCutShort`];
    /// [`CudaError::Capturing`].
    ///
    /// # Blocking
    /// Until the device is done.
    pub fn synchronize(&self) -> Result<()> {
        self.refuse_capture()?;
        let _relaxed = Relaxed::begin();
        let _current = self.context().enter()?;
        self.context().device().driver().stream_synchronize(self.handle())?;
        self.check_waits()
    }

    /// Makes this stream wait for all work that was queued on `other` so far: PyTorch's `wait_stream`.
    ///
    /// # Errors
    /// The driver's error ([`CudaError::Driver`]); [`CudaError::Capturing`].
    pub fn wait_stream(&self, other: &Self) -> Result<()> {
        if self.is_same_as(other) {
            return Ok(());
        }
        self.refuse_capture()?;
        other.refuse_capture()?;
        let _relaxed = Relaxed::begin();
        if !other.is_idle()? {
            Event::recorded(other)?.hold_up(self)?;
        }
        Ok(())
    }

    /// Called where the stream was waited for.
    ///
    /// # Errors
    /// [`CudaError::WaitCutShort`], once.
    pub(crate) fn check_waits(&self) -> Result<()> {
        if watch::was_cut_short(&self.inner.cut_short) { Err(CudaError::WaitCutShort) } else { Ok(()) }
    }

    /// For [`watch::begin`].
    pub(crate) fn cut_short(&self) -> &Arc<AtomicBool> {
        &self.inner.cut_short
    }

    /// # Errors
    /// [`CudaError::Capturing`].
    pub(crate) fn refuse_capture(&self) -> Result<()> {
        let _current = self.context().enter()?;
        let is_capturing = self.context().device().driver().stream_is_capturing(self.handle())?;
        if is_capturing { Err(CudaError::Capturing) } else { Ok(()) }
    }

    /// Whether it is certain that no work is left, because the stream says so, or because its context is
    /// broken. A stream that captures is not asked.
    pub(crate) fn is_known_idle(&self) -> bool {
        let is_idle = self.refuse_capture().and_then(|()| self.is_idle());
        is_idle.unwrap_or_else(|error| error.is_for_good())
    }

    /// Whether all work that was queued so far is done.
    pub(crate) fn is_idle(&self) -> Result<bool> {
        let _current = self.context().enter()?;
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
    /// A [`Stream`] for a short use. While it lives, the program counts as having the stream.
    pub(crate) fn get(&self) -> Stream {
        self.inner.n_handles.fetch_add(1, Ordering::SeqCst);
        Stream { inner: Arc::clone(&self.inner) }
    }

    /// Whether both are the same stream of the same context.
    pub(crate) fn is(&self, stream: &Stream) -> bool {
        let Inner { context, handle, .. } = &*self.inner;
        *handle == stream.handle() && context.handle() == stream.context().handle()
    }

    /// Whether no one can queue work on it any more: the program has no handle on it.
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
            && let Ok(_current) = self.context.enter()
        {
            // The driver finishes the work that is queued.
            let _ = self.context.device().driver().stream_destroy(self.handle);
        }
    }
}
