//! Pins: handles that this process sent in messages which, as far as it has looked, no receiver has taken.
//!
//! A sender keeps its holder bit until the message is taken, that is, until the slot has moved on, whether it
//! owns the block or not. There is no acknowledgement and no shared count: the sender looks at the slot. A
//! receiver sets its own bit before it frees the slot, so a sender that sees the slot freed sees that bit.
//!
//! The sender does not look after each message, but after a few. By then the receiver has often let go of the
//! block too, and the block's header, which both write, has moved between the processors once and not twice.

use std::collections::VecDeque;
use std::fmt;
use std::hint::cold_path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrayvec::ArrayVec;
use smallvec::SmallVec;

use crate::block::Block;
use crate::message::{OutgoingHandle, OutgoingHandles};
use crate::record::RecordState;
use crate::ring_layout::{RingShape, RingWords};
use crate::slot::SlotState;

/// The pins of all rings that this process sends to.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    lists: Mutex<Vec<Arc<PinList>>>,
}

/// The pins of one ring, oldest first.
#[derive(Debug)]
pub(crate) struct PinList {
    ring: Block,
    shape: RingShape,
    pins: Mutex<Queued>,
}

#[derive(Default)]
struct Queued {
    pins: VecDeque<Pin>,
    /// What was pinned since old pins were last looked at.
    handles_since_look: usize,
    bytes_since_look: usize,
    /// Whether something was pinned since [`Pins::take_use`] was last called.
    is_used: bool,
}

/// A handle of a message, or all of them. A message with two handles has two pins.
#[derive(Debug)]
struct Pin {
    at: PinnedAt,
    pinned: Pinned,
}

/// Two words, as a handle is.
#[derive(Debug)]
enum Pinned {
    Handle(OutgoingHandle),
    Handles(Box<OutgoingHandles>),
}

const _: () = assert!(size_of::<Pinned>() == size_of::<OutgoingHandle>());

/// Where a message waits for a receiver. It consists of whole words: a struct with smaller fields is copied
/// in pieces, and a processor that has just written the pieces stalls on the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PinnedAt {
    /// The position of a slot, or the index of a record.
    at: u64,
    /// The state of the record since the message waits there, or [`IN_A_SLOT`].
    record: u64,
}

/// No record has this state.
const IN_A_SLOT: u64 = u64::MAX;

impl PinnedAt {
    /// In the slot of this position.
    pub(crate) fn slot(position: u64) -> Self {
        Self { at: position, record: IN_A_SLOT }
    }

    /// Whether a message that is delivered and given back waits in the same state again.
    fn may_repeat(self) -> bool {
        self.record != IN_A_SLOT && RecordState::unpack(self.record).deliveries == u16::MAX
    }

    /// In this record, since it had this state.
    pub(crate) fn record(index: usize, state: RecordState) -> Self {
        Self { at: index as u64, record: state.pack() }
    }
}

/// Old pins are looked at when this many handles, or this many bytes, were pinned since the last look. To
/// keep long tensors longer than needed would cost more than the traffic on their headers.
const LOOK_AFTER_HANDLES: usize = 8;
const LOOK_AFTER_BYTES: usize = 64 << 10;
/// What this process keeps anyway is not kept by its pin: to let go of it early frees nothing, and fetches
/// the lines that its receiver is at. So only this part of it counts. It counts at all because this process
/// may stop keeping it before the next look, which then is due after 8 MiB.
const PARTS_OF_WHAT_IS_KEPT: usize = 128;
/// At most this many pins go at a time: more than were added since the last look, so that the list shrinks
/// again.
const GO_AT_A_TIME: usize = 2 * LOOK_AFTER_HANDLES;

impl Pins {
    /// Makes a list for a ring that this process may send to.
    pub(crate) fn list_for(&self, ring: Block, shape: RingShape) -> Arc<PinList> {
        let list = Arc::new(PinList { ring, shape, pins: Mutex::default() });
        self.lists().push(Arc::clone(&list));
        list
    }

    /// Called when the ring's end is dropped: forgets its list, unless messages are still pinned in it.
    pub(crate) fn close(&self, list: Arc<PinList>) {
        list.retire_all();
        let gone: Vec<_> = {
            let mut lists = self.lists();
            let is_done = |other: &Arc<PinList>| Arc::ptr_eq(other, &list) && other.lock().pins.is_empty();
            lists.extract_if(.., |other| is_done(other)).collect()
        };
        // Dropping the last handle on a ring may need the arena, so not under the lock of the lists.
        drop((gone, list));
    }

    /// In a process that was forked: takes everything that its parent keeps for messages in flight, to be
    /// dropped here.
    pub(crate) fn take_all(&self) -> impl Sized + use<> {
        let mut lists = self.lists();
        let pinned: Vec<_> = lists.iter().map(|list| list.lock().take_all()).collect();
        // Nothing but a pin kept the ring of a list that no end has any more.
        let gone: Vec<_> = lists.extract_if(.., |list| Arc::strong_count(list) == 1).collect();
        (pinned, gone)
    }

