//! The memory of a device tensor and its views, as one process sees it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::capture::Relaxed;
use crate::control::StorageControl;
use crate::error::CudaError;
use crate::event::Event;
use crate::registry;
use crate::slab::Slab;
use crate::stream::{KnownStream, Stream};
use crate::tensor_error::Result;
use crate::timeline::Timeline;

/// A part of a slab. It has one control block, and so one holder bit for this process, however many tensors
/// there are.
#[derive(Debug)]
pub(crate) struct Storage {
    control: StorageControl,
    slab: Arc<Slab>,
    offset_bytes: usize,
    len_bytes: usize,
    uses: Mutex<Uses>,
}

/// How this process uses a storage.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    /// The number of [`Hold`]s.
    n_holds: usize,
    /// The streams that were given the address and may have work queued for it. When another stream is added,
    /// each stream that the program no longer has is replaced by a point in `leaving`.
    streams: Vec<KnownStream>,
    /// Streams that could not make a point when the last hold was dropped, for example because they captured.
    /// Each is asked again.
    late: Vec<KnownStream>,
    /// Points behind which the device no longer uses the storage.
    leaving: Vec<Arc<Event>>,
    /// Whether this process has marked the storage as used, for other processes to see.
    is_marked: bool,
    /// Whether it cannot be known when the device is done with the storage.
    is_unknown: bool,
    /// Whether the storage is in the registry's list of storages to let go of.
    pub(crate) is_listed: bool,
}

impl Storage {
    pub(crate) fn new(
        control: StorageControl,
        slab: Arc<Slab>,
        offset_bytes: usize,
        len_bytes: usize,
    ) -> Arc<Self> {
        Arc::new(Self { control, slab, offset_bytes, len_bytes, uses: Mutex::default() })
    }

    pub(crate) fn control(&self) -> &StorageControl {
        &self.control
    }

    pub(crate) fn slab(&self) -> &Arc<Slab> {
        &self.slab
    }

    pub(crate) fn offset_bytes(&self) -> usize {
        self.offset_bytes
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    pub(crate) fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mark(&self, uses: &mut Uses) {
        // Only the owner reuses the memory. After the owner's death no process does, so the owner needs no
        // mark.
        if self.slab.is_own() || uses.is_marked {
            return;
        }
        if let Some(heap) = self.control.0.heap() {
            self.control.mark_used(heap.domain().me());
            uses.is_marked = true;
        }
    }

    /// Clears the mark, unless it cannot be known when the device is done.
    pub(crate) fn unmark(&self, uses: &mut Uses) {
        if uses.is_marked
            && !uses.is_unknown
            && let Some(heap) = self.control.0.heap()
        {
            self.control.unmark_used(heap.domain().me());
            uses.is_marked = false;
        }
    }
}

impl Uses {
    /// Counts a new handle. Called under the registry's lock, so that no other thread lets go of the storage
    /// meanwhile.
    pub(crate) fn add_hold(&mut self) {
        self.n_holds += 1;
    }

    pub(crate) fn is_held(&self) -> bool {
        self.n_holds > 0
    }

    /// Notes a stream that is given the address, and forgets the streams that the program no longer has.
    /// Returns the forgotten streams, for the caller to drop after unlocking.
    fn add(&mut self, stream: &Stream) -> Vec<KnownStream> {
        if self.streams.iter().any(|known| known.is(stream)) {
            return Vec::new();
        }
        let mut forgotten = Vec::new();
        if !(self.streams.is_empty() && self.leaving.is_empty() && self.late.is_empty()) {
            let _relaxed = Relaxed::begin();
            // Drops the points that are done, so that they do not stay as long as the tensor.
            self.is_busy();
            forgotten = self.forget_unused();
        }
        self.streams.push(stream.to_known());
        forgotten
    }

    /// Makes a point behind the last work of each stream that the program no longer has. A stream that cannot
    /// make a point now stays.
    fn forget_unused(&mut self) -> Vec<KnownStream> {
        let (mut points, mut is_unknown) = (Vec::new(), false);
        let forgotten = self.streams.extract_if(.., |known| {
            known.is_unused()
                && match last_point_of(&known.get()) {
                    Ok(point) => {
                        points.extend(point.map(Arc::new));
                        true
                    }
                    Err(error) => {
                        is_unknown |= error.is_for_good();
                        error.is_for_good()
                    }
                }
        });
        let forgotten = forgotten.collect();
        self.leaving.extend(points);
        self.is_unknown |= is_unknown;
        forgotten
    }

    /// Makes a point behind all work that is queued on the stream now, if there is any.
    fn leave(&mut self, stream: KnownStream) {
        let _relaxed = Relaxed::begin();
        match last_point_of(&stream.get()) {
            Ok(event) => self.leaving.extend(event.map(Arc::new)),
            // It can no longer be known when the device is done.
            Err(error) if error.is_for_good() => self.is_unknown = true,
            Err(_) => self.late.push(stream),
        }
    }

    /// Whether a stream still has to make its point.
    pub(crate) fn is_late(&mut self) -> bool {
        std::mem::take(&mut self.late).into_iter().for_each(|stream| self.leave(stream));
        !self.late.is_empty()
    }

