//! Messages outside of any ring.

use std::sync::atomic::{AtomicU64, Ordering};

use tensorferry_domain::Member;

use crate::StorageError;
use crate::block::{Block, Holding};
use crate::header::Kind;
use crate::heap::Heap;
use crate::message::{
    IncomingMessage, OutgoingHandle, OutgoingHandles, all_in_domain, check_n_handles, spill, take_back,
    unspill,
};
use crate::reference::{Grant, Reference};

/// A message outside of any ring, for the arguments of a process that is being started.
///
/// The packer keeps it until the other side has opened it. Dropping it lets go of everything that it names,
/// once no process is opening it. It can be opened once, by the first process that tries.
#[derive(Debug)]
pub struct Parcel {
    block: Block,
    handles: OutgoingHandles,
}

/// Values of [`line::OPENED`](crate::header::line::OPENED).
mod opened {
    pub(super) const NOT_YET: u64 = 0;
    /// A process is opening it. It holds the block from before this until after [`ADOPTED`].
    pub(super) const OPENING: u64 = 1;
    pub(super) const TAKEN_BACK: u64 = 2;
    /// The opener holds everything that it names, or has failed to.
    pub(super) const ADOPTED: u64 = 3;
}

/// What a scan concludes about a parcel that no living process held when the scan looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Abandoned {
    /// Nobody has what the parcel names, and nobody will.
    NamesNothing,
    /// A living process is opening it.
    BeingOpened,
    /// A process has opened it, and may have held all that it names only after the scan looked there.
    WasOpened,
}

/// Decides the fate of such a parcel. One that was not opened cannot be opened any more after this: a scan
/// would not see what somebody takes out of it meanwhile.
pub(crate) fn decide(opened: &AtomicU64, is_held: impl FnOnce() -> bool) -> Abandoned {
    match opened.compare_exchange(opened::NOT_YET, opened::TAKEN_BACK, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) | Err(opened::TAKEN_BACK) => Abandoned::NamesNothing,
        Err(opened::ADOPTED) => Abandoned::WasOpened,
        Err(_) if is_held() => Abandoned::BeingOpened,
        // It is not held, so this was done, or whoever opened it is dead.
        Err(_) if opened.load(Ordering::SeqCst) == opened::ADOPTED => Abandoned::WasOpened,
        Err(_) => Abandoned::NamesNothing,
    }
}

impl Parcel {
    /// Packs a payload and its handles. What the handles give away exclusively is gone with the parcel.
    ///
    /// # Errors
    /// [`StorageError::Domain`] when there is no memory for it, [`StorageError::TooManyBlocks`] for more than
    /// 65,535 handles, [`StorageError::ForeignDomain`] for a handle of another domain. The handles are then
    /// given back to where they came from.
    pub fn pack(heap: &Heap, payload: &[u8], handles: OutgoingHandles) -> Result<Self, StorageError> {
        let spilled = check_n_handles(&handles).and_then(|()| match all_in_domain(heap, &handles) {
            true => spill(heap, Kind::Parcel, payload, &handles),
            false => Err(StorageError::ForeignDomain),
        });
        match spilled {
            Ok(block) => Ok(Self { block, handles }),
            Err(error) => {
                take_back(handles);
                Err(error)
            }
        }
    }

