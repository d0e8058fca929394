//! The memory of a sealed tensor: a file of its own, and what names it in each domain that it was sent in.
//!
//! A *ticket* is a block that stands for the file in a domain. It is held as any block is, and for as long as
//! anybody holds it, the process that made the domain stores a descriptor of the file under the ticket's name
//! ([`Domain::store_fd`](tensorferry_domain::Domain::store_fd)). So the sender may end at any time, and the
//! file goes with its last holder. docs/WIRE.md has the words of a ticket.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use once_cell::sync::OnceCell;
use tensorferry_os::sealed::SealedMemory;
use tensorferry_storage::{FrozenBlock, Heap, SharedBlock};

use crate::error::{SealedError, TensorError};
use crate::storage::PrivateBytes;

/// What `/proc` shows as the name of such a file.
const FILE_NAME: &str = "tensorferry-sealed";

/// The words of a ticket.
pub(crate) mod ticket {
    pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"SEAL\x01\0\0\0");
    /// Word indexes.
    pub(crate) const AT_MAGIC: usize = 0;
    pub(crate) const AT_LEN_BYTES: usize = 1;
    pub(crate) const N_WORDS: usize = 2;
}

/// A domain and the name of a ticket in it. While somebody holds the ticket, nothing else has its name.
type TicketId = (u64, u64);

/// What this process has of what it has received or sent: the same file is mapped once.
static KNOWN: LazyLock<Mutex<HashMap<TicketId, Weak<SealedStorage>>>> = LazyLock::new(Mutex::default);

/// A sealed file, mapped, with its tickets.
pub(crate) struct SealedStorage {
    memory: SealedMemory,
    tickets: Mutex<Vec<(Heap, SharedBlock)>>,
    /// Of a view that is sent as an ordinary tensor.
    copy: OnceCell<FrozenBlock>,
}

impl PrivateBytes for Arc<SealedStorage> {
    fn bytes(&self) -> &[u8] {
        self.memory.bytes()
    }

    fn copy(&self) -> &OnceCell<FrozenBlock> {
        &self.copy
    }
}

impl SealedStorage {
    /// Makes a file of `len_bytes` that `fill` writes.
    pub(crate) fn create(len_bytes: usize, fill: impl FnOnce(&mut [u8])) -> Result<Arc<Self>, SealedError> {
        Ok(Self::over(SealedMemory::create(FILE_NAME, len_bytes, fill)?))
    }

    /// Takes a file from anybody.
    pub(crate) fn from_fd(fd: OwnedFd) -> Result<Arc<Self>, SealedError> {
        Ok(Self::over(SealedMemory::from_fd(fd)?))
    }

    fn over(memory: SealedMemory) -> Arc<Self> {
        Arc::new(Self { memory, tickets: Mutex::default(), copy: OnceCell::new() })
    }

    /// The file.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Another descriptor of the file.
    pub(crate) fn to_fd(&self) -> Result<OwnedFd, SealedError> {
        let copied = self.memory.as_fd().try_clone_to_owned();
        Ok(copied.map_err(|error| tensorferry_os::Error::new("duplicating a descriptor", error))?)
    }

    /// The ticket in the domain of `heap`. It is made when the first message there needs it.
    pub(crate) fn ticket(self: &Arc<Self>, heap: &Heap) -> Result<SharedBlock, TensorError> {
        if let Some(ticket) = self.ticket_in(heap) {
            return Ok(ticket);
        }
        let ticket = heap.allocate(ticket::N_WORDS * size_of::<u64>())?.share();
        for (at, word) in
            [(ticket::AT_LEN_BYTES, self.memory.bytes().len() as u64), (ticket::AT_MAGIC, ticket::MAGIC)]
        {
            if let Some(place) = ticket.words().get(at) {
                place.store(word, Ordering::Release);
            }
        }
        // May wait for the process that keeps descriptors, so with no lock held.
        let domain = heap.domain();
        domain.store_fd(ticket.name(), self.to_fd()?).map_err(SealedError::from)?;
        // That process may have had no descriptor left for it, and says so when it is asked.
        domain.fetch_fd(ticket.name()).map_err(SealedError::from)?;
        if let Some(ticket) = self.ticket_in(heap) {
            // Another thread was faster.
            return Ok(ticket);
        }
        remember((heap.domain().id(), ticket.name()), self);
        self.tickets().push((heap.clone(), ticket.clone()));
        Ok(ticket)
    }

    fn ticket_in(&self, heap: &Heap) -> Option<SharedBlock> {
        let tickets = self.tickets();
        let found = tickets.iter().find(|(own, _)| own.is_same_domain(heap));
        found.map(|(_, ticket)| ticket.clone())
    }

    /// The file that a ticket of a message stands for.
    pub(crate) fn redeem(ticket: SharedBlock) -> Result<Arc<Self>, SealedError> {
        let words = ticket.words();
        let word = |at: usize| words.get(at).map(|word| word.load(Ordering::Acquire));
        let (Some(heap), Some(ticket::MAGIC)) = (ticket.heap().cloned(), word(ticket::AT_MAGIC)) else {
            return Err(SealedError::NoTicket);
        };
        let id = (heap.domain().id(), ticket.name());
        if let Some(known) = known().get(&id).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let memory = SealedMemory::from_fd(heap.domain().fetch_fd(ticket.name())?)?;
        let (len_bytes, needed) = (memory.bytes().len() as u64, word(ticket::AT_LEN_BYTES).unwrap_or(0));
        if len_bytes != needed {
            return Err(SealedError::OtherLength { len_bytes, needed_bytes: needed });
        }
        let storage = Self::over(memory);
        storage.tickets().push((heap, ticket));
        // Another thread may have received it meanwhile. Both mappings are right.
        remember(id, &storage);
        Ok(storage)
    }

    fn tickets(&self) -> MutexGuard<'_, Vec<(Heap, SharedBlock)>> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SealedStorage {
    fn drop(&mut self) {
        let tickets = self.tickets.get_mut().unwrap_or_else(PoisonError::into_inner);
        // In a process that something else has forked, a thread that does not exist there may have the lock.
        if !tickets.iter().any(|(heap, _)| heap.is_owning_process()) {
            return;
        }
        let mut known = known();
        for (heap, ticket) in tickets.iter() {
            let id = (heap.domain().id(), ticket.name());
            // Not one that was received anew meanwhile.
            if known.get(&id).is_some_and(|known| known.strong_count() == 0) {
                known.remove(&id);
            }
        }
    }
}

fn remember(id: TicketId, storage: &Arc<SealedStorage>) {
    known().insert(id, Arc::downgrade(storage));
}

fn known() -> MutexGuard<'static, HashMap<TicketId, Weak<SealedStorage>>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}
