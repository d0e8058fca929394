//! This process's view of one domain's memory.

mod hold;
mod prefetch;
mod rejoin;
mod returns;
mod supply;

use std::fmt;
use std::hint::cold_path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use tensorferry_domain::{Admission, Domain, DomainBuilder, DomainFds, Member, Memory, ServiceHandler};
use tensorferry_os::mapping::Reservation;

use crate::access::{self, ExclusiveBlock};
use crate::arena::Arena;
use crate::attachments::Attachments;
use crate::bundle::Bundles;
use crate::cell_table::CellTable;
use crate::header::Header;
use crate::pins::Pins;
use crate::place::{NotFound, Places};
use crate::posted::Posted;
use crate::reference::{GENERATION_MASK, Reference};
use crate::scan::resolve_requested;
use crate::scan_requests::ScanRequests;
use crate::{HeapStats, HeapUsage, StorageError};

/// The memory of one domain, as one process sees it. Cheap to clone.
#[derive(Clone)]
pub struct Heap(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) cells: CellTable,
    arena: Mutex<Arena>,
    pub(crate) pins: Pins,
    pub(crate) attachments: Attachments,
    pub(crate) posted: Posted,
    pub(crate) bundles: Bundles,
    pub(crate) scan_requests: ScanRequests,
    /// Held while suspects are resolved. A second caller waits, and so finds them resolved, not merely being
    /// worked on.
    pub(crate) resolving: Mutex<()>,
    /// Held by [`Heap::collect`], [`Heap::trim`] and the service thread's tick while they retire pins and
    /// collect returned blocks. What the tick had in progress (a sweep apart) is therefore finished, or not
    /// begun, when they return. An allocation that finds no memory takes some of these steps too, without
    /// this lock.
    pub(crate) collecting: Mutex<()>,
    this: Weak<Inner>,
    /// Whether this is the heap of [`Heap::current`], which lasts as long as the process, so that nothing
    /// needs to keep it.
    is_current: AtomicBool,
    /// The last field, so that the fields that are dropped before it can still use it.
    pub(crate) memory: Memory,
}

impl fmt::Debug for Heap {
    /// Shows only the domain: everything that holds a block shows its heap.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap").field("domain", &self.0.memory.id()).finish_non_exhaustive()
    }
}

/// The heap in which tensors are made when none is named.
static CURRENT: OnceLock<Heap> = OnceLock::new();
/// See [`Heap::search_first`].
static SEARCH: OnceLock<fn()> = OnceLock::new();