    /// Whether anything is pinned. A thread that pins afterwards sees everything that the caller wrote
    /// before.
    pub(crate) fn any(&self) -> bool {
        self.lists().iter().any(|list| !list.lock().pins.is_empty())
    }

    /// Whether anything was pinned since the last call.
    pub(crate) fn take_use(&self) -> bool {
        let mut is_used = false;
        for list in &*self.lists() {
            is_used |= std::mem::take(&mut list.lock().is_used);
        }
        is_used
    }

    /// How many messages are pinned.
    pub(crate) fn len(&self) -> usize {
        self.lists().iter().map(|list| list.lock().n_messages()).sum()
    }

    /// Lets go of all pins whose slot has moved on, and of lists that are no longer needed.
    pub(crate) fn retire(&self) {
        let lists: Vec<_> = self.lists().clone();
        for list in &lists {
            list.retire_all();
        }
        drop(lists);
        let gone: Vec<_> = {
            let mut lists = self.lists();
            lists.extract_if(.., |list| Arc::strong_count(list) == 1 && list.lock().pins.is_empty()).collect()
        };
        // Dropping the last handle on a ring may need the arena, so not under the lock of the lists.
        drop(gone);
    }

    fn lists(&self) -> MutexGuard<'_, Vec<Arc<PinList>>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PinList {
    /// Takes and pins the handles of a message, and looks at old pins when that is due.
    pub(crate) fn pin(&self, ring: &RingWords<'_>, at: PinnedAt, handles: &mut OutgoingHandles) {
        let mut queued = self.lock();
        let is_due = queued.count(handles);
        queued.is_used = true;
        let is_kept = queued.has_such(at);
        if !is_kept {
            queued.push(at, handles);
        }
        if is_due {
            let mut retired = Retired::new();
            queued.take_retired(ring, &mut retired);
            drop(queued);
            expect_drop(&retired);
        } else {
            drop(queued);
        }
        if is_kept {
            cold_path();
            handles.clear();
        }
        self.ring.heap().inner().memory.wake_service_if_idle();
    }

    /// Lets go of all pins whose slot has moved on, in whatever order the slots did.
    pub(crate) fn retire_all(&self) {
        let mut retired = SmallVec::<[Pinned; GO_AT_A_TIME]>::new();
        let is_owning_process = self.ring.heap().is_owning_process();
        let ring = if is_owning_process { RingWords::with_shape(&self.ring, self.shape) } else { None };
        {
            let pins = &mut self.lock().pins;
            for _ in 0..pins.len() {
                let Some(pin) = pins.pop_front() else { break };
                if ring.as_ref().is_none_or(|ring| settle(ring, pin.at)) {
                    retired.push(pin.pinned);
                } else {
                    pins.push_back(pin);
                }
            }
        }
        drop(retired);
    }

    fn lock(&self) -> MutexGuard<'_, Queued> {
        self.pins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was pinned for messages that were taken.
type Retired = ArrayVec<Pinned, GO_AT_A_TIME>;

/// Announces that what was pinned is about to be dropped: all headers are asked for before the first one is
/// needed. Dropping the last handle on a block may need the arena, so no lock is held then.
fn expect_drop(retired: &Retired) {
    for pinned in retired {
        match pinned {
            Pinned::Handle(handle) => handle.expect_drop(),
            Pinned::Handles(handles) => handles.iter().for_each(OutgoingHandle::expect_drop),
        }
    }
}

impl fmt::Debug for Queued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queued").field("n_messages", &self.n_messages()).finish_non_exhaustive()
    }
}

impl Queued {
    /// Counts what is about to be pinned. Returns whether it is time to look at the old pins.
    #[inline]
    fn count(&mut self, handles: &[OutgoingHandle]) -> bool {
        self.handles_since_look += handles.len();
        if self.handles_since_look >= LOOK_AFTER_HANDLES {
            return true;
        }
        let kept_bytes = handles.iter().map(OutgoingHandle::kept_bytes);
        let bytes = kept_bytes.fold(self.bytes_since_look, usize::saturating_add);
        if bytes < LOOK_AFTER_BYTES {
            self.bytes_since_look = bytes;
            return false;
        }
        let pinned = handles.iter().map(|handle| {
            let parts = if handle.looks_kept() { PARTS_OF_WHAT_IS_KEPT } else { 1 };
            handle.kept_bytes() / parts
        });
        self.bytes_since_look = pinned.fold(self.bytes_since_look, usize::saturating_add);
        self.bytes_since_look >= LOOK_AFTER_BYTES
    }

    /// Takes the oldest pins out of the list, as far as their messages were taken.
    fn take_retired(&mut self, ring: &RingWords<'_>, retired: &mut Retired) {
        (self.handles_since_look, self.bytes_since_look) = (0, 0);
        // The head passes only messages that were taken, so most pins need no look at their slots.
        let head = ring.head().load(Ordering::Acquire);
        let is_passed = |at: PinnedAt| at.record == IN_A_SLOT && at.at < head;
        let has_gone = |at: PinnedAt| is_passed(at) || settle(ring, at);
        while !retired.is_full()
            && let Some(pin) = self.pins.pop_front_if(|pin| has_gone(pin.at))
        {
            // There is room.
            let _ = retired.try_push(pin.pinned);
        }
    }