    /// Whether the device may still use the storage, as far as can be known.
    pub(crate) fn is_busy(&mut self) -> bool {
        let is_late = self.is_late();
        let mut is_unknown = false;
        self.leaving.retain(|event| match event.is_done() {
            Ok(is_done) => !is_done,
            Err(error) if error.is_for_good() => {
                is_unknown = true;
                false
            }
            // Refused for the moment.
            Err(_) => true,
        });
        self.is_unknown |= is_unknown;
        is_late || !self.leaving.is_empty()
    }

    pub(crate) fn is_unknown(&self) -> bool {
        self.is_unknown
    }

    pub(crate) fn take_leaving(&mut self) -> Vec<Arc<Event>> {
        std::mem::take(&mut self.leaving)
    }
}

/// A handle on a storage, shared by a tensor and its views. When the last one in this process is dropped, the
/// registry lets go of the storage as soon as the device is done with it.
#[derive(Debug)]
pub(crate) struct Hold {
    storage: Arc<Storage>,
}

impl Hold {
    /// A handle for a hold that [`Uses::add_hold`] has already counted.
    pub(crate) fn counted(storage: Arc<Storage>) -> Arc<Self> {
        Arc::new(Self { storage })
    }

    pub(crate) fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }

    /// The device address for work on `stream`, which is noted as a user of the storage.
    pub(crate) fn address_on(&self, stream: &Stream) -> Result<u64> {
        let base = self.storage.slab.address_on(stream)?;
        let mut uses = self.storage.uses();
        self.storage.mark(&mut uses);
        let forgotten = uses.add(stream);
        drop(uses);
        drop(forgotten);
        Ok(base + self.storage.offset_bytes as u64)
    }

    /// Notes a stream as a user of the storage, without an address.
    pub(crate) fn note(&self, stream: &Stream) {
        let forgotten = self.storage.uses().add(stream);
        // Not under the lock.
        drop(forgotten);
    }

    /// Makes a point behind `ready` and behind all work that this process has queued for the storage, for the
    /// process to which the storage is sent. `None` when there is nothing to wait for: then the receiver may
    /// use the storage without waiting.
    pub(crate) fn record_after(
        &self,
        ready: Option<&(Arc<Timeline>, u64)>,
    ) -> Result<Option<(Arc<Timeline>, u64)>> {
        let (streams, points) = self.users();
        // The stream that was added last waits for the others, so that one point is enough.
        let Some((last, others)) = streams.split_last() else { return Ok(None) };
        let _current = last.context().enter()?;
        last.refuse_capture()?;
        let _relaxed = Relaxed::begin();
        if let Some((timeline, number)) = ready {
            timeline.hold_up(last, *number)?;
        }
        wait_for(last, others, &points)?;
        if last.is_idle()? {
            return Ok(None);
        }
        let heap = self.storage.control.0.heap();
        let Some(heap) = heap else { return Ok(None) };
        let timeline = registry::get().own_timeline(heap, last)?;
        let number = timeline.record()?;
        Ok(Some((timeline, number)))
    }

    /// Makes the stream wait for all work that this process has queued for the storage so far.
    pub(crate) fn wait_for_users(&self, stream: &Stream) -> Result<()> {
        let (streams, points) = self.users();
        stream.refuse_capture()?;
        let _relaxed = Relaxed::begin();
        Ok(wait_for(stream, &streams, &points)?)
    }

    /// The streams that were given the address, and points behind the work of those that the program no
    /// longer has.
    fn users(&self) -> (Vec<Stream>, Vec<Arc<Event>>) {
        let uses = self.storage.uses();
        (uses.streams.iter().map(KnownStream::get).collect(), uses.leaving.clone())
    }

    /// Whether this process has given the address to any stream.
    pub(crate) fn is_used_here(&self) -> bool {
        !self.storage.uses().streams.is_empty()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let is_forked = self.storage.control.0.heap().is_some_and(|heap| !heap.domain().is_owning_process());
        if is_forked {
            // The parent's threads may have had the locks, and its driver does not answer here.
            return;
        }
        let mut uses = self.storage.uses();
        if uses.n_holds == 1 {
            std::mem::take(&mut uses.streams).into_iter().for_each(|stream| uses.leave(stream));
        }
        uses.n_holds = uses.n_holds.saturating_sub(1);
        let is_last = uses.n_holds == 0;
        // The points were made just now, so nobody has to be asked about them. The owner takes the memory
        // back with its points.
        let is_busy = !uses.leaving.is_empty() && !self.storage.slab.is_own();
        drop(uses);
        if is_last {
            registry::get().let_go(&self.storage, is_busy);
        }
    }
}

/// Makes `stream` wait for all work that is queued on the others now, and for the points.
fn wait_for(stream: &Stream, others: &[Stream], points: &[Arc<Event>]) -> Result<(), CudaError> {
    others.iter().try_for_each(|other| stream.wait_stream(other))?;
    for point in points {
        if !point.is_done()? {
            point.hold_up(stream)?;
        }
    }
    Ok(())
}

/// `None` if all work on the stream is done.
fn last_point_of(stream: &Stream) -> Result<Option<Event>, CudaError> {
    let _current = stream.context().enter()?;
    stream.refuse_capture()?;
    if stream.is_idle()? { Ok(None) } else { Event::recorded(stream).map(Some) }
}
