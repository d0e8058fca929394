//! Copies to devices for which nobody waits: through page-locked memory, which is used again.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::context::PrimaryContext;
use crate::error::Result;
use crate::event::Event;
use crate::page_locked::PageLocked;
use crate::stream::Stream;

/// The smallest and the largest memory for one copy, in bytes. More is copied in parts.
const MIN_BYTES: usize = 64 << 10;
pub(crate) const MAX_BYTES: usize = 16 << 20;

/// How much is page-locked at most, in bytes: under copies and for the next ones.
const LIMIT_BYTES: usize = 256 << 20;

static UPLOADS: Mutex<Uploads> = Mutex::new(Uploads { free: Vec::new(), running: VecDeque::new() });

/// The page-locked memory of this process.
struct Uploads {
    free: Vec<PageLocked>,
    /// In the order in which they were begun.
    running: VecDeque<Upload>,
}

/// A copy that was begun. Its memory stays locked until the copy is done; where that is not known, until the
/// process ends.
#[derive(Debug)]
pub(crate) struct Upload {
    done: Event,
    memory: ManuallyDrop<PageLocked>,
}

impl Upload {
    /// Of a copy that was just queued on the stream.
    pub(crate) fn begun(stream: &Stream, memory: PageLocked) -> Result<Self> {
        let memory = ManuallyDrop::new(memory);
        Ok(Self { done: Event::recorded(stream)?, memory })
    }

    /// The memory, if the copy is done.
    fn end(self) -> std::result::Result<PageLocked, Self> {
        if self.done.is_pending() { Err(self) } else { Ok(ManuallyDrop::into_inner(self.memory)) }
    }
}

impl Uploads {
    /// Takes the memory of copies that are done.
    fn settle(&mut self) {
        for upload in std::mem::take(&mut self.running) {
            match upload.end() {
                Ok(memory) => self.free.push(memory),
                Err(upload) => self.running.push_back(upload),
            }
        }
    }

    fn n_bytes(&self) -> usize {
        let running = self.running.iter().map(|upload| upload.memory.len_bytes());
        self.free.iter().map(PageLocked::len_bytes).chain(running).sum()
    }

    /// Free memory of this length, or room for it: free memory of other lengths goes.
    fn take(&mut self, len_bytes: usize) -> Option<Taken> {
        self.settle();
        if let Some(at) = self.free.iter().position(|memory| memory.len_bytes() == len_bytes) {
            return Some(Taken::Memory(self.free.swap_remove(at)));
        }
        let mut gone = Vec::new();
        while self.n_bytes() + len_bytes > LIMIT_BYTES {
            gone.push(self.free.pop()?);
        }
        Some(Taken::Room(gone))
    }
}

enum Taken {
    Memory(PageLocked),
    /// There is room, once this is gone.
    Room(Vec<PageLocked>),
}

/// Page-locked memory for a copy of so many bytes, [`MAX_BYTES`] at most. Waits for the first of the copies
/// under way where there is as much under way as may be.
pub(crate) fn memory(context: &PrimaryContext, len_bytes: usize) -> Result<PageLocked> {
    let len_bytes = len_bytes.next_power_of_two().clamp(MIN_BYTES, MAX_BYTES);
    loop {
        let mut uploads = lock();
        match uploads.take(len_bytes) {
            Some(Taken::Memory(memory)) => return Ok(memory),
            Some(Taken::Room(gone)) => {
                // Unlocking may wait for a device, so not under the lock.
                drop(uploads);
                drop(gone);
                return PageLocked::new(context, len_bytes);
            }
            None => {
                let Some(first) = uploads.running.pop_front() else { continue };
                drop(uploads);
                // A copy of which nothing can be known any more keeps its memory for good.
                if first.done.synchronize().is_ok() {
                    lock().running.push_front(first);
                }
            }
        }
    }
}

/// Keeps the memory of a copy that was begun.
pub(crate) fn keep(upload: Upload) {
    lock().running.push_back(upload);
}

/// Gives memory back for which no copy was begun.
pub(crate) fn give_back(memory: PageLocked) {
    lock().free.push(memory);
}

/// Unlocks all memory that is free.
pub(crate) fn trim() {
    let mut uploads = lock();
    uploads.settle();
    let free = std::mem::take(&mut uploads.free);
    drop(uploads);
    drop(free);
}

fn lock() -> MutexGuard<'static, Uploads> {
    UPLOADS.lock().unwrap_or_else(PoisonError::into_inner)
}