    /// A plain number, by which a member of the same domain opens the parcel.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.block.reference(Grant::Message)
    }

    /// How many handles the parcel has.
    #[must_use]
    pub fn n_handles(&self) -> usize {
        self.handles.len()
    }

    /// Gives what was given away exclusively back to where it came from, unless the parcel was opened.
    /// Returns whether it was not.
    pub fn take_back(mut self) -> bool {
        let is_unopened = self.block.heap().is_owning_process() && use_up(&self.block, opened::TAKEN_BACK);
        if is_unopened {
            std::mem::take(&mut self.handles).into_iter().for_each(OutgoingHandle::take_back);
        }
        is_unopened
    }

    /// Opens the parcel with this number, which its packer still keeps.
    ///
    /// # Errors
    /// [`StorageError::BadReference`] when the number names no parcel, or one that is gone or was opened or
    /// taken back already, by its packer or, when that has ended, by whoever noticed it.
    /// [`StorageError::Domain`] when the kernel does not let this process open its memory, or when this
    /// process was forked and is no member of its own.
    pub fn open(heap: &Heap, id: u64) -> Result<IncomingMessage, StorageError> {
        Self::opened(heap, id).map_err(|error| *error)
    }

    fn opened(heap: &Heap, id: u64) -> Result<IncomingMessage, Box<StorageError>> {
        let bad = |what| Box::new(StorageError::BadReference { reference: id, what });
        let reference = Reference::unpack(id).filter(|reference| reference.grant == Grant::Message);
        let block = heap.hold(reference.ok_or_else(|| bad("it is no parcel"))?)?;
        if block.header().is_none_or(|header| header.kind() != Kind::Parcel) {
            return Err(bad("the block is no parcel"));
        }
        if !use_up(&block, opened::OPENING) {
            return Err(bad("the parcel was opened or taken back already, or its packer has ended"));
        }
        let mut message = IncomingMessage::default();
        let opened = unspill(heap, &block, &mut message);
        if let Some(header) = block.header() {
            header.opened().store(opened::ADOPTED, Ordering::SeqCst);
        }
        opened.map(|()| message)
    }

    /// Leaves the parcel to its heap, which keeps it until `to` has opened it or is no longer a member.
    pub fn post(self, to: Member) {
        self.hand_over(Some(to));
    }

    /// Leaves the parcel to its heap, which keeps it until a process has opened it, or this one ends.
    pub fn leave(self) {
        self.hand_over(None);
    }

    fn hand_over(self, to: Option<Member>) {
        let heap = self.block.heap().clone();
        heap.inner().posted.add(self, to);
        heap.domain().wake_service_soon();
    }

    /// Whether a process has opened the parcel, or is about to.
    #[must_use]
    pub fn is_opened(&self) -> bool {
        let opened = self.block.header().map(|header| header.opened().load(Ordering::SeqCst));
        matches!(opened, Some(opened::OPENING | opened::ADOPTED))
    }

    /// Whether a process may still open it.
    pub(crate) fn is_unopened(&self) -> bool {
        self.block.header().is_some_and(|header| header.opened().load(Ordering::SeqCst) == opened::NOT_YET)
    }

    /// For a process that was forked: dropping the parcel there must not take it back from the member to
    /// which the parent has sent it.
    pub(crate) fn take_handles(&mut self) -> OutgoingHandles {
        std::mem::take(&mut self.handles)
    }

    /// Whether no process needs what the parcel names any more: its opener holds everything, or has died
    /// meanwhile, or no process will open it.
    pub(crate) fn is_done(&self) -> bool {
        let Some(header) = self.block.header() else { return true };
        match header.opened().load(Ordering::SeqCst) {
            opened::ADOPTED | opened::TAKEN_BACK => true,
            // The opener holds the parcel's block until it has adopted everything.
            opened::OPENING => self.block.holding() == Holding::Sole,
            _ => false,
        }
    }
}

impl Drop for Parcel {
    /// Keeps what the parcel names while another process is opening it. That process holds only part of it so
    /// far. If the rest were let go of, the packer could become the only known holder of a block and write
    /// it, while the other process takes it to read.
    fn drop(&mut self) {
        if !self.block.heap().is_owning_process()
            || self.handles.is_empty()
            || use_up(&self.block, opened::TAKEN_BACK)
            || self.is_done()
        {
            return;
        }
        let kept = Self { block: self.block.clone(), handles: std::mem::take(&mut self.handles) };
        let heap = kept.block.heap().clone();
        heap.inner().posted.add(kept, None);
        heap.domain().wake_service_soon();
    }
}

/// Decides which process gets what is in the parcel: returns true for the first caller.
fn use_up(block: &Block, by: u64) -> bool {
    let header = block.header();
    header.is_some_and(|header| {
        header.opened().compare_exchange(opened::NOT_YET, by, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parcel_that_nobody_holds_is_never_opened_or_names_what_somebody_has() {
        let decided = |opened: &AtomicU64, is_held| decide(opened, || is_held);
        let opened = AtomicU64::new(0);
        for _ in 0..2 {
            assert_eq!(decided(&opened, false), Abandoned::NamesNothing);
            assert_eq!(opened.load(Ordering::SeqCst), opened::TAKEN_BACK, "whoever comes now is refused");
        }
        let opened = AtomicU64::new(opened::OPENING);
        assert_eq!(decided(&opened, true), Abandoned::BeingOpened);
        assert_eq!(decided(&opened, false), Abandoned::NamesNothing, "by one who is dead");
        let adopts_meanwhile = || {
            opened.store(opened::ADOPTED, Ordering::SeqCst);
            false
        };
        assert_eq!(decide(&opened, adopts_meanwhile), Abandoned::WasOpened);
        assert_eq!(decided(&opened, false), Abandoned::WasOpened);
    }
}
