//! Messages outside of any ring.

use std::sync::atomic::Ordering;

use tensorferry_domain::Member;

use crate::StorageError;
use crate::block::Block;
use crate::header::Kind;
use crate::heap::Heap;
use crate::message::{
    IncomingMessage, OutgoingHandle, OutgoingHandles, all_in_domain, spill, take_back, unspill,
};
use crate::reference::{Grant, Reference};

/// A message outside of any ring: for the arguments of a process that is being started.
///
/// Whoever packed it keeps it until the other side has opened it; dropping it lets go of everything it names, once nobody
/// is opening it. It can be opened once, by whoever is first.
#[derive(Debug)]
pub struct Parcel {
    block: Block,
    handles: OutgoingHandles,
}

/// Values of [`line::OPENED`](crate::header::line::OPENED).
const OPENED: u64 = 1;
const TAKEN_BACK: u64 = 2;
/// Whoever opened it holds everything that it names, or has failed to.
const ADOPTED: u64 = 3;

impl Parcel {
    /// Packs a payload and its handles. What was given away exclusively is gone with the parcel.
    ///
    /// # Errors
    /// [`StorageError::Domain`] when there is no memory for it, [`StorageError::ForeignDomain`]; the handles are given
    /// back to where they came from.
    pub fn pack(heap: &Heap, payload: &[u8], handles: OutgoingHandles) -> Result<Self, StorageError> {
        if !all_in_domain(heap, &handles) {
            take_back(handles);
            return Err(StorageError::ForeignDomain);
        }
        match spill(heap, Kind::Parcel, payload, &handles) {
            Ok(block) => Ok(Self { block, handles }),
            Err(error) => {
                take_back(handles);
                Err(error)
            }
        }
    }

    /// A plain number by which a member of the same domain opens it.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.block.reference(Grant::Message)
    }

    /// How many handles it has.
    #[must_use]
    pub fn n_handles(&self) -> usize {
        self.handles.len()
    }

    /// Gives what was given away exclusively back to where it came from, unless the parcel was opened.
    pub fn take_back(mut self) {
        if self.block.heap().is_owning_process() && use_up(&self.block, TAKEN_BACK) {
            std::mem::take(&mut self.handles).into_iter().for_each(OutgoingHandle::take_back);
        }
    }

    /// Opens the parcel with this number, which its packer still keeps.
    ///
    /// # Errors
    /// [`StorageError::BadReference`] when the number names no parcel (any more), or one that was opened already.
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
        if !use_up(&block, OPENED) {
            return Err(bad("the parcel was opened or taken back already"));
        }
        let mut message = IncomingMessage::default();
        let opened = unspill(heap, &block, &mut message);
        if let Some(header) = block.header() {
            header.opened().store(ADOPTED, Ordering::SeqCst);
        }
        opened.map(|()| message)
    }

    /// Leaves the parcel to its heap, which keeps it until `to` has opened it or is no member any more.
    pub fn post(self, to: Member) {
        let heap = self.block.heap().clone();
        heap.inner().posted.add(self, Some(to));
        heap.domain().wake_service_soon();
    }

    /// In a process that was forked, where dropping the parcel must not take it back from whom the parent has sent it to.
    pub(crate) fn take_handles(&mut self) -> OutgoingHandles {
        std::mem::take(&mut self.handles)
    }

    /// Whether nobody needs what it names any more: whoever opened it holds everything, or has died meanwhile, or nobody
    /// will open it.
    pub(crate) fn is_done(&self) -> bool {
        let Some(header) = self.block.header() else { return true };
        match header.opened().load(Ordering::SeqCst) {
            ADOPTED | TAKEN_BACK => true,
            // Whoever opens it holds it until it has adopted everything.
            OPENED => self.block.is_sole(),
            _ => false,
        }
    }
}

impl Drop for Parcel {
    /// Somebody who is opening it right now holds only part of what it names. If that were let go of, the packer could
    /// become the only one who is known to hold a block, and write it, while the other side takes it to read.
    fn drop(&mut self) {
        if !self.block.heap().is_owning_process()
            || self.handles.is_empty()
            || use_up(&self.block, TAKEN_BACK)
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

/// Decides who has what is in the parcel: true for the first who comes.
fn use_up(block: &Block, by: u64) -> bool {
    let header = block.header();
    header.is_some_and(|header| {
        header.opened().compare_exchange(0, by, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    })
}
