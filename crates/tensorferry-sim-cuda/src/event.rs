//! Events: a page with two counters, which is shared if the event is an interprocess one.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::thread::futex;

use crate::address_space::Ordinal;
use crate::driver::Driver;
use crate::identity::Identity;
use crate::mapping::Mapping;
use crate::memory_file::{Label, MemoryFile, Purpose};
use crate::stream::Stream;
use crate::token::{self, TOKEN_BYTES, Token};
use crate::{Answer, Status};

const BLOCKING_SYNC: u32 = 1;
const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;

// The page: one 32-bit word for waiting in a cache line of its own, then 64-bit words.
const WAKE: usize = 0;
/// The number of records.
const ARMED: usize = 8;
/// The number of the highest record that is done.
const DONE: usize = 9;
const DESTROYED: usize = 10;
/// The process that recorded last: its number, and the instance of the driver in it.
const RECORDER: usize = 11;

/// How often a waiter checks whether its stream has ended.
const LOOK: Duration = Duration::from_millis(20);

/// An event of this process, or an opened one of another process.
#[derive(Debug)]
pub(crate) struct Event {
    page: Mapping,
    file: Option<MemoryFile>,
    flags: u32,
    device: Ordinal,
    is_imported: bool,
    finished_at: Mutex<Option<Instant>>,
}

impl Event {
    fn word(&self, index: usize) -> Answer<u64> {
        Ok(self.page.word(index)?.load(SeqCst))
    }

    fn is_usable(&self) -> Answer<bool> {
        Ok(!(self.is_imported && self.word(DESTROYED)? != 0))
    }

    /// Counts a record by `by`; returns its number, and whether another process made the one before.
    fn arm(&self, by: Identity) -> Answer<(u64, bool)> {
        let by = u64::from(by.pid) << 32 | u64::from(by.instance);
        let before = self.page.word(RECORDER)?.swap(by, SeqCst);
        Ok((self.page.word(ARMED)?.fetch_add(1, SeqCst) + 1, before != 0 && before != by))
    }

    fn complete(&self, record: u64) -> Answer {
        *self.finished_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.page.word(DONE)?.fetch_max(record, SeqCst);
        let wake = self.page.half_word(WAKE)?;
        wake.fetch_add(1, SeqCst);
        futex::wake(wake, futex::Flags::empty(), i32::MAX.cast_unsigned())?;
        Ok(())
    }

    fn is_done(&self, record: u64) -> Answer<bool> {
        Ok(self.word(DONE)? >= record)
    }

    /// Waits until this record is done, or until `is_over` returns true. A record whose process was killed is
    /// never done, and nothing tells a waiter so.
    fn wait(&self, record: u64, is_over: impl Fn() -> bool) -> Answer {
        let wake = self.page.half_word(WAKE)?;
        let look = futex::Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
        loop {
            let seen = wake.load(SeqCst);
            if self.is_done(record)? || is_over() {
                return Ok(());
            }
            // Whatever the reason for waking up, the loop checks again.
            let _ = futex::wait(wake, futex::Flags::empty(), seen, Some(&look));
        }
    }
}

/// Events are in no graph here, and those of other processes in none of a real driver.
fn refuse_capture(stream: &Stream) -> Answer {
    if !stream.is_capturing() {
        return Ok(());
    }
    stream.spoil_capture();
    Err(Status::STREAM_CAPTURE_UNSUPPORTED)
}

impl Driver {
    /// `cuEventCreate`.
    pub(crate) fn event_create(&self, flags: u32) -> Answer<usize> {
        let context = self.current()?;
        if flags & !(BLOCKING_SYNC | DISABLE_TIMING | INTERPROCESS) != 0
            || flags & (INTERPROCESS | DISABLE_TIMING) == INTERPROCESS
        {
            return Err(Status::INVALID_VALUE);
        }
        let file = if flags & INTERPROCESS == 0 {
            None
        } else {
            let device = self.physical(context.device);
            let label = Label {
                world: self.settings.world.clone(),
                purpose: Purpose::Event,
                device,
                len_bytes: 4096,
            };
            Some(MemoryFile::create(label, 0)?)
        };
        let page =
            file.as_ref().map_or_else(|| Mapping::private(4096), |file| Mapping::of_file(file, 0, 4096))?;
        Ok(self.add_event(page, file, flags, context.device, false))
    }