    #[inline]
    fn push(&mut self, at: PinnedAt, handles: &mut OutgoingHandles) {
        if handles.spilled() {
            cold_path();
            let all = Box::new(std::mem::take(handles));
            self.pins.push_back(Pin { at, pinned: Pinned::Handles(all) });
            return;
        }
        while let Some(handle) = handles.pop() {
            self.pins.push_back(Pin { at, pinned: Pinned::Handle(handle) });
        }
    }

    /// How many messages are pinned. The pins of one message lie side by side.
    fn n_messages(&self) -> usize {
        let mut last = None;
        self.pins.iter().filter(|pin| last.replace(pin.at) != Some(pin.at)).count()
    }

    /// Whether there is a pin already for a message that waits in the same state each time: a record whose
    /// count of deliveries has reached its limit. It is the same message, so one pin is enough.
    fn has_such(&self, at: PinnedAt) -> bool {
        at.may_repeat() && self.pins.iter().any(|pin| pin.at == at)
    }

    /// Everything that is pinned, which nothing is any more then.
    fn take_all(&mut self) -> impl Sized + use<> {
        std::mem::take(&mut self.pins)
    }
}

/// Discards the message if no receiver can take it any more: none is attached, and no message in flight would
/// attach one. Returns whether the message is gone, so that its pin can go.
fn settle(ring: &RingWords<'_>, pinned: PinnedAt) -> bool {
    let is_lost = || ring.receivers().load(Ordering::SeqCst) == 0;
    if pinned.record == IN_A_SLOT {
        let (index, lap) = ring.shape().slot_and_lap(pinned.at);
        let slot = ring.slot(index);
        let (state, ready) = (slot.state(), SlotState::ready(lap));
        // The likely case: it was taken.
        return state.lap > lap
            || state == ready
                && is_lost()
                // Looked at again: the last receiver may have taken it before it left.
                && slot.state() == ready
                && {
                    // Before it is discarded, so that nobody takes it for done.
                    ring.lost().store(1, Ordering::SeqCst);
                    slot.change(ready, SlotState::free_after(lap)) || slot.state().lap > lap
                };
    }
    let record = ring.record(usize::try_from(pinned.at).unwrap_or(0));
    let returned = RecordState::unpack(pinned.record);
    if record.state() == returned && is_lost() && record.state() == returned {
        ring.lost().store(1, Ordering::SeqCst);
        record.change(returned, returned.freed());
    }
    let state = record.state();
    // While a receiver takes it, it may still come back, because that receiver may die.
    state.serial != returned.serial || state.deliveries != returned.deliveries
}

#[cfg(test)]
mod tests {
    use tensorferry_domain::Domain;

    use super::*;
    use crate::{Consumers, Deadline, FrozenBlock, Heap, Ring};

    #[test]
    fn a_message_that_is_given_back_for_ever_is_pinned_once() {
        let heap = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
        let ring = Arc::new(Ring::create_with_leases(&heap, 4, 2, 0).unwrap());
        let handles =
            OutgoingHandles::from_iter(OutgoingHandle::frozen(&heap.allocate(64).unwrap().freeze()));
        ring.put(b"", handles, Deadline::Now).unwrap();
        // The count of deliveries stops at 65,535.
        for _ in 0..65_535 + 1_000 {
            drop(ring.take_leased(Deadline::Now).unwrap());
        }
        heap.collect();
        let n_pins: usize = heap.inner().pins.lists().iter().map(|list| list.lock().pins.len()).sum();
        assert_eq!(n_pins, 1);
    }

    #[test]
    fn pins_of_a_long_block_are_looked_at_with_each_message_unless_its_sender_keeps_it() {
        let heap = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
        // The service thread, which lets go of pins from time to time, waits meanwhile.
        let _one_at_a_time = heap.inner().collecting.lock().unwrap();
        let ring = Ring::create(&heap, 8, 0).unwrap();
        let block = |len_bytes| heap.allocate(len_bytes).unwrap().freeze();
        let n_pins_after = |value: &FrozenBlock| {
            let handles = OutgoingHandles::from_iter(OutgoingHandle::frozen(value));
            ring.put(b"", handles, Deadline::Now).unwrap();
            drop(ring.take(Consumers::Multi, Deadline::Now).unwrap());
            heap.inner().pins.len()
        };
        let kept = block(LOOK_AFTER_BYTES);
        assert_eq!([(); 3].map(|()| n_pins_after(&kept.clone())), [1, 2, 3]);
        // Nobody has these but the value that is sent.
        assert_eq!([(); 3].map(|()| n_pins_after(&block(LOOK_AFTER_BYTES))), [1, 1, 1]);
        let very_long = block(PARTS_OF_WHAT_IS_KEPT * LOOK_AFTER_BYTES);
        assert_eq!([(); 3].map(|()| n_pins_after(&very_long.clone())), [1, 1, 1]);
    }
}
