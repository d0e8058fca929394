//! The table of handles of the message that this thread is building or reading.

use std::cell::RefCell;
use std::hint::cold_path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tensorferry_storage::{
    Attachment, BlockId, Bundle, ExclusiveBlock, FrozenBlock, Heap, IncomingHandle, IncomingHandles, Monitor,
    OutgoingHandle, OutgoingHandles, ReceivedMonitor, SharedBlock,
};

use crate::{HandleIndex, HandleKind, TransitError, count_copied};

/// The number of latest entries that are searched for a handle on the same block before it gets an entry of
/// its own. Two entries for one block do no harm.
const LOOK_BACK: usize = 8;

/// How many handles there is room for in a message that has more than two, and how much longer the room gets
/// each time. A list of handles stays as it is until its message was taken, so it is not much too long.
const FIRST_ROOM: usize = 16;
const LONGER_BY: usize = 4;

/// The message in progress on this thread.
pub(crate) enum Transit {
    Out(Outbound),
    In(Inbound),
}

/// A message being built.
pub(crate) struct Outbound {
    pub(crate) handles: OutgoingHandles,
    /// The ids of the blocks of the latest handles, side by side for the search: that of handle `n` is at
    /// `n % LOOK_BACK`.
    ids: [u64; LOOK_BACK],
    /// The error of the reducer that refused last. Serde keeps only its text.
    pub(crate) refusal: Option<TransitError>,
}

/// A message being read.
pub(crate) struct Inbound {
    pub(crate) handles: IncomingHandles,
    pub(crate) refusal: Option<TransitError>,
}

scoped_tls::scoped_thread_local! {
    /// The innermost message in progress: a reducer may itself send a message. It is borrowed from its maker,
    /// so that it is not moved in and out.
    static TRANSIT: RefCell<Transit>
}

scoped_tls::scoped_thread_local! {
    /// The heap of the innermost message that is being built. It is borrowed from the sender, because a
    /// reference of its own would count up and down for each message.
    static HEAP: Heap
}

/// As [`during`], for a message to the domain of `heap`.
#[inline]
pub(crate) fn during_to<R>(heap: &Heap, transit: &RefCell<Transit>, work: impl FnOnce() -> R) -> R {
    HEAP.set(heap, || during(transit, work))
}

/// Makes `transit` the message in progress while `work` runs, and restores the previous one afterwards.
#[inline]
pub(crate) fn during<R>(transit: &RefCell<Transit>, work: impl FnOnce() -> R) -> R {
    TRANSIT.set(transit, work)
}

#[inline(always)]
fn with_transit<R>(use_it: impl FnOnce(Option<&mut Transit>) -> R) -> R {
    if !TRANSIT.is_set() {
        cold_path();
        return use_it(None);
    }
    TRANSIT.with(|transit| match transit.try_borrow_mut() {
        Ok(mut transit) => use_it(Some(&mut transit)),
        Err(_) => {
            cold_path();
            use_it(None)
        }
    })
}

#[inline(always)]
fn outbound<R>(give: impl FnOnce(&mut Outbound) -> Result<R, TransitError>) -> Result<R, TransitError> {
    with_transit(|transit| match transit {
        Some(Transit::Out(out)) => match give(out) {
            // A new `Ok`: moving the old result would copy the room of an error too.
            Ok(given) => Ok(given),
            Err(error) => {
                note(&mut out.refusal, error.clone());
                Err(error)
            }
        },
        _ => {
            cold_path();
            Err(TransitError::NotInTransit)
        }
    })
}

#[inline(always)]
fn inbound<R>(take: impl FnOnce(&mut Inbound) -> Result<R, TransitError>) -> Result<R, TransitError> {
    with_transit(|transit| match transit {
        Some(Transit::In(incoming)) => match take(incoming) {
            Ok(taken) => Ok(taken),
            Err(error) => {
                note(&mut incoming.refusal, error.clone());
                Err(error)
            }
        },
        _ => {
            cold_path();
            Err(TransitError::NotInTransit)
        }
    })
}

/// Records why a reducer refuses. The caller of `put` or `get` then gets [`TransitError::Refused`] instead of
/// an error of the wire format.
///
/// Call it just before returning an error from `serialize` or `deserialize`. Outside a message it does
/// nothing.
pub fn refuse(reason: impl std::fmt::Display) {
    refuse_as(TransitError::Refused(reason.to_string()));
}