    fn add_event(
        &self,
        page: Mapping,
        file: Option<MemoryFile>,
        flags: u32,
        device: Ordinal,
        is_imported: bool,
    ) -> usize {
        let event = Event { page, file, flags, device, is_imported, finished_at: Mutex::default() };
        let id = self.event_handles.take();
        self.tables().events.insert(id, Arc::new(event));
        id
    }

    /// The event. If it must not be used any more, that is a broken rule, and works.
    fn event(&self, event: usize) -> Answer<Arc<Event>> {
        self.check_process()?;
        let event = self.tables().events.get(&event).cloned().ok_or(Status::INVALID_HANDLE)?;
        if event.is_usable()? {
            return Ok(event);
        }
        self.reports.add("an opened event was used after its exporter destroyed it");
        Ok(event)
    }

    /// `cuEventDestroy`. Work that was queued with the event can still use it.
    pub(crate) fn event_destroy(&self, event: usize) -> Answer {
        self.check_process()?;
        let handle = event;
        let event = self.tables().events.remove(&handle).ok_or(Status::INVALID_HANDLE)?;
        self.event_handles.give_back(handle);
        if !event.is_imported {
            event.page.word(DESTROYED)?.store(1, SeqCst);
        }
        Ok(())
    }

    /// `cuEventRecord`.
    pub(crate) fn event_record(&self, event: usize, stream: usize) -> Answer {
        let stream = self.stream(stream)?;
        let event = self.event(event)?;
        if event.device != stream.device {
            return Err(Status::INVALID_HANDLE);
        }
        refuse_capture(&stream)?;
        let (record, is_other) = event.arm(self.identity)?;
        stream.push_always(move |stream: &Stream| {
            if is_other {
                // As on an H100: of two processes, the second reaches its record behind the first.
                event.wait(record - 1, || stream.has_ended())?;
            }
            event.complete(record)
        })
    }

    /// `cuStreamWaitEvent`. The wait is for the last record before this call.
    pub(crate) fn stream_wait_event(&self, stream: usize, event: usize) -> Answer {
        let stream = self.stream(stream)?;
        let event = self.event(event)?;
        refuse_capture(&stream)?;
        let record = event.word(ARMED)?;
        stream.push(move |stream: &Stream| event.wait(record, || stream.has_ended()))
    }

    /// `cuEventQuery`.
    pub(crate) fn event_query(&self, event: usize) -> Answer {
        let event = self.event(event)?;
        if event.is_done(event.word(ARMED)?)? { Ok(()) } else { Err(Status::NOT_READY) }
    }

    /// `cuEventSynchronize`. Blocks until the last record is done, for ever if its process was killed.
    pub(crate) fn event_synchronize(&self, event: usize) -> Answer {
        let event = self.event(event)?;
        event.wait(event.word(ARMED)?, || false)
    }

    /// `cuEventElapsedTime`, in milliseconds.
    pub(crate) fn event_elapsed(&self, begin: usize, end: usize) -> Answer<f32> {
        let (begin, end) = (self.event(begin)?, self.event(end)?);
        if (begin.flags | end.flags) & DISABLE_TIMING != 0 {
            return Err(Status::INVALID_HANDLE);
        }
        let at = |event: &Event| *event.finished_at.lock().unwrap_or_else(PoisonError::into_inner);
        let (begin, end) = (at(&begin).ok_or(Status::NOT_READY)?, at(&end).ok_or(Status::NOT_READY)?);
        Ok(end.saturating_duration_since(begin).as_secs_f32() * 1e3)
    }

    /// `cuIpcGetEventHandle`.
    pub(crate) fn ipc_get_event_handle(&self, event: usize) -> Answer<[u8; TOKEN_BYTES]> {
        let event = self.event(event)?;
        match &event.file {
            Some(file) if !event.is_imported => {
                Ok(Token::new(self.identity, file, 0, 0).to_bytes(token::Kind::Event))
            }
            Some(_) => Err(Status::INVALID_VALUE),
            None => Err(Status::INVALID_HANDLE),
        }
    }

    /// `cuIpcOpenEventHandle`.
    pub(crate) fn ipc_open_event_handle(&self, handle: &[u8; TOKEN_BYTES]) -> Answer<usize> {
        let context = self.current()?;
        let token = Token::from_bytes(handle, token::Kind::Event)?;
        if token.owner == self.identity {
            return Err(Status::INVALID_CONTEXT);
        }
        let file = MemoryFile::open_of(&token.owner, token.fd, token.inode)?;
        let page = Mapping::of_file(&file, 0, 4096)?;
        Ok(self.add_event(page, Some(file), INTERPROCESS | DISABLE_TIMING, context.device, true))
    }
}
