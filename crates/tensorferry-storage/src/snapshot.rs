//! What lies in a domain and who holds it, as anybody can read it who has the domain's file.

#[cfg(test)]
mod hostile;
mod reader;
mod walk;

use std::os::fd::AsFd as _;

use serde::Serialize;
use tensorferry_domain::{DomainError, DomainFile, MemberInfo, Phase};
use tensorferry_os::pidfd::pid_namespace;

use crate::{Heap, LastOwner, StorageError};

/// What was in a domain at about one moment.
///
/// It is for people who look for what fills memory or what does not get on, and for figures that a service
/// publishes. The members go on while it is read, so what one part says need not fit to what another one
/// says: a message that is just being taken may be counted in its queue, at its receiver, at both, or at
/// neither. Nothing in the domain changes by it, and no member notices.
///
/// Slots of members are indexes of the process table ([`MemberSnapshot::slot`]).
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// Tells the domain from every other live one of this machine.
    pub domain_id: u64,
    /// How much all members together may populate, in bytes.
    pub limit_bytes: u64,
    /// How much they have populated, in bytes: what is held, what is kept for the next allocations, and
    /// headers.
    pub populated_bytes: u64,
    /// How many members have died and were swept since the domain was made.
    pub sweeps: u64,
    /// What somebody holds, by what it is.
    pub held: HeldByKind,
    /// Of that, what no member holds and no message in a queue names: its memory is just coming back, or
    /// arguments or a bundle of a dead member name it.
    pub in_doubt: Amount,
    /// Whoever has a slot of the process table, in order of the slots.
    pub members: Vec<MemberSnapshot>,
    /// Every queue, in the order in which they lie.
    pub queues: Vec<QueueSnapshot>,
    /// Every lock, event, semaphore and the like, in the order in which they lie.
    pub monitors: Vec<MonitorSnapshot>,
    /// The longest blocks that somebody holds, 16 at most, from the longest on.
    pub longest: Vec<BlockSnapshot>,
}

/// A number of blocks, and their lengths added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Amount {
    /// How many blocks.
    pub blocks: u64,
    /// The lengths that were asked for, added up, in bytes.
    pub bytes: u64,
}

impl Amount {
    pub(crate) fn add(&mut self, len_bytes: u64) {
        self.blocks += 1;
        self.bytes = self.bytes.saturating_add(len_bytes);
    }
}

/// What is held, by what it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HeldByKind {
    /// Tensors, values, arrays, and what describes memory of devices.
    pub data: Amount,
    /// Queues, with the short messages in them.
    pub queues: Amount,
    /// Messages that do not fit into the slot of a queue.
    pub long_messages: Amount,
    /// Arguments of processes that are being started.
    pub arguments: Amount,
    /// Locks, events, semaphores and the like.
    pub monitors: Amount,
    /// Bundles: the lists, without the tensors that they name.
    pub bundles: Amount,
}

/// One member of the domain.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct MemberSnapshot {
    /// Its index in the process table.
    pub slot: u8,
    /// Which of the successive users of this slot it is.
    pub epoch: u32,
    /// Where it is on its way from being admitted to being swept.
    pub state: MemberState,
    /// Its process; `None` where that has a number of another PID namespace than this process.
    pub pid: Option<u32>,
    /// Everything that it holds.
    pub holds: Amount,
    /// Of that, what nobody else holds or has in a bundle, and no message names that waits in a queue or is
    /// leased: what would come back if it ended.
    pub holds_alone: Amount,
    /// What it has populated in the extents that it owns, in bytes. Others may hold blocks in there.
    pub owns_bytes: u64,
    /// Of that, what is kept for its next allocations, as it has published last, in bytes.
    pub cached_bytes: u64,
}

/// The state of a process slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MemberState {
    /// It was admitted and has not joined yet.
    Invited,
    /// It is a member.
    Live,
    /// It has died, and is being swept.
    Dead,
}

