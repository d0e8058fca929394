//! The block of an event that travels by itself.

use std::sync::atomic::{AtomicU64, Ordering};

use tensorferry_storage::{Heap, SharedBlock, StorageError};

use super::{Control, HANDLE_WORDS, Means, handle_words, magic, pack_member, unpack_member};
use crate::raw::IpcHandle;
use crate::semaphore::{self, Semaphores};

const MAGIC_VALUE: u64 = magic(*b"EVNT", 3);
const OWNER: usize = 1;
/// With events of the driver: the member that recorded it last.
const RECORDER: usize = 2;
/// With events of the driver: the member that is recording it; 0 if none is.
const RECORDING: usize = 3;
const MEANS: usize = 4;
const LAST: usize = 5;
const HANDLE: usize = 8;
const WRITERS: usize = HANDLE + HANDLE_WORDS;
const SEMAPHORES: usize = WRITERS + N_SLOTS;
const N_WORDS: usize = SEMAPHORES + N_SLOTS * RECORDS_PER_SLOT;

/// As many as a domain has members, and one.
const N_SLOTS: usize = 64;
const _: () = assert!(tensorferry_domain::MAX_MEMBERS < N_SLOTS);

/// The number of semaphores of each member, which it uses in turn, because its streams may reach their
/// records in any order.
pub(crate) const RECORDS_PER_SLOT: usize = 4;

/// In the word `last`: the slot of the member is above the number.
const SLOT_SHIFT: u32 = 56;
/// In a number: the generation is above the count. The members that have a slot one after the other have one
/// generation each.
const GENERATION_SHIFT: u32 = 40;
const _: () = assert!(1 << SLOT_SHIFT <= semaphore::LIMIT);

/// An event that travels by itself.
#[derive(Debug)]
pub(crate) struct EventControl(pub(crate) Control);

/// A record: the member's slot, and its number among the records of those who had the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) slot: u8,
    pub(crate) number: u64,
}

impl Record {
    /// The index of its semaphore.
    pub(crate) fn index(self) -> usize {
        let turn = usize::try_from(self.number % RECORDS_PER_SLOT as u64).unwrap_or(0);
        usize::from(self.slot) % N_SLOTS * RECORDS_PER_SLOT + turn
    }

    /// The next record of the same member; `None` after more than any member makes.
    pub(crate) fn next(self) -> Option<Self> {
        let number = self.number + 1;
        (generation_of(number) == generation_of(self.number)).then_some(Self { number, ..self })
    }

    /// The record of the same member and semaphore before it.
    pub(crate) fn before(self) -> Option<Self> {
        let number = self.number.checked_sub(RECORDS_PER_SLOT as u64)?;
        let is_first = generation_of(number) != generation_of(self.number) || count_of(number) == 0;
        (!is_first).then_some(Self { number, ..self })
    }
}

fn generation_of(number: u64) -> u64 {
    number >> GENERATION_SHIFT
}

fn count_of(number: u64) -> u64 {
    number & ((1 << GENERATION_SHIFT) - 1)
}

impl EventControl {
    /// For an event that cannot be recorded yet.
    pub(crate) fn create(heap: &Heap) -> Result<Self, StorageError> {
        let me = pack_member(heap.domain().me());
        Control::create(heap, N_WORDS, MAGIC_VALUE, &[(OWNER, me), (RECORDER, me)]).map(Self)
    }

    pub(crate) fn check(block: SharedBlock) -> Option<Self> {
        Control::check(block, N_WORDS, MAGIC_VALUE).map(Self)
    }

    /// Called by the owner, before another process learns of the event.
    pub(crate) fn wait_by_semaphores(&self) {
        self.0.word(MEANS).store(Means::Semaphores.code(), Ordering::Release);
    }

