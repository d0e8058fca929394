//! Events that travel by themselves: one process records, another waits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{self, Serialize, Serializer};
use tensorferry_reduce as reduce;
use tensorferry_storage::Heap;

use crate::context::PrimaryContext;
use crate::control::{EventControl, Means, Record};
use crate::error::CudaError;
use crate::event::Event;
use crate::registry;
use crate::semaphore::{PinnedSemaphores, Semaphores as _};
use crate::stream::Stream;
use crate::tensor_error::{CudaTensorError, Result};
use crate::watch;

/// How often a waiting thread polls. It does not block in the driver, because the process that recorded the
/// event may die.
const LOOK: Duration = Duration::from_micros(200);

const UNKNOWN_MEANS: CudaTensorError =
    CudaTensorError::BadMessage { what: "an event that nobody can wait for" };
const WORN_OUT: CudaTensorError = CudaTensorError::BadMessage { what: "an event with too many records" };

/// A point in a stream that any process may record and any process may wait for. It travels through queues
/// and as a spawn argument, recorded or not. Clones are the same event. An event that was never recorded
/// counts as done.
#[derive(Clone, Debug)]
pub struct IpcEvent {
    shared: Arc<SharedEvent>,
}

/// An event, shared by all its handles in this process.
#[derive(Debug)]
pub(crate) struct SharedEvent {
    /// What this process needs of a driver for it is made when it is first needed. Declared before `control`,
    /// so dropped before the holder bit: once that bit is clear, the owner may destroy its event of the
    /// driver.
    opened: Mutex<Opened>,
    control: Arc<EventControl>,
}

#[derive(Debug, Default)]
struct Opened {
    /// With events of the driver.
    event: Option<Event>,
    semaphores: Option<PinnedSemaphores>,
    /// The last record of this process, or the one before its first.
    last: Option<Record>,
}

impl Opened {
    fn semaphores(
        &mut self,
        control: &Arc<EventControl>,
        context: &PrimaryContext,
    ) -> Result<&PinnedSemaphores, CudaError> {
        match &mut self.semaphores {
            Some(pinned) => Ok(pinned),
            empty => Ok(empty.insert(PinnedSemaphores::pin(Arc::clone(control) as _, context)?)),
        }
    }

    fn event(&mut self, control: &EventControl, context: &PrimaryContext) -> Result<&Event> {
        match &mut self.event {
            Some(event) => Ok(event),
            empty => match Event::open(context, control.handle()) {
                Ok(opened) => Ok(empty.insert(opened)),
                Err(_) if control.is_owner_gone() => Err(CudaTensorError::ProducerGone),
                Err(error) => Err(error.into()),
            },
        }
    }
}

impl SharedEvent {
    pub(crate) fn of_another(control: EventControl) -> Self {
        Self { control: Arc::new(control), opened: Mutex::default() }
    }

    pub(crate) fn control(&self) -> &EventControl {
        &self.control
    }

    /// Whether no stream of this process has work with it. The caller sees to it that none is given any.
    pub(crate) fn is_idle(&self) -> bool {
        self.opened().semaphores.as_ref().is_none_or(PinnedSemaphores::is_idle)
    }

    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IpcEvent {
    /// Makes an event of the device of `context`, in the default domain. It is not recorded yet.
    ///
    /// Where the device has stream memory operations, an event has no part of the driver's: streams of all
    /// devices may record it, and a stream that waits for a process that is killed goes on. Elsewhere it is
    /// an interprocess event of the driver. Then a stream that waits already when the recording process is
    /// killed waits for ever.
    ///
    /// # Errors
    /// The driver's error, for example on a device that cannot share events; [`CudaTensorError::Storage`].
    pub fn create(context: &PrimaryContext) -> Result<Self> {
        Self::create_in(Heap::current()?, context)
    }

    /// [`IpcEvent::create`] in the domain of this heap.
    ///
    /// # Errors
    /// As [`IpcEvent::create`].
    pub fn create_in(heap: &Heap, context: &PrimaryContext) -> Result<Self> {
        let control = Arc::new(EventControl::create(heap)?);
        let mut opened = Opened::default();
        let has_semaphores = context.device().has_stream_memory_operations()?
            && match opened.semaphores(&control, context) {
                Ok(_) => true,
                Err(error) if error.is_for_good() => return Err(error.into()),
                Err(_) => false,
            };
        if has_semaphores {
            control.wait_by_semaphores();
        } else {
            let event = Event::interprocess(context)?;
            control.wait_by_event(&event.ipc_handle()?);
            opened.event = Some(event);
        }
        let shared = SharedEvent { control, opened: Mutex::new(opened) };
        Ok(Self { shared: registry::get().keep_event(shared)? })
    }

    /// Records the event behind all work that is queued on the stream now, in place of what was recorded
    /// before. If two processes record at the same time, either may count as the last.
    ///
    /// # Errors
    /// [`CudaError::Capturing`]; the driver's error, after which what was recorded before still counts;
    /// [`CudaTensorError::ProducerGone`] if the event is one of the driver, the process that made it has
    /// ended, and this process has not used it before.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        stream.refuse_capture()?;
        let (control, mut opened) = (&self.shared.control, self.shared.opened());
        match control.means() {
            Means::Semaphores => {
                let last = opened.last.or_else(|| control.claim());
                let record = last.and_then(Record::next).ok_or(WORN_OUT)?;
                let semaphores = opened.semaphores(control, stream.context())?;
                // A semaphore only grows, so each record of it is behind the one before.
                let before = record.before();
                if let Some(before) =
                    before.filter(|before| !control.is_reached(before.index(), before.number))
                {
                    semaphores.hold_up(record.index(), stream, before.number)?;
                }
                semaphores.write(record.index(), stream, record.number)?;
                opened.last = Some(record);
                control.set_last(record);
                Ok(())
            }
            Means::Events => {
                let event = opened.event(control, stream.context())?;
                Ok(control.recording(|| event.record(stream))?)
            }
            Means::Nothing => Err(UNKNOWN_MEANS),
        }
    }