impl Heap {
    /// The heap of this process's default domain. The domain is made on first use with default settings,
    /// unless it was joined before: when the process was started as a child, or by what
    /// [`Heap::search_first`] has named.
    ///
    /// # Blocking
    /// Does not wait by itself; what was named may.
    ///
    /// # Errors
    /// [`StorageError::Domain`] when the domain cannot be made.
    pub fn current() -> Result<&'static Self, StorageError> {
        if let Some(heap) = CURRENT.get() {
            return Ok(heap);
        }
        if let Some(search) = SEARCH.get() {
            search();
            if let Some(heap) = CURRENT.get() {
                return Ok(heap);
            }
        }
        let heap = Self::create(Domain::builder())?;
        let current = CURRENT.get_or_init(|| heap);
        current.0.is_current.store(true, Ordering::Release);
        Ok(current)
    }

    /// Has `search` called by [`Heap::current`] before that makes a domain. It may join one and make its heap
    /// current; then none is made. Any thread may be the one that calls it, with whatever its caller has
    /// locked; of threads that come at the same time each does. It must not call [`Heap::current`].
    ///
    /// Returns whether it will be called: of several, the first one stays.
    pub fn search_first(search: fn()) -> bool {
        SEARCH.set(search).is_ok()
    }

    /// The heap of this process's default domain, if it has one by now.
    #[must_use]
    pub fn current_if_any() -> Option<&'static Self> {
        CURRENT.get()
    }

    /// Makes `self` the heap of [`Heap::current`].
    ///
    /// # Errors
    /// [`StorageError::AlreadyJoined`] when there is one already.
    pub fn make_current(&self) -> Result<(), StorageError> {
        CURRENT.set(self.clone()).map_err(|_| StorageError::AlreadyJoined)?;
        self.0.is_current.store(true, Ordering::Release);
        Ok(())
    }

    /// Makes a domain with these settings, and its heap.
    ///
    /// # Errors
    /// [`StorageError::Domain`] when the domain cannot be made.
    pub fn create(settings: DomainBuilder) -> Result<Self, StorageError> {
        Self::over(settings.create()?)
    }

    /// Joins the domain behind `fds` as the member that `admission` names, and makes its heap the current
    /// one.
    ///
    /// # Errors
    /// [`StorageError::Domain`] when the domain refuses, [`StorageError::AlreadyJoined`] when this process
    /// has a default domain already.
    pub fn join(fds: impl Into<DomainFds>, admission: Admission) -> Result<Self, StorageError> {
        let heap = Self::attach(fds, admission)?;
        heap.make_current()?;
        Ok(heap)
    }

    /// As [`Heap::join`], but leaves the current heap as it is.
    ///
    /// # Errors
    /// [`StorageError::Domain`] when the domain refuses.
    pub fn attach(fds: impl Into<DomainFds>, admission: Admission) -> Result<Self, StorageError> {
        Self::over(Domain::join(fds, admission)?)
    }

    /// The current heap of the process that this one was forked from, until this process has joined a domain
    /// by itself.
    #[must_use]
    pub fn inherited() -> Option<Self> {
        CURRENT.get().filter(|heap| !heap.0.memory.is_owning_process()).cloned()
    }

    fn over(domain: Arc<Domain>) -> Result<Self, StorageError> {
        let memory = access::memory_of(domain);
        let layout = *memory.layout();
        let inner = Arc::new_cyclic(|this| Inner {
            this: this.clone(),
            is_current: AtomicBool::new(false),
            scan_requests: ScanRequests::default(),
            resolving: Mutex::default(),
            collecting: Mutex::default(),
            cells: CellTable::new(layout.n_extents, layout.extent_len_bytes),
            arena: Mutex::default(),
            pins: Pins::default(),
            attachments: Attachments::default(),
            posted: Posted::default(),
            bundles: Bundles::default(),
            memory,
        });
        let handler: Weak<Inner> = Arc::downgrade(&inner);
        inner.memory.start_service(handler)?;
        Ok(Self(inner))
    }

    /// The domain.
    #[must_use]
    #[inline]
    pub fn domain(&self) -> &Arc<Domain> {
        self.0.memory.domain()
    }

    /// Allocates a block of `len_bytes` bytes for this process alone, aligned to 64 bytes. It contains
    /// whatever its last user in this domain left. Zero bytes need no block.
    ///
    /// # Blocking
    /// Does not wait for memory to come back. At the domain's limit it collects and trims what is free, and
    /// then fails.
    ///
    /// # Errors
    /// [`StorageError::Domain`] with the numbers when the domain's limit, its address space or the machine's
    /// memory is used up; [`StorageError::TooLarge`] for a block that the domain can never hold.
    pub fn allocate(&self, len_bytes: usize) -> Result<ExclusiveBlock, StorageError> {
        if len_bytes == 0 {
            return Ok(ExclusiveBlock::empty());
        }
        Ok(ExclusiveBlock::new(self.allocate_block(len_bytes)?))
    }

    /// As [`Heap::allocate`], filled with zeroes.
    ///
    /// # Errors
    /// As [`Heap::allocate`].
    pub fn allocate_zeroed(&self, len_bytes: usize) -> Result<ExclusiveBlock, StorageError> {
        let mut block = self.allocate(len_bytes)?;
        block.bytes_mut().fill(0);
        Ok(block)
    }

    /// Gives free memory back to the system: the pages of free blocks and of slabs that are free as a whole,
    /// in this process's extents and in those without an owner. Returns how many bytes it gave back. Later
    /// allocations pay for fresh pages again.
    ///
    /// # Blocking
    /// As [`Heap::collect`].
    #[must_use = "the number says whether trimming helped"]
    pub fn trim(&self) -> u64 {
        if !self.0.memory.is_owning_process() {
            return 0;
        }
        let _one_at_a_time = self.0.collecting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut arena = self.0.collect_returned();
        let trimmed = arena.trim(self.0.places(), u64::MAX) + self.0.trim_released(&mut arena);
        self.0.publish(&arena);
        trimmed
    }

    /// How many parcels this process has posted or left ([`Parcel::leave`](crate::Parcel::leave)) that nobody
    /// has opened yet, or that a process is opening at this moment: to open one takes the process that packed
    /// it.
    #[must_use]
    pub fn n_unopened_parcels(&self) -> usize {
        self.0.posted.n_unopened()
    }

    /// Whether this process has posted or left a parcel with this number that nobody has opened yet.
    #[must_use]
    pub fn has_unopened_parcel(&self, id: u64) -> bool {
        self.is_owning_process() && self.0.posted.has_unopened(id)
    }

    /// Lets go of a parcel that this process has posted or left. What it gives away exclusively goes back to
    /// where it came from. Returns false when somebody has opened it, or it is not this process's.
    pub fn take_back_parcel(&self, id: u64) -> bool {
        self.is_owning_process() && self.0.posted.take_back(id)
    }

    /// Statistics of this process's side and of the whole domain.
    #[must_use]
    pub fn stats(&self) -> HeapStats {
        HeapStats {
            own: self.0.arena().usage,
            members: self.0.memory.members(),
            populated_bytes: self.0.memory.populated_bytes(),
            limit_bytes: self.0.memory.limit_bytes(),
            messages_pinned: self.0.pins.len(),
        }
    }

    /// Lets go of messages that were taken and of what only the dead have held, and collects blocks that came
    /// back, now instead of when memory runs short.
    ///
    /// # Blocking
    /// Waits while another thread does the same, the service thread included. That may take as long as a scan
    /// of all messages.
    pub fn collect(&self) {
        if !self.0.memory.is_owning_process() {
            return;
        }
        let _one_at_a_time = self.0.collecting.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.posted.retire(&self.0.memory);
        // A sweep during which others died has left the rest to the next tick.
        if self.0.memory.may_have_suspects() {
            self.0.scan_requests.set_due();
            resolve_requested(&self.0);
        }
        let arena = self.0.collect_returned();
        self.0.publish(&arena);
    }

    /// Whether both heaps belong to the same domain.
    #[must_use]
    #[inline]
    pub fn is_same_domain(&self, other: &Self) -> bool {
        if Arc::ptr_eq(&self.0, &other.0) {
            return true;
        }
        cold_path();
        self.domain().id() == other.domain().id()
    }

    /// Whether this is the heap of [`Heap::current`], which never ends. Once it is, it stays so.
    #[inline]
    pub(crate) fn lasts_forever(&self) -> bool {
        self.0.is_current.load(Ordering::Acquire)
    }

    #[cfg(test)]
    pub(crate) fn n_references(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    #[inline]
    pub(crate) fn inner(&self) -> &Inner {
        &self.0
    }

    /// Whether this process may act as the member that this heap belongs to: it is no fork of it.
    #[must_use]
    #[inline]
    pub fn is_owning_process(&self) -> bool {
        self.0.memory.is_owning_process()
    }

    /// # Errors
    /// [`StorageError::Domain`] where [`Heap::is_owning_process`] is false.
    #[inline]
    pub(crate) fn check_owning_process(&self) -> Result<(), StorageError> {
        Ok(self.0.memory.check_owning_process()?)
    }

    #[inline]
    pub(crate) fn me(&self) -> Member {
        self.0.memory.me()
    }

    pub(crate) fn is_live(&self, member: Member) -> bool {
        self.domain().is_live(member)
    }

    #[inline]
    pub(crate) fn data(&self) -> &Reservation {
        self.0.memory.data()
    }

    #[inline]
    pub(crate) fn header(&self, header_offset_bytes: usize) -> Option<Header<'_>> {
        self.0.places().header(header_offset_bytes)
    }
}