    /// As [`EventControl::wait_by_semaphores`], with the handle of an event of the driver.
    pub(crate) fn wait_by_event(&self, handle: &IpcHandle) {
        for (index, word) in (HANDLE..).zip(handle_words(handle)) {
            self.0.word(index).store(word, Ordering::Relaxed);
        }
        self.0.word(MEANS).store(Means::Events.code(), Ordering::Release);
    }

    pub(crate) fn means(&self) -> Means {
        Means::from_code(self.0.load(MEANS))
    }

    pub(crate) fn handle(&self) -> IpcHandle {
        self.0.handle_at(HANDLE)
    }

    /// The last record; `None` if the event was never recorded.
    pub(crate) fn last(&self) -> Option<Record> {
        let word = self.0.load(LAST);
        let number = word & ((1 << SLOT_SHIFT) - 1);
        let slot = u8::try_from(word >> SLOT_SHIFT).unwrap_or(u8::MAX);
        (number > 0).then_some(Record { slot, number })
    }

    /// The beginning of a generation for this process, which has not recorded the event yet: before its
    /// first record. Waits for records of whoever had the slot before are cut short. `None` if there were
    /// more of them than any event has.
    pub(crate) fn claim(&self) -> Option<Record> {
        let slot = self.0.heap()?.domain().me().slot;
        let last = self.last().filter(|last| last.slot == slot);
        let first = Record { slot, number: 0 }.index();
        let numbers = (first..first + RECORDS_PER_SLOT).map(|index| self.value(index));
        let highest = numbers.chain(last.map(|last| last.number)).max().unwrap_or(0);
        let number = self.next_generation(highest);
        if number >= 1 << SLOT_SHIFT {
            return None;
        }
        for index in first..first + RECORDS_PER_SLOT {
            // That the last record is reached stays known until there is another.
            if !last.is_some_and(|last| last.index() == index && self.is_reached(index, last.number))
                && let Some(word) = self.words().get(index)
            {
                word.fetch_max(number, Ordering::SeqCst);
            }
        }
        Some(Record { slot, number })
    }

    /// A stream of this process will reach the record, which is the last from now on.
    pub(crate) fn set_last(&self, record: Record) {
        if let Some(heap) = self.0.heap() {
            let me = pack_member(heap.domain().me());
            self.0.word(WRITERS + usize::from(record.slot) % N_SLOTS).store(me, Ordering::SeqCst);
        }
        let word = u64::from(record.slot) << SLOT_SHIFT | record.number & ((1 << SLOT_SHIFT) - 1);
        self.0.word(LAST).store(word, Ordering::SeqCst);
    }

    /// Whether this process made the record.
    pub(crate) fn is_mine(&self, record: Record) -> bool {
        let me = self.0.heap().map(|heap| heap.domain().me());
        me.is_some_and(|me| me.slot == record.slot && self.writer(record.index()) == pack_member(me))
    }

    /// With events of the driver: calls `record`, which records the event. At each moment the words say whose
    /// work a process that waits is waiting for, as long as no two members record at the same time: then
    /// either may count as the last.
    pub(crate) fn recording<R, E>(&self, record: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
        let Some(heap) = self.0.heap() else { return record() };
        let me = pack_member(heap.domain().me());
        let recording = self.0.word(RECORDING);
        recording.store(me, Ordering::SeqCst);
        let recorded = record();
        if recorded.is_ok() {
            self.0.word(RECORDER).store(me, Ordering::SeqCst);
        }
        // Another member may be recording meanwhile.
        let _ = recording.compare_exchange(me, 0, Ordering::SeqCst, Ordering::SeqCst);
        recorded
    }

    /// With events of the driver: whether nobody lives who could finish what was recorded last. A member that
    /// died while it was recording counts, although what was recorded before may still be what counts: nobody
    /// can tell.
    pub(crate) fn is_recorder_gone(&self) -> bool {
        let recording = self.0.load(RECORDING);
        self.0.is_gone(if recording == 0 { self.0.load(RECORDER) } else { recording })
    }