impl MemberState {
    fn of(phase: Phase) -> Option<Self> {
        match phase {
            Phase::Admitting | Phase::Invited => Some(Self::Invited),
            Phase::Live => Some(Self::Live),
            Phase::Dead => Some(Self::Dead),
            _ => None,
        }
    }
}

/// One queue.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct QueueSnapshot {
    /// Tells it from the other queues that are there.
    pub id: u64,
    /// How many messages it takes before a sender has to wait.
    pub capacity_items: usize,
    /// Messages that wait for a receiver, with those that were leased and came back.
    pub waiting_items: usize,
    /// What these messages name, and long ones themselves. Who has put them holds it until they are taken.
    pub waiting: Amount,
    /// Messages that were put since it was made.
    pub put_items: u64,
    /// How many messages can be leased at a time; 0 for a queue without leases.
    pub max_leases: usize,
    /// Leased messages that were not acknowledged yet, by the slot of who has them, in order of the slots.
    pub leased_items: Vec<(u8, usize)>,
    /// Slots of the members that can put.
    pub senders: Vec<u8>,
    /// Slots of the members that can get.
    pub receivers: Vec<u8>,
    /// Slots of the members that are in the middle of putting or getting a message. One that is here in each
    /// of several snapshots has been stopped there.
    pub in_progress: Vec<u8>,
    /// Whether it was closed: nothing more can be put.
    pub is_closed: bool,
    /// Members that could put and have died.
    pub sender_deaths: u64,
    /// Members that could get and have died.
    pub receiver_deaths: u64,
}

/// One lock, event, semaphore or the like.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct MonitorSnapshot {
    /// Tells it from the others that are there.
    pub id: u64,
    /// What it is used for, as a number ([`Monitor::create`](crate::Monitor::create)).
    pub purpose: u64,
    /// The slot of who has it locked. What is no lock is locked only for the time of one call.
    pub locked_by: Option<u8>,
    /// How its last owner has left it, if it has died or panicked and nobody has made that good.
    pub left_by: Option<LastOwner>,
    /// What live members have taken of it, by their slots: permits of a semaphore, for instance.
    pub shares: Vec<(u8, u32)>,
    /// Slots of the members that have a handle on it.
    pub holders: Vec<u8>,
    /// Members that had a handle on it and have died.
    pub deaths: u64,
}

/// One block of memory.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct BlockSnapshot {
    /// Tells it from the other blocks that are there.
    pub id: u64,
    /// What it is.
    pub kind: BlockKind,
    /// The length that was asked for, in bytes.
    pub len_bytes: u64,
    /// Slots of the members that hold it.
    pub holders: Vec<u8>,
    /// The queue in which a message waits that names it ([`QueueSnapshot::id`]).
    pub waits_in: Option<u64>,
}

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BlockKind {
    /// A tensor, a value, an array, or what describes memory of a device.
    Data,
    /// A queue.
    Queue,
    /// A message that does not fit into the slot of a queue.
    LongMessage,
    /// Arguments of a process that is being started.
    Arguments,
    /// A lock, an event, a semaphore or the like.
    Monitor,
    /// The list of a bundle.
    Bundle,
}

impl Snapshot {
    /// Reads all headers of the domain, its queues and monitors, and what bundles and long messages name. No
    /// data is read. Time goes with the number of blocks.
    ///
    /// # Errors
    /// The kernel's error of pread(2) or fstat(2). What makes no sense is left out. So is the rest of a
    /// domain that would take much more reading than its file has memory, as one made up of holes does.
    pub fn read(file: &DomainFile) -> Result<Self, StorageError> {
        let runs = file.runs()?;
        let mut snapshot = Self {
            domain_id: file.id(),
            limit_bytes: file.limit_bytes()?,
            populated_bytes: runs.iter().fold(0, |sum, run| sum.saturating_add(run.populated_bytes)),
            sweeps: file.sweeps()?,
            held: HeldByKind::default(),
            in_doubt: Amount::default(),
            members: members(file)?,
            queues: Vec::new(),
            monitors: Vec::new(),
            longest: Vec::new(),
        };
        reader::Reader::new(file, &runs, &mut snapshot)?.read()?;
        Ok(snapshot)
    }