impl Inner {
    /// The heap of this `Inner`, for handles on blocks; `None` while the last reference is being dropped.
    pub(crate) fn heap(&self) -> Option<Heap> {
        self.this.upgrade().map(Heap)
    }

    #[inline]
    pub(crate) fn places(&self) -> Places<'_> {
        Places::of(&self.memory)
    }

    pub(crate) fn arena(&self) -> MutexGuard<'_, Arena> {
        self.arena.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn publish(&self, arena: &Arena) {
        let usage: HeapUsage = arena.usage;
        self.memory.publish_usage(usage.live_blocks, usage.live_bytes, usage.cached_bytes());
    }

    /// Makes the service thread scan for what messages of the dead still name.
    pub(crate) fn ask_for_scan(&self) {
        if !self.memory.is_owning_process() {
            return;
        }
        self.scan_requests.set_due();
        self.memory.wake_service();
    }

    /// Frees the blocks of this process's extents that came back: retires pins, resolves suspects, and looks
    /// at all returned blocks. Returns the locked arena.
    fn collect_returned(&self) -> MutexGuard<'_, Arena> {
        self.retire_kept();
        crate::scan::resolve_known_suspects(self);
        let mut arena = self.arena();
        arena.collect(self.places());
        arena.look_at_all_pending(self.places());
        arena
    }

    /// Whether this process knows of something suspect that it owns or keeps.
    pub(crate) fn has_suspects(&self) -> bool {
        self.arena().has_suspects() || self.bundles.any_suspect()
    }

    /// Lets go of the blocks of messages that were taken, and of bundles that nobody has any more.
    pub(crate) fn retire_kept(&self) {
        self.pins.retire();
        self.bundles.retire();
    }
}

impl Drop for Inner {
    /// Gives free memory back to the system, because the next owner has no use for it. Blocks that only a
    /// scan can free are left to the other members, by a request.
    fn drop(&mut self) {
        if self.memory.is_owning_process() {
            let mut arena = self.arena.lock().unwrap_or_else(PoisonError::into_inner);
            if arena.has_suspects() {
                self.memory.want_scan();
            }
            arena.trim(Places::of(&self.memory), u64::MAX);
        }
    }
}

impl ServiceHandler for Inner {
    fn sweep(&self, dead: &[Member]) -> bool {
        crate::sweep::sweep(self, dead)
    }

    fn is_held(&self, name: u64) -> bool {
        let Some(reference) = Reference::unpack(name) else { return false };
        // A block that cannot be reached is not known to be free.
        let place = match self.places().find(reference.header_offset_bytes) {
            Ok(place) => place,
            Err(NotFound::Bad(_)) => return false,
            Err(NotFound::Unreadable(_)) => return true,
        };
        let Some(header) = self.places().header(place.header_offset_bytes) else { return true };
        // Holders first, then the generation: a block that somebody holds is not reused.
        let is_held = header.holders().load(Ordering::SeqCst) != 0;
        is_held && header.generation() & GENERATION_MASK == reference.generation
    }

    fn tick(&self) -> Option<std::time::Duration> {
        crate::tick::tick(self)
    }
}
