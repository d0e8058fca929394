//! Events that travel by themselves: one process records, another waits.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{self, Serialize, Serializer};
use tensorferry_reduce as reduce;
use tensorferry_storage::Heap;

use crate::context::PrimaryContext;
use crate::control::EventControl;
use crate::error::CudaError;
use crate::event::Event;
use crate::registry;
use crate::stream::Stream;
use crate::tensor_error::{CudaTensorError, Result};

/// How often a waiting thread polls. It does not block in the driver, because the process that recorded the
/// event may die.
const LOOK: Duration = Duration::from_micros(200);

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
    /// An event of another process is opened when it is first needed. Declared before `control`, so dropped
    /// before the holder bit, because the owner may destroy the event once that bit is clear.
    event: Mutex<Option<Event>>,
    control: EventControl,
}

impl SharedEvent {
    pub(crate) fn of_another(control: EventControl) -> Self {
        Self { control, event: Mutex::default() }
    }

    pub(crate) fn control(&self) -> &EventControl {
        &self.control
    }
}

impl IpcEvent {
    /// Makes an event of the device of `context`, in the default domain. It is not recorded yet.
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
        let event = Event::interprocess(context)?;
        let control = EventControl::create(heap, event.ipc_handle()?)?;
        let shared = SharedEvent { control, event: Mutex::new(Some(event)) };
        Ok(Self { shared: registry::get().keep_event(shared)? })
    }

    /// Records the event behind all work that is queued on the stream now, in place of what was recorded
    /// before. The stream must be one of the event's device. If two processes record at the same time, either
    /// may count as the last.
    ///
    /// # Errors
    /// [`CudaError::Capturing`]; the driver's error; [`CudaTensorError::ProducerGone`] if the process that
    /// made the event has ended and this process has not used the event before.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        stream.refuse_capture()?;
        self.with(stream.context(), |event| self.shared.control.recording(|| event.record(stream)))
    }

    /// Makes the stream wait for what was recorded last.
    ///
    /// # Errors
    /// As [`IpcEvent::record`]; also [`CudaTensorError::ProducerGone`] if the recording process ended before
    /// its work was done, or a process was killed while it recorded the event.
    pub fn wait(&self, stream: &Stream) -> Result<()> {
        stream.refuse_capture()?;
        if self.is_done(stream.context())? {
            return Ok(());
        }
        self.with(stream.context(), |event| event.hold_up(stream))
    }

    /// Whether the work that was recorded last is done.
    ///
    /// # Errors
    /// As [`IpcEvent::wait`].
    pub fn is_done(&self, context: &PrimaryContext) -> Result<bool> {
        if self.with(context, Event::is_done)? {
            return Ok(true);
        }
        // The work may have been done, and the process ended, since the first query.
        if self.shared.control.is_recorder_gone() && !self.with(context, Event::is_done)? {
            return Err(CudaTensorError::ProducerGone);
        }
        Ok(false)
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

    fn with<R>(
        &self,
        context: &PrimaryContext,
        work: impl FnOnce(&Event) -> Result<R, CudaError>,
    ) -> Result<R> {
        let mut event = self.shared.event.lock().unwrap_or_else(PoisonError::into_inner);
        let event = match &mut *event {
            Some(event) => event,
            empty => match Event::open(context, self.shared.control.handle()) {
                Ok(opened) => empty.insert(opened),
                Err(_) if self.shared.control.is_owner_gone() => return Err(CudaTensorError::ProducerGone),
                Err(error) => return Err(error.into()),
            },
        };
        Ok(work(event)?)
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