/// As [`refuse`], with another error than [`TransitError::Refused`].
pub fn refuse_as(refusal: TransitError) {
    with_transit(|transit| match transit {
        Some(Transit::Out(out)) => note(&mut out.refusal, refusal),
        Some(Transit::In(incoming)) => note(&mut incoming.refusal, refusal),
        None => {}
    });
}

/// Keeps the latest refusal. One that says again what the one before has said only follows from it, and one
/// that is not for good is kept, because the whole message may be read later.
#[cold]
fn note(latest: &mut Option<TransitError>, refusal: TransitError) {
    let is_kept = latest.as_ref().is_some_and(|latest| {
        matches!(latest, TransitError::NotNow(_)) || refusal.to_string().contains(&latest.to_string())
    });
    if !is_kept {
        *latest = Some(refusal);
    }
}

/// Lets the receiver read `block`. Returns the index to write into the payload.
///
/// A block that was given earlier in the same message usually keeps its index. A block of another domain is
/// copied into the message's domain, and [`bytes_copied`](crate::bytes_copied) counts the bytes.
///
/// # Errors
/// [`TransitError::NotInTransit`] outside a message, [`TransitError::NoMemory`] when a copy was needed and
/// failed, [`TransitError::Moved`] for an empty block.
#[inline]
pub fn give_frozen(block: &FrozenBlock) -> Result<HandleIndex, TransitError> {
    outbound(|out| {
        // Read from the block before the handle is made: a read just after a write of the same memory stalls.
        if is_in_message_domain(block.heap().ok_or(TransitError::Moved)?) {
            return out.add(block.id(), || OutgoingHandle::frozen(block)).ok_or(TransitError::Moved);
        }
        let copy = copy_here(block)?;
        out.add(copy.id(), || OutgoingHandle::frozen(&copy)).ok_or(TransitError::Moved)
    })
}

/// Copies a block of another domain into the domain of the message.
#[cold]
fn copy_here(block: &FrozenBlock) -> Result<FrozenBlock, TransitError> {
    let no_memory = |error| TransitError::NoMemory(Arc::new(error));
    let mut copy = HEAP.with(|heap| heap.allocate(block.len_bytes())).map_err(no_memory)?;
    // It lends no bytes in a process that was forked and is no member of its domain.
    if block.bytes().len() != block.len_bytes() {
        return Err(TransitError::ForeignDomain);
    }
    copy.bytes_mut().copy_from_slice(block.bytes());
    count_copied(block.len_bytes());
    Ok(copy.freeze())
}

/// Lets the receiver read and write `block` too. Returns the index to write into the payload.
///
/// # Errors
/// [`TransitError::NotInTransit`] outside a message, [`TransitError::ForeignDomain`] for a block of another
/// domain, [`TransitError::Moved`] for an empty block.
pub fn give_shared(block: &SharedBlock) -> Result<HandleIndex, TransitError> {
    outbound(|out| {
        if !is_in_message_domain(block.heap().ok_or(TransitError::Moved)?) {
            return Err(TransitError::ForeignDomain);
        }
        out.add(block.id(), || OutgoingHandle::shared(block)).ok_or(TransitError::Moved)
    })
}

/// Lets the receiver use a monitor. Returns the index to write into the payload.
///
/// # Errors
/// [`TransitError::NotInTransit`] outside a message, [`TransitError::ForeignDomain`] for a monitor of another
/// domain.
pub fn give_monitor(monitor: &Monitor) -> Result<HandleIndex, TransitError> {
    outbound(|out| {
        let handle = OutgoingHandle::monitor(monitor);
        if !handle.heap().is_some_and(is_in_message_domain) {
            return Err(TransitError::ForeignDomain);
        }
        out.add(monitor.id(), || Some(handle)).ok_or(TransitError::ForeignDomain)
    })
}

/// Moves `block` into the message. Returns the index to write into the payload.
///
/// From now on every reference to the block finds it empty. If the message is not sent, the block becomes
/// whole again.
///
/// # Errors
/// [`TransitError::NotInTransit`] outside a message, [`TransitError::Moved`] when the block was moved
/// already, [`TransitError::ForeignDomain`] for a block of another domain.
pub fn give_exclusive(block: &ExclusiveBlock) -> Result<HandleIndex, TransitError> {
    outbound(|out| {
        let handle = OutgoingHandle::exclusive(block).ok_or(TransitError::Moved)?;
        if !handle.heap().is_some_and(is_in_message_domain) {
            handle.take_back();
            return Err(TransitError::ForeignDomain);
        }
        Ok(out.push(handle))
    })
}