    /// Makes the stream wait for what was recorded last. Should the process that recorded it be killed
    /// meanwhile, the stream goes on, and [`CudaError::WaitCutShort`] says so.
    ///
    /// # Errors
    /// As [`IpcEvent::record`]; also [`CudaTensorError::ProducerGone`] if the recording process ended before
    /// its work was done. With an event of the driver, also if a process was killed while it recorded it.
    pub fn wait(&self, stream: &Stream) -> Result<()> {
        stream.refuse_capture()?;
        if self.is_done(stream.context())? {
            return Ok(());
        }
        let control = &self.shared.control;
        if control.means() == Means::Events {
            return Ok(self.shared.opened().event(control, stream.context())?.hold_up(stream)?);
        }
        let Some(last) = control.last() else { return Ok(()) };
        let wait = || {
            let mut opened = self.shared.opened();
            opened.semaphores(control, stream.context())?.hold_up(last.index(), stream, last.number)
        };
        let is_watched = control.is_mine(last)
            || watch::begin(Arc::clone(control) as _, last.index(), last.number, stream.cut_short());
        match is_watched.then(wait) {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) if error.is_for_good() => Err(error.into()),
            // What no stream can wait for, this thread can.
            Some(Err(_)) | None => self.synchronize(stream.context()),
        }
    }

    /// Whether the work that was recorded last is done. Of an event with semaphores, one load tells.
    ///
    /// # Errors
    /// As [`IpcEvent::wait`].
    pub fn is_done(&self, context: &PrimaryContext) -> Result<bool> {
        let control = &self.shared.control;
        match control.means() {
            Means::Semaphores => {
                let Some(last) = control.last() else { return Ok(true) };
                let is_reached = || control.is_reached(last.index(), last.number);
                if is_reached() {
                    return Ok(true);
                }
                // The work may have been done, and the process ended, since the first look; or somebody has
                // recorded the event again meanwhile.
                let is_gone = control.is_gone(control.writer(last.index()));
                match is_gone && !is_reached() && control.last() == Some(last) {
                    true => Err(CudaTensorError::ProducerGone),
                    false => Ok(false),
                }
            }
            Means::Events => {
                if self.is_event_done(context)? {
                    return Ok(true);
                }
                if control.is_recorder_gone() && !self.is_event_done(context)? {
                    return Err(CudaTensorError::ProducerGone);
                }
                Ok(false)
            }
            Means::Nothing => Err(UNKNOWN_MEANS),
        }
    }

    fn is_event_done(&self, context: &PrimaryContext) -> Result<bool> {
        Ok(self.shared.opened().event(&self.shared.control, context)?.is_done()?)
    }

    /// Waits until the work that was recorded last is done.
    ///
    /// # Errors
    /// As [`IpcEvent::wait`].
    ///
    /// # Blocking
    /// Until that work is done or the recording process ends. The calling thread polls every 200 µs.
    pub fn synchronize(&self, context: &PrimaryContext) -> Result<()> {
        while !self.is_done(context)? {
            std::thread::park_timeout(LOOK);
        }
        Ok(())
    }
}

impl Drop for IpcEvent {
    fn drop(&mut self) {
        registry::get().let_go_of_event(&self.shared);
    }
}

/// Puts a handle into the message that is being built. Outside of a message this is an error.
impl Serialize for IpcEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let index = reduce::give_shared(self.shared.control.0.block()).map_err(ser::Error::custom)?;
        index.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for IpcEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let block = reduce::take_shared(reduce::HandleIndex::deserialize(deserializer)?)
            .map_err(de::Error::custom)?;
        let taken = EventControl::check(block)
            .ok_or(CudaTensorError::BadMessage { what: "its block is no event" })
            .and_then(|control| registry::get().keep_event(SharedEvent::of_another(control)));
        match taken {
            Ok(shared) => Ok(Self { shared }),
            Err(error) => {
                reduce::refuse(&error);
                Err(de::Error::custom(error))
            }
        }
    }
}
