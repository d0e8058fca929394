//! The block of a timeline: the progress of a stream, for other processes.

use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

use tensorferry_storage::{Heap, SharedBlock, StorageError};

use super::{Control, HANDLE_WORDS, Means, handle_words, magic, pack_member};
use crate::raw::IpcHandle;
use crate::semaphore::{self, Semaphores};

/// The number of events of a timeline, which are recorded in turn.
pub(crate) const N_EVENTS: usize = 8;

const MAGIC_VALUE: u64 = magic(*b"TIME", 2);
const OWNER: usize = 1;
const DONE: usize = 2;
const MEANS: usize = 3;
const RETIRED: usize = 4;
const LAST: usize = 5;
const HANDLES: usize = 8;
const N_WORDS: usize = HANDLES + N_EVENTS * HANDLE_WORDS;

/// Set in the semaphore when the owner is gone. There is no second owner, so it is the second generation.
const CUT_SHORT: u64 = 1 << 62;
const _: () = assert!(2 * CUT_SHORT <= semaphore::LIMIT);

/// The progress of a stream. Its one semaphore has the number of the last point that is reached.
#[derive(Debug)]
pub(crate) struct TimelineControl(pub(crate) Control);

impl TimelineControl {
    /// For a timeline that other processes can wait for by nothing yet.
    pub(crate) fn create(heap: &Heap) -> Result<Self, StorageError> {
        let words = [(OWNER, pack_member(heap.domain().me()))];
        Control::create(heap, N_WORDS, MAGIC_VALUE, &words).map(Self)
    }

    pub(crate) fn check(block: SharedBlock) -> Option<Self> {
        Control::check(block, N_WORDS, MAGIC_VALUE).map(Self)
    }

    /// Called by the owner, before another process learns of the timeline.
    pub(crate) fn wait_by_semaphore(&self) {
        self.0.word(MEANS).store(Means::Semaphores.code(), Ordering::Release);
    }

    /// As [`TimelineControl::wait_by_semaphore`], with the handles of [`N_EVENTS`] events.
    pub(crate) fn wait_by_events(&self, handles: &[IpcHandle]) {
        for (i, handle) in handles.iter().take(N_EVENTS).enumerate() {
            for (index, word) in (HANDLES + i * HANDLE_WORDS..).zip(handle_words(handle)) {
                self.0.word(index).store(word, Ordering::Relaxed);
            }
        }
        self.0.word(MEANS).store(Means::Events.code(), Ordering::Release);
    }

    pub(crate) fn means(&self) -> Means {
        Means::from_code(self.0.load(MEANS))
    }

    /// The number of the last point that is known to be reached.
    pub(crate) fn done(&self) -> u64 {
        self.0.load(DONE) & !CUT_SHORT
    }

    /// Called by the owner, where its stream does not write the semaphore.
    pub(crate) fn set_done(&self, number: u64) {
        self.0.word(DONE).fetch_max(number, Ordering::SeqCst);
    }

    /// Called by the owner, before its stream gets the work that reaches this point.
    pub(crate) fn set_last(&self, number: u64) {
        self.0.word(LAST).store(number, Ordering::SeqCst);
    }

    pub(crate) fn handle(&self, index: usize) -> IpcHandle {
        self.0.handle_at(HANDLES + index % N_EVENTS * HANDLE_WORDS)
    }

    /// Called by the owner: all points are reached, and no other point will be made until this is set to
    /// false again.
    pub(crate) fn set_retired(&self, is_retired: bool) {
        self.0.word(RETIRED).store(u64::from(is_retired), Ordering::SeqCst);
    }

    /// Whether a process that has no point of the timeline may forget it.
    pub(crate) fn is_retired(&self) -> bool {
        self.0.load(RETIRED) != 0 || !self.0.is_owner_live(OWNER)
    }

    /// Whether the owner is alive, as far as its domain knows, which learns of a death shortly after it.
    /// Costs a load.
    pub(crate) fn is_owner_live(&self) -> bool {
        self.0.is_owner_live(OWNER)
    }

    /// Whether the owner is proven to be gone. Also notices a death that no process has noticed yet.
    pub(crate) fn is_owner_gone(&self) -> bool {
        self.0.is_member_gone(OWNER)
    }
}

impl Semaphores for TimelineControl {
    fn words(&self) -> &[AtomicU64] {
        slice::from_ref(self.0.word(DONE))
    }

    fn next_generation(&self, _number: u64) -> u64 {
        CUT_SHORT
    }

    fn writer(&self, _index: usize) -> u64 {
        self.0.load(OWNER)
    }

    fn is_gone(&self, writer: u64) -> bool {
        self.0.is_gone(writer)
    }

    /// What is reached stays known when waits for later points are cut short.
    fn cut_short(&self, _index: usize, _number: u64) {
        self.0.word(DONE).fetch_or(CUT_SHORT, Ordering::SeqCst);
    }

    fn is_reached(&self, _index: usize, number: u64) -> bool {
        self.done() >= number
    }

    fn is_cut_short(&self, _index: usize, number: u64) -> bool {
        self.0.load(DONE) >= CUT_SHORT && self.done() < number
    }

    fn is_abandoned(&self) -> bool {
        self.0.load(LAST) > self.done() && self.is_owner_gone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{MAGIC, table};
    use crate::raw::IPC_HANDLE_LEN_BYTES;

    #[test]
    fn the_block_is_as_the_document_says() {
        table::check_bytes(
            "Timeline block",
            N_WORDS * 8,
            &[
                ("magic", MAGIC, 8),
                ("owner", OWNER, 8),
                ("done", DONE, 8),
                ("means", MEANS, 8),
                ("retired", RETIRED, 8),
                ("last", LAST, 8),
                ("handles", HANDLES, N_EVENTS * IPC_HANDLE_LEN_BYTES),
            ],
        );
        assert_eq!(MAGIC_VALUE.to_le_bytes(), *b"TIME\x02\0\0\0");
    }
}