/// Lets the receiver use the ring of `attachment` in the same role. Returns the index to write into the
/// payload.
///
/// # Errors
/// [`TransitError::NotInTransit`] outside a message, [`TransitError::ForeignDomain`] for a ring of another
/// domain.
pub fn give_ring(attachment: &Attachment) -> Result<HandleIndex, TransitError> {
    outbound(|out| {
        let handle = OutgoingHandle::ring(attachment);
        if !handle.heap().is_some_and(is_in_message_domain) {
            return Err(TransitError::ForeignDomain);
        }
        Ok(out.push(handle))
    })
}

/// As [`give_ring`], for an end that only one handle may have. Sets `moved`, and clears it again if the
/// message is not sent.
///
/// # Errors
/// As [`give_ring`], and [`TransitError::MovedEnd`] when the flag was set already.
pub fn give_sole_ring(attachment: &Attachment, moved: &Arc<AtomicBool>) -> Result<HandleIndex, TransitError> {
    outbound(|out| {
        let handle = OutgoingHandle::sole_ring(attachment, moved).ok_or(TransitError::MovedEnd)?;
        if !handle.heap().is_some_and(is_in_message_domain) {
            handle.take_back();
            return Err(TransitError::ForeignDomain);
        }
        Ok(out.push(handle))
    })
}

/// Lets the receiver use a bundle. Returns the index to write into the payload.
///
/// # Errors
/// [`TransitError::NotInTransit`] outside a message, [`TransitError::ForeignDomain`] for a bundle of another
/// domain.
pub fn give_bundle(bundle: &Bundle) -> Result<HandleIndex, TransitError> {
    outbound(|out| {
        if !bundle.heap().is_some_and(is_in_message_domain) {
            return Err(TransitError::ForeignDomain);
        }
        let handle = || Some(OutgoingHandle::bundle(bundle));
        out.add(bundle.id(), handle).ok_or(TransitError::ForeignDomain)
    })
}

/// The heap of the message that is being built. Private memory is copied into it to be sent.
///
/// # Errors
/// [`TransitError::NotInTransit`] outside a message.
pub fn heap() -> Result<Heap, TransitError> {
    outbound(|_| Ok(HEAP.with(Heap::clone)))
}

/// What the handle with this index is: for a reader that does not know by its type. `None` when the message
/// that is being read has no such handle, and outside a message.
#[must_use]
pub fn handle_kind(index: HandleIndex) -> Option<HandleKind> {
    with_transit(|transit| match transit {
        Some(Transit::In(incoming)) => HandleKind::of(incoming.get(index)?),
        _ => None,
    })
}

/// The frozen block with this index. It can be taken several times: each view of a storage takes it.
///
/// # Errors
/// [`TransitError::NotInTransit`] outside a message, [`TransitError::NoSuchHandle`] when the message has no
/// such handle, [`TransitError::WrongKind`] when it is another one.
#[inline]
pub fn take_frozen(index: HandleIndex) -> Result<FrozenBlock, TransitError> {
    inbound(|incoming| match incoming.get(index).and_then(IncomingHandle::take_frozen) {
        Some(block) => Ok(block),
        None => Err(unwanted(index, incoming.get(index), HandleKind::Frozen)),
    })
}

/// The shared block with this index. It can be taken several times.
///
/// # Errors
/// As [`take_frozen`].
pub fn take_shared(index: HandleIndex) -> Result<SharedBlock, TransitError> {
    inbound(|incoming| match incoming.get(index) {
        Some(IncomingHandle::Shared(block)) => Ok(block.clone()),
        other => Err(unwanted(index, other, HandleKind::Shared)),
    })
}

/// The monitor with this index. It can be taken several times.
///
/// # Errors
/// As [`take_frozen`].
pub fn take_monitor(index: HandleIndex) -> Result<ReceivedMonitor, TransitError> {
    inbound(|incoming| match incoming.get(index) {
        Some(IncomingHandle::Monitor(monitor)) => Ok(monitor.clone()),
        other => Err(unwanted(index, other, HandleKind::Monitor)),
    })
}

/// The exclusive block with this index. It can be taken once.
///
/// # Errors
/// As [`take_frozen`]; [`TransitError::NoSuchHandle`] also when the block was taken already.
pub fn take_exclusive(index: HandleIndex) -> Result<ExclusiveBlock, TransitError> {
    inbound(|incoming| match incoming.get(index).and_then(IncomingHandle::take_exclusive) {
        Some(block) => Ok(block),
        None => Err(unwanted(index, incoming.get(index), HandleKind::Exclusive)),
    })
}