    /// The member in this slot.
    #[must_use]
    pub fn member(&self, slot: u8) -> Option<&MemberSnapshot> {
        self.members.iter().find(|member| member.slot == slot)
    }
}

impl Heap {
    /// What is in this heap's domain now.
    ///
    /// # Errors
    /// As [`Snapshot::read`]; EMFILE when no descriptor is left; [`StorageError::Domain`] in a fork of a
    /// member.
    pub fn snapshot(&self) -> Result<Snapshot, StorageError> {
        self.check_owning_process()?;
        let file = self.domain().as_fd().try_clone_to_owned();
        let file = file.map_err(|e| tensorferry_os::Error::new("duplicating a descriptor of the domain", e));
        Snapshot::read(&DomainFile::open(file.map_err(DomainError::from)?)?)
    }
}

fn members(file: &DomainFile) -> Result<Vec<MemberSnapshot>, StorageError> {
    let here = pid_namespace();
    let snapshot = |info: MemberInfo| {
        let is_here = here == 0 || info.identity.namespace == 0 || info.identity.namespace == here;
        Some(MemberSnapshot {
            slot: info.member.slot,
            epoch: info.member.epoch,
            state: MemberState::of(info.phase)?,
            pid: is_here.then_some(info.identity.pid),
            holds: Amount::default(),
            holds_alone: Amount::default(),
            owns_bytes: 0,
            cached_bytes: info.cached_bytes,
        })
    };
    Ok(file.members()?.into_iter().filter_map(snapshot).collect())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;
    use std::sync::atomic::Ordering;
    use std::sync::{Arc, OnceLock};

    use proptest::prelude::*;
    use tensorferry_domain::{Domain, Layout, PidFd};
    use tensorferry_os::memfd;

    use super::*;
    use crate::record::RecordTag;
    use crate::ring_layout::RingWords;
    use crate::slot::{SlotState, Tag};
    use crate::{Bundle, Consumers, Deadline, Monitor, OutgoingHandle, OutgoingHandles, Parcel, Ring};

    fn heap() -> Heap {
        Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap()
    }

    #[test]
    fn what_a_process_holds_is_counted_by_what_it_is() {
        let heap = heap();
        let before = heap.snapshot().unwrap();
        assert_eq!((before.domain_id, before.held.data.blocks), (heap.domain().id(), 0));
        let small = heap.allocate(100).unwrap().freeze();
        let large = heap.allocate(3 << 20).unwrap();
        let handles: OutgoingHandles = OutgoingHandle::frozen(&small).into_iter().collect();
        let _bundle = Bundle::pack(&heap, b"", handles).unwrap();
        let now = heap.snapshot().unwrap();
        assert_eq!(now.held.data, Amount { blocks: 2, bytes: 100 + (3 << 20) });
        assert_eq!(now.held.bundles.blocks, 1);
        assert_eq!((now.longest[0].len_bytes, &now.longest[0].holders[..]), (3 << 20, &[0][..]));
        assert_eq!((now.longest.len(), now.longest[0].kind), (3, BlockKind::Data));
        let [me] = &now.members[..] else { panic!("{:?}", now.members) };
        assert_eq!((me.slot, me.state, me.pid), (0, MemberState::Live, Some(std::process::id())));
        assert_eq!((me.holds, me.holds.blocks), (me.holds_alone, 3));
        assert_eq!(me.owns_bytes, now.populated_bytes);
        assert!(now.populated_bytes > 3 << 20);
        drop((small, large));
        let after = heap.snapshot().unwrap();
        assert_eq!(after.held.data, Amount { blocks: 1, bytes: 100 }, "the bundle keeps one");
    }

    #[test]
    fn a_queue_says_what_waits_and_who_has_leases() {
        let heap = heap();
        let ring = Arc::new(Ring::create_with_leases(&heap, 4, 2, 0).unwrap());
        let put = || ring.put(b"", OutgoingHandles::new(), Deadline::Now).unwrap();
        (0..4).for_each(|_| put());
        let lease = ring.take_leased(Deadline::Now).unwrap();
        ring.take(Consumers::Multi, Deadline::Now).unwrap();
        put();
        let [queue] = &heap.snapshot().unwrap().queues[..] else { panic!("one queue") };
        assert_eq!((queue.capacity_items, queue.max_leases), (4, 2));
        assert_eq!((queue.waiting_items, queue.put_items), (3, 5));
        assert_eq!(queue.leased_items, [(0, 1)]);
        assert_eq!((&queue.senders[..], &queue.receivers[..]), (&[0][..], &[0][..]));
        assert!(!queue.is_closed && queue.in_progress.is_empty());
        drop(lease);
        ring.close();
        let [queue] = &heap.snapshot().unwrap().queues[..] else { panic!("one queue") };
        assert_eq!((queue.waiting_items, &queue.leased_items[..]), (4, &[][..]), "it came back");
        assert!(queue.is_closed);
    }

    #[test]
    fn what_waits_in_a_queue_is_that_queues_and_nobodys_alone() {
        let heap = heap();
        let ring = Arc::new(Ring::create_with_leases(&heap, 2, 1, 0).unwrap());
        let block = |len_bytes| heap.allocate(len_bytes).unwrap().freeze();
        let (sent, bundled, kept) = (block(1 << 20), block(2 << 20), block(100));
        let bundle = Bundle::pack(&heap, b"", OutgoingHandle::frozen(&bundled).into_iter().collect());
        let bundle = bundle.unwrap();
        // Too long for a slot.
        let payload = [0; 1000];
        let handles = OutgoingHandles::from_iter([
            OutgoingHandle::frozen(&sent).unwrap(),
            OutgoingHandle::bundle(&bundle),
        ]);
        ring.put(&payload, handles, Deadline::Now).unwrap();
        drop((sent, bundled, bundle));
        let look = || heap.snapshot().unwrap();
        let (now, waits) = (look(), look().queues[0].waiting);
        assert!(waits.blocks == 4 && waits.bytes > (3 << 20) + 1000, "{waits:?}: with message and bundle");
        assert_eq!(now.members[0].holds_alone.bytes, 100 + now.held.queues.bytes, "{kept:?}");
        assert_eq!((now.longest[0].len_bytes, now.longest[0].waits_in), (2 << 20, Some(now.queues[0].id)));
        // Whoever has a lease has what it names, until it dies.
        let lease = ring.take_leased(Deadline::Now).unwrap();
        assert_eq!((look().queues[0].waiting.blocks, look().queues[0].leased_items.len()), (0, 1));
        assert_eq!(look().members[0].holds_alone, now.members[0].holds_alone);
        drop(lease);
        assert_eq!(look().queues[0].waiting, waits, "it came back");
    }

    #[test]
    fn what_waits_in_two_queues_waits_in_both_and_a_queue_in_a_message_does_too() {
        let heap = heap();
        let [one, other] = [(); 2].map(|()| Ring::create(&heap, 2, 0).unwrap());
        let sent = Ring::create(&heap, 1000, 0).unwrap();
        let block = heap.allocate(1 << 20).unwrap().freeze();
        for ring in [&one, &other] {
            let handles = OutgoingHandle::frozen(&block).into_iter().collect();
            ring.put(b"", handles, Deadline::Now).unwrap();
        }
        let end = OutgoingHandles::from_iter([OutgoingHandle::ring(sent.attachment())]);
        one.put(b"", end, Deadline::Now).unwrap();
        drop((sent, block));
        let now = heap.snapshot().unwrap();
        let waiting = now.queues.iter().map(|queue| queue.waiting.blocks).collect::<Vec<_>>();
        assert_eq!(waiting, [2, 1, 0]);
        assert_eq!(now.members[0].holds_alone.blocks, 2, "both queues, that is");
    }

    #[test]
    fn a_bundle_that_waits_in_many_queues_waits_whole_in_each() {
        let heap = heap();
        let blocks = (0..10_000).map(|_| heap.allocate(1).unwrap().freeze()).collect::<Vec<_>>();
        let bundle = Bundle::pack(&heap, b"", blocks.iter().filter_map(OutgoingHandle::frozen).collect());
        let bundle = bundle.unwrap();
        let rings = [(); 60].map(|()| Ring::create(&heap, 1, 0).unwrap());
        for ring in &rings {
            let handles = OutgoingHandles::from_iter([OutgoingHandle::bundle(&bundle)]);
            ring.put(b"", handles, Deadline::Now).unwrap();
        }
        let now = heap.snapshot().unwrap();
        let waiting = now.queues.iter().map(|queue| queue.waiting.blocks).collect::<Vec<_>>();
        assert_eq!(waiting, [1 + 10_000; 60]);
    }

    #[test]
    fn what_others_have_in_a_bundle_is_not_its_makers_alone() {
        let heap = heap();
        let admission = heap.domain().admit(&PidFd::of_self().unwrap()).unwrap();
        let other = Heap::attach(heap.domain().fds().unwrap(), admission).unwrap();
        let ring = Ring::create(&heap, 1, 0).unwrap();
        let block = heap.allocate(1 << 20).unwrap().freeze();
        let handles = OutgoingHandle::frozen(&block).into_iter().collect();
        let bundle = Bundle::pack(&heap, b"", handles).unwrap();
        drop(block);
        let end = Parcel::pack(&heap, b"", OutgoingHandles::from_iter([OutgoingHandle::bundle(&bundle)]));
        drop(ring);
        let opened = Parcel::open(&other, end.unwrap().id()).unwrap();
        let now = heap.snapshot().unwrap();
        assert_eq!(now.members[0].holds_alone.bytes, 0, "{:?}", now.members);
        drop((opened, bundle));
    }

    #[test]
    fn a_message_in_the_middle_has_its_member() {
        let heap = heap();
        let ring = Ring::create_with_leases(&heap, 4, 1, 0).unwrap();
        let words = RingWords::of(ring.attachment().block()).unwrap();
        let in_progress = || heap.snapshot().unwrap().queues.remove(0).in_progress;
        for tag in [Tag::Writing, Tag::Claimed, Tag::Moved] {
            let state = SlotState { lap: 0, owner: 62, tag };
            words.slot(1).state_word().store(state.pack(), Ordering::SeqCst);
            assert_eq!(in_progress(), [62], "{tag:?}");
        }
        // Nobody has such a slot.
        let state = SlotState { lap: 0, owner: 63, tag: Tag::Writing };
        words.slot(1).state_word().store(state.pack(), Ordering::SeqCst);
        assert_eq!(in_progress(), []);
        let free = words.record(0).state();
        assert!(words.record(0).change(free, free.owned(5, RecordTag::Taking)));
        assert_eq!(in_progress(), [5]);
        assert!(words.record(0).change(free.owned(5, RecordTag::Taking), free));
        words.slot(1).state_word().store(SlotState::free(0).pack(), Ordering::SeqCst);
    }

    #[test]
    fn a_queue_of_many_slots_is_read_to_its_end() {
        let heap = heap();
        let ring = Ring::create(&heap, 5000, 0).unwrap();
        (0..5000).for_each(|_| ring.put(b"", OutgoingHandles::new(), Deadline::Now).unwrap());
        assert_eq!(heap.snapshot().unwrap().queues[0].waiting_items, 5000);
    }

    #[test]
    fn a_lock_says_who_has_it() {
        let heap = heap();
        let monitor = Monitor::create(&heap, 7).unwrap();
        let look = || heap.snapshot().unwrap().monitors.swap_remove(0);
        assert_eq!((look().purpose, look().locked_by, look().shares), (7, None, vec![]));
        let entered = monitor.enter(Deadline::Now).unwrap();
        assert_eq!((look().locked_by, look().holders), (Some(0), vec![0]));
        drop(entered);
        assert_eq!((look().locked_by, look().left_by), (None, None));
        let panics = || {
            let _entered = monitor.enter(Deadline::Now).unwrap();
            std::panic::resume_unwind(Box::new("on purpose"));
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert_eq!(look().left_by, Some(LastOwner::Panicked));
    }

    /// The first bytes of a domain's file, with a queue and a monitor in it.
    const DATA_AT: usize = 2 << 20;
    const COPY_BYTES: usize = DATA_AT + (300 << 10);

    fn copy_of_a_domain() -> &'static [u8] {
        static COPY: OnceLock<Vec<u8>> = OnceLock::new();
        COPY.get_or_init(|| {
            let heap = heap();
            let ring = Arc::new(Ring::create_with_leases(&heap, 4, 2, 0).unwrap());
            ring.put(b"", OutgoingHandles::new(), Deadline::Now).unwrap();
            let _lease = ring.take_leased(Deadline::Now).unwrap();
            let _monitor = Monitor::create(&heap, 7).unwrap();
            let _blocks = [heap.allocate(1).unwrap(), heap.allocate(1 << 20).unwrap()];
            assert_eq!(heap.domain().layout().data_offset_bytes, DATA_AT);
            let mut bytes = vec![0; COPY_BYTES];
            memfd::read_exact_at(heap.domain(), &mut bytes, 0).unwrap();
            bytes
        })
    }

    fn domain_file(bytes: &[u8]) -> DomainFile {
        let file = memfd::create_sealed("copy", Layout::with_data_len(64 << 20).file_len_bytes() as u64);
        let file = File::from(file.unwrap());
        file.write_all_at(bytes, 0).unwrap();
        DomainFile::open(file.into()).unwrap()
    }

    #[test]
    fn a_copy_of_a_domain_reads_as_the_domain() {
        let snapshot = Snapshot::read(&domain_file(copy_of_a_domain())).unwrap();
        assert_eq!((snapshot.queues.len(), snapshot.monitors.len(), snapshot.members.len()), (1, 1, 1));
        assert_eq!(snapshot.queues[0].leased_items, [(0, 1)]);
        assert_eq!(snapshot.held.data, Amount { blocks: 2, bytes: (1 << 20) + 1 });
    }

    #[test]
    fn lines_that_name_one_span_again_and_again_are_read_once() {
        let honest = Snapshot::read(&domain_file(copy_of_a_domain())).unwrap();
        let mut bytes = copy_of_a_domain().to_vec();
        let geometry = crate::geometry::Geometry::new(&Layout::with_data_len(64 << 20));
        let lines = DATA_AT + 64 * geometry.first_span_line();
        let last = geometry.n_lines() - geometry.first_span_line();
        // All lines are as the first one, and the head says that they are in use.
        for line in 1..last {
            bytes.copy_within(lines..lines + 64, lines + 64 * line);
        }
        bytes[DATA_AT..][..8].copy_from_slice(&(geometry.n_lines() as u64).to_ne_bytes());
        let snapshot = Snapshot::read(&domain_file(&bytes)).unwrap();
        assert!(snapshot.held.data.blocks + snapshot.held.queues.blocks <= 63, "{:?}", snapshot.held);
        assert!(snapshot.queues.len() <= honest.queues.len());
    }

    proptest! {
        #[test]
        fn words_that_somebody_wrote_over_are_no_reason_to_panic(
            // Behind the head of the file, which says that it is a domain.
            tables in prop::collection::vec((64_usize..16 << 10, any::<u64>(), any::<bool>()), 0..50),
            data in prop::collection::vec((DATA_AT..COPY_BYTES, any::<u64>(), any::<bool>()), 0..2000),
        ) {
            let mut bytes = copy_of_a_domain().to_vec();
            for (at, word, is_small) in tables.into_iter().chain(data) {
                let word = if is_small { word % 70 } else { word };
                bytes[at & !7..][..8].copy_from_slice(&word.to_ne_bytes());
            }
            Snapshot::read(&domain_file(&bytes)).unwrap();
        }
    }
}