    pub(crate) fn is_owner_gone(&self) -> bool {
        self.0.is_member_gone(OWNER)
    }

    pub(crate) fn is_own(&self) -> bool {
        let owner = unpack_member(self.0.load(OWNER));
        self.0.heap().is_some_and(|heap| heap.domain().me() == owner)
    }
}

impl Semaphores for EventControl {
    fn words(&self) -> &[AtomicU64] {
        self.0.block().words().get(SEMAPHORES..N_WORDS).unwrap_or_default()
    }

    fn next_generation(&self, number: u64) -> u64 {
        (generation_of(number) + 1) << GENERATION_SHIFT
    }

    fn writer(&self, index: usize) -> u64 {
        self.0.load(WRITERS + index / RECORDS_PER_SLOT % N_SLOTS)
    }

    fn is_gone(&self, writer: u64) -> bool {
        self.0.is_gone(writer)
    }

    fn is_abandoned(&self) -> bool {
        self.last().is_some_and(|last| {
            !self.is_reached(last.index(), last.number) && self.0.is_gone(self.writer(last.index()))
        })
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
            "Event block",
            N_WORDS * 8,
            &[
                ("magic", MAGIC, 8),
                ("owner", OWNER, 8),
                ("recorder", RECORDER, 8),
                ("recording", RECORDING, 8),
                ("means", MEANS, 8),
                ("last", LAST, 8),
                ("handle", HANDLE, IPC_HANDLE_LEN_BYTES),
                ("writers", WRITERS, N_SLOTS * 8),
                ("semaphores", SEMAPHORES, N_SLOTS * RECORDS_PER_SLOT * 8),
            ],
        );
        assert_eq!(MAGIC_VALUE.to_le_bytes(), *b"EVNT\x03\0\0\0");
    }

    fn control() -> EventControl {
        let heap = Heap::create(tensorferry_domain::Domain::builder().address_space_bytes(1 << 30)).unwrap();
        EventControl::create(&heap).unwrap()
    }

    #[test]
    fn a_slot_that_somebody_had_before_begins_a_generation_and_lets_their_waiters_go() {
        let control = control();
        assert_eq!(control.last(), None);
        let me = control.0.heap().unwrap().domain().me().slot;
        let of_dead = control.claim().unwrap().next().unwrap();
        control.set_last(of_dead);
        assert_eq!(control.last(), Some(of_dead));
        assert!(!control.is_reached(of_dead.index(), of_dead.number));
        // A second claim of one process stands for that of another in the same slot.
        let first = control.claim().unwrap().next().unwrap();
        assert_eq!(first.slot, me);
        assert!(control.is_cut_short(of_dead.index(), of_dead.number), "nobody waits for it any more");
        assert!(!control.is_cut_short(first.index(), first.number));
        assert!(!control.is_reached(first.index(), first.number));
        control.words()[first.index()].store(first.number, Ordering::SeqCst);
        control.set_last(first);
        assert!(control.is_mine(first) && control.is_reached(first.index(), first.number));
        // A record that is reached stays so, until there is another.
        assert!(control.claim().unwrap().number > first.number);
        assert!(control.is_reached(first.index(), first.number));
    }

    #[test]
    fn records_of_one_semaphore_follow_each_other() {
        let begin = 3 << GENERATION_SHIFT;
        let record = Record { slot: 62, number: begin + 9 };
        let before = record.before().unwrap();
        assert_eq!((before.number, before.index()), (begin + 5, record.index()));
        assert_eq!(Record { slot: 0, number: begin + 4 }.before(), None);
        assert_eq!(Record { slot: 0, number: 3 }.before(), None);
        assert_eq!(record.next(), Some(Record { slot: 62, number: begin + 10 }));
        assert_eq!(Record { slot: 0, number: begin - 1 }.next(), None, "that is somebody else's");
        assert!(Record { slot: u8::MAX, number: u64::MAX }.index() < N_SLOTS * RECORDS_PER_SLOT);
    }
}