/// The ring with this index.
///
/// # Errors
/// As [`take_frozen`].
pub fn take_ring(index: HandleIndex) -> Result<Attachment, TransitError> {
    inbound(|incoming| match incoming.get(index) {
        Some(IncomingHandle::Ring(attachment)) => Ok((**attachment).clone()),
        other => Err(unwanted(index, other, HandleKind::Ring)),
    })
}

/// The bundle with this index. It can be taken several times.
///
/// # Errors
/// As [`take_frozen`].
pub fn take_bundle(index: HandleIndex) -> Result<Bundle, TransitError> {
    inbound(|incoming| match incoming.get(index) {
        Some(IncomingHandle::Bundle(bundle)) => Ok(bundle.clone()),
        other => Err(unwanted(index, other, HandleKind::Bundle)),
    })
}

/// Why a handle is not `wanted`: it is of another kind, or there is none, or no longer.
#[cold]
fn unwanted(index: HandleIndex, found: Option<&mut IncomingHandle>, wanted: HandleKind) -> TransitError {
    match found.and_then(|found| HandleKind::of(found)) {
        Some(found) if found != wanted => TransitError::WrongKind { found, wanted },
        _ => TransitError::NoSuchHandle { index: index.get(), wanted },
    }
}

/// Whether a block lies in the domain of the message that is being built.
#[inline]
fn is_in_message_domain(heap: &Heap) -> bool {
    HEAP.with(|own| heap.is_same_domain(own))
}

impl Outbound {
    #[inline]
    pub(crate) fn new() -> Self {
        Self { handles: OutgoingHandles::new(), ids: [0; LOOK_BACK], refusal: None }
    }

    /// The index of a handle on the block `id`: an equivalent one that the message has already, or a new one.
    /// `None` when `handle` gives none. A closure makes the handle here, because passing it takes 17
    /// instructions more.
    #[inline]
    fn add(
        &mut self,
        BlockId(id): BlockId,
        handle: impl FnOnce() -> Option<OutgoingHandle>,
    ) -> Option<HandleIndex> {
        let handle = handle()?;
        // There is nearly always none yet. Comparing the ids finds that out fastest.
        let known = self.ids.get(..self.handles.len()).unwrap_or(&self.ids);
        if known.contains(&id) {
            cold_path();
            if let Some(known) = self.find(id, &handle) {
                return Some(known);
            }
        }
        Some(self.push_with(handle, id))
    }

    #[cold]
    fn find(&self, id: u64, handle: &OutgoingHandle) -> Option<HandleIndex> {
        let earliest = self.handles.len().saturating_sub(LOOK_BACK);
        let serves = |at: &usize| {
            self.ids.get(at % LOOK_BACK) == Some(&id)
                && self.handles.get(*at).is_some_and(|other| other.is_equivalent_to(handle))
        };
        (earliest..self.handles.len())
            .find(serves)
            .and_then(|at| u32::try_from(at).ok())
            .map(HandleIndex::new)
    }

    fn push(&mut self, handle: OutgoingHandle) -> HandleIndex {
        let id = handle.id().0;
        self.push_with(handle, id)
    }

    #[inline(always)]
    fn push_with(&mut self, handle: OutgoingHandle, id: u64) -> HandleIndex {
        let at = self.handles.len();
        if let Some(place) = self.ids.get_mut(at % LOOK_BACK) {
            *place = id;
        }
        if at == self.handles.capacity() {
            self.make_room();
        }
        self.handles.push(handle);
        // A message with more handles than 32 bits can count is refused later, because its table has too
        // many.
        HandleIndex::new(u32::try_from(at).unwrap_or(u32::MAX))
    }

    #[cold]
    fn make_room(&mut self) {
        let room = FIRST_ROOM.max(LONGER_BY * self.handles.len());
        self.handles.reserve_exact(room - self.handles.len());
    }

    #[cold]
    fn take_back(&mut self) {
        std::mem::take(&mut self.handles).into_iter().for_each(OutgoingHandle::take_back);
    }
}

impl Drop for Outbound {
    /// Takes back what was given away and not sent: the value could not be serialised, a `Serialize`
    /// panicked, or the message was refused.
    #[inline]
    fn drop(&mut self) {
        // The usual case: the sender has taken the handles.
        if self.handles.is_empty() {
            return;
        }
        self.take_back();
    }
}

impl Inbound {
    fn get(&mut self, index: HandleIndex) -> Option<&mut IncomingHandle> {
        self.handles.get_mut(usize::try_from(index.get()).ok()?)
    }
}
