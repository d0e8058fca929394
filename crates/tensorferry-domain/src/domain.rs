//! The domain as one member sees it.

mod fd_store;
mod joining;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tensorferry_os::fork_detector::ForkDetector;
use tensorferry_os::mapping::{Reservation, Tables};
use tensorferry_os::memfd;
use tensorferry_os::pidfd::{Identity, PidFd};
use tensorferry_os::presence::Presence;
use tensorferry_sharing::{Backing, SharingStrategy};

pub use fd_store::DomainFds;
use fd_store::FdStoreAccess;

use crate::layout::{
    EXTENT_ENTRY_LEN_BYTES, EXTENT_TABLE_OFFSET_BYTES, MAX_MEMBERS, PROCESS_TABLE_OFFSET_BYTES,
    SLOT_LEN_BYTES, extent, header, slot,
};
use crate::member::{Slot, State};
use crate::service::{self, Scope, Service};
use crate::{Admission, DomainBuilder, DomainError, Layout, Member, MemberInfo, Phase};

/// One member's mapping of a domain.
///
/// Dropping it leaves the domain: the member's slot becomes free. If a process ends without dropping it, the
/// other members sweep it, with the same result.
#[derive(Debug)]
pub struct Domain {
    pub(crate) backing: Backing,
    tables: Tables,
    pub(crate) data: Reservation,
    layout: Layout,
    id: u64,
    /// Slot and epoch. Changes when a forked process rejoins as a member of its own.
    me: AtomicU64,
    /// Tells the process that is this member from processes forked from it.
    fork_detector: ForkDetector,
    pub(crate) service: OnceLock<Service>,
    fd_store: FdStoreAccess,
    /// Set in a process that was forked from the one that made the domain.
    fd_store_of_a_fork: OnceLock<FdStoreAccess>,
    /// Dropped with the domain, after the slot was left.
    presence: Presence,
}

impl Domain {
    /// Returns a builder for a new domain.
    #[must_use]
    pub fn builder() -> DomainBuilder {
        DomainBuilder::new()
    }

    /// Whether this process is this member: it made or joined the domain, and is not a fork that only has a
    /// copy of the memory. Such a fork is refused everything that a member may do.
    #[must_use]
    #[inline]
    pub fn is_owning_process(&self) -> bool {
        self.fork_detector.is_owner()
    }

    /// Checks that this process is this member ([`Domain::is_owning_process`]).
    ///
    /// # Errors
    /// [`DomainError::Forked`] if it is not.
    #[inline]
    pub fn check_owning_process(&self) -> Result<(), DomainError> {
        if self.is_owning_process() { Ok(()) } else { Err(DomainError::Forked) }
    }

    /// Claims a slot for the process behind `child` and returns what that process needs to join.
    ///
    /// The caller keeps the pidfd until the child has joined. A child that dies before that is swept like
    /// any member. The service thread starts to watch it within 10 ms. A process that is admitted twice takes
    /// two slots; [`Domain::admit_once`] is for one that asks again.
    ///
    /// # Errors
    /// [`DomainError::ProcessTableFull`] when every slot is taken, [`DomainError::UnknownProcess`] when the
    /// process cannot be told from others, [`DomainError::Forked`] in a fork of a member; the kernel's error
    /// of fstat(2).
    ///
    /// # Blocking
    /// When every slot is taken, for as long as [`Domain::sweep_all_dead`] takes. That call makes room if a
    /// member has died.
    pub fn admit(&self, child: &PidFd) -> Result<Admission, DomainError> {
        self.check_owning_process()?;
        let identity = child.identity()?;
        if !identity.is_known() {
            return Err(DomainError::UnknownProcess { pid: child.pid() });
        }
        let invited = self.invite(identity).or_else(|| {
            self.sweep_all_dead();
            self.invite(identity)
        });
        invited.ok_or(DomainError::ProcessTableFull { slots: MAX_MEMBERS })
    }

    /// As [`Domain::admit`], but a process that was admitted before and has not joined yet gets that
    /// admission again. So a process that asks again and again takes one slot.
    ///
    /// # Errors
    /// As [`Domain::admit`].
    ///
    /// # Blocking
    /// As [`Domain::admit`].
    pub fn admit_once(&self, child: &PidFd) -> Result<Admission, DomainError> {
        self.check_owning_process()?;
        let identity = child.identity()?;
        let is_it = |info: &MemberInfo| {
            let known = info.identity;
            info.phase == Phase::Invited && known.is_comparable(&identity) && known.is_same_process(&identity)
        };
        match self.members().into_iter().find(is_it) {
            Some(info) => Ok(Admission { domain_id: self.id, member: info.member }),
            None => self.admit(child),
        }
    }

    fn invite(&self, identity: Identity) -> Option<Admission> {
        for index in 0..MAX_MEMBERS {
            let slot = u8::try_from(index).ok()?;
            let entry = self.slot(slot)?;
            let free = entry.state();
            let admitting = State {
                epoch: free.epoch.wrapping_add(1).max(1),
                author: self.me().slot,
                phase: Phase::Admitting,
            };
            if free.phase == Phase::Free && entry.change(free, admitting) {
                entry.set_identity(identity);
                entry.change(admitting, State { phase: Phase::Invited, ..admitting });
                // So that the service thread watches the new process.
                self.wake_service_soon();
                return Some(Admission {
                    domain_id: self.id,
                    member: Member { slot, epoch: admitting.epoch },
                });
            }
        }
        None
    }

    /// Whether this member is alive, as far as the process table says. A death shows there shortly after it
    /// happens.
    #[must_use]
    pub fn is_live(&self, member: Member) -> bool {
        self.slot(member.slot).is_some_and(|slot| {
            let state = slot.state();
            state.epoch == member.epoch && state.phase == Phase::Live
        })
    }

    /// Whether this member is alive, or is dead and what it held has not all been given back yet.
    #[must_use]
    pub fn is_unswept(&self, member: Member) -> bool {
        self.slot(member.slot).is_some_and(|slot| {
            let state = slot.state();
            state.epoch == member.epoch && matches!(state.phase, Phase::Live | Phase::Dead)
        })
    }

    /// Whether this member is proven to be gone, even if no member has noticed its death yet.
    #[must_use]
    pub fn is_gone(&self, member: Member) -> bool {
        !self.is_live(member) || service::is_proven_dead(self, member)
    }

    /// Announces that this process is about to end in order. What it holds then is let go of by its sweep, as
    /// after a kill, but those who share locks and the like with it are not told of a death.
    pub fn announce_end(&self) {
        let me = self.me();
        if let Some(slot) = self.slot(me.slot).filter(|_| self.is_owning_process() && self.is_live(me)) {
            slot.words[slot::ENDED].store(1, Ordering::SeqCst);
        }
    }

    /// Whether this member, which may be dead, has announced its end before ([`Domain::announce_end`]).
    #[must_use]
    pub fn has_announced_end(&self, member: Member) -> bool {
        self.slot(member.slot).is_some_and(|slot| {
            slot.state().epoch == member.epoch && slot.words[slot::ENDED].load(Ordering::SeqCst) == 1
        })
    }

    /// This member.
    #[must_use]
    #[inline]
    pub fn me(&self) -> Member {
        unpack(self.me.load(Ordering::Relaxed))
    }

    /// A number that tells this domain from every other live one on this machine.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The geometry of the domain's file.
    #[must_use]
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The strategy that backs the domain.
    #[must_use]
    pub fn strategy(&self) -> SharingStrategy {
        self.backing.strategy()
    }

    /// The number of bytes that all members together may populate.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.header()[header::LIMIT_BYTES].load(Ordering::Relaxed)
    }

    /// All members whose slot is not free, including dead ones that are being swept.
    #[must_use]
    pub fn members(&self) -> Vec<MemberInfo> {
        self.slots()
            .map(|(index, entry)| entry.info(index))
            .filter(|member| member.phase != Phase::Free)
            .collect()
    }

    /// The number of dead members that have been swept since the domain was made.
    #[must_use]
    pub fn sweeps(&self) -> u64 {
        self.header()[header::SWEEPS].load(Ordering::SeqCst)
    }

    /// How many times marks were made on what dead members held: each sweep counts before its first mark and
    /// after its last one. A scan for what the messages of the dead still name may decide about the marks
    /// only if this count has not moved since the scan began. An older scan may have missed what a dead
    /// member sent.
    #[must_use]
    #[inline]
    pub fn suspicions(&self) -> u64 {
        self.header()[header::SUSPICIONS].load(Ordering::SeqCst) / crate::layout::suspicions::ONE
    }

    /// The memory that the whole file has allocated, in bytes, including its tables.
    ///
    /// # Errors
    /// The kernel's error of fstat(2).
    pub fn allocated_bytes(&self) -> Result<u64, DomainError> {
        Ok(memfd::allocated_bytes(&self.backing)?)
    }

    /// Wakes the service thread. It sweeps the dead and calls its handler at once.
    pub fn wake_service(&self) {
        if let Some(service) = self.service.get().filter(|_| self.is_owning_process()) {
            service.wake();
        }
    }

    /// Wakes the service thread within 10 ms, once for all requests until then. For work that is not urgent,
    /// while another process has a better use for the processor that the thread would wake on. It takes up to
    /// half a second where the process may not wait for descriptors (`RLIMIT_NOFILE` of 0).
    pub fn wake_service_soon(&self) {
        if let Some(service) = self.service.get().filter(|_| self.is_owning_process()) {
            service.wake_soon();
        }
    }

    /// Proves and sweeps the dead now, on the calling thread. When it returns, the slots of children that
    /// this process has waited for are free, and threads that wait for these children have been woken, unless
    /// another member started the sweep first and has not finished it. Does nothing before the service is
    /// started.
    ///
    /// # Blocking
    /// While the service thread or another thread of this process sweeps.
    pub fn sweep_dead(&self) {
        self.sweep(Scope::Watched);
    }

    /// As [`Domain::sweep_dead`], for all members and not only for those that this one has admitted and its
    /// neighbours. For a caller that needs their slots. A slot that another member is sweeping becomes free
    /// when that sweep ends.
    ///
    /// # Blocking
    /// As [`Domain::sweep_dead`].
    pub fn sweep_all_dead(&self) {
        self.sweep(Scope::All);
    }

    fn sweep(&self, scope: Scope) {
        if let Some(service) = self.service.get().filter(|_| self.is_owning_process()) {
            service.sweep_dead(self, scope);
        }
    }

    /// Runs `work` on the service thread in its next turn, and again in each turn until `work` returns true.
    /// For work that the caller need not wait for.
    ///
    /// A turn comes at least twice a second; [`Domain::wake_service`] makes the next one start at once. The
    /// work is dropped when the domain is left, and in a process that is forked from this one. Returns false,
    /// and drops `work`, where there is no service thread.
    pub fn defer(&self, work: impl FnMut() -> bool + Send + 'static) -> bool {
        let service = self.service.get().filter(|_| self.is_owning_process());
        service.map(|service| service.defer(Box::new(work))).is_some()
    }

    pub(crate) fn count_sweep(&self) {
        self.header()[header::SWEEPS].fetch_add(1, Ordering::SeqCst);
    }

    /// Newcomers that this member has invited and that have not joined yet are watched by somebody else once
    /// it leaves: by a member of their own PID namespace. Where others remain but none of these, nobody could
    /// learn of a newcomer's death, so its slot is free, which it learns when it joins.
    fn leave_invited(&self) {
        let others = || {
            self.slots()
                .filter(|(index, other)| *index != self.me().slot && other.state().phase == Phase::Live)
        };
        for (_, invited) in self.slots() {
            let state = invited.state();
            if state.phase != Phase::Invited || state.author != self.me().slot || others().next().is_none() {
                continue;
            }
            let namespace = invited.identity().namespace;
            let next = others()
                .find(|(_, other)| other.identity().namespace == namespace)
                .map_or(State { phase: Phase::Free, ..state }, |(author, _)| State { author, ..state });
            invited.change(state, next);
        }
    }

    pub(crate) fn header(&self) -> &[AtomicU64; header::N_WORDS] {
        // The tables are mapped with at least one page, so the header is always there.
        static NOWHERE: [AtomicU64; header::N_WORDS] = [const { AtomicU64::new(0) }; header::N_WORDS];
        self.tables.words(0, header::N_WORDS).and_then(|words| words.first_chunk()).unwrap_or(&NOWHERE)
    }

    pub(crate) fn slot(&self, index: u8) -> Option<Slot<'_>> {
        slot_in(&self.tables, index)
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = (u8, Slot<'_>)> {
        (0..MAX_MEMBERS).filter_map(|index| {
            let index = u8::try_from(index).ok()?;
            Some((index, self.slot(index)?))
        })
    }

    pub(crate) fn extent_entry(&self, index: usize) -> Option<&[AtomicU64; extent::N_WORDS]> {
        if index >= self.layout.n_extents {
            return None;
        }
        let offset = EXTENT_TABLE_OFFSET_BYTES + index * EXTENT_ENTRY_LEN_BYTES;
        self.tables.words(offset, extent::N_WORDS)?.first_chunk()
    }
}

/// Packs a member into one word, so that it changes in one step.
fn pack(member: Member) -> u64 {
    u64::from(member.epoch) << 8 | u64::from(member.slot)
}

fn unpack(word: u64) -> Member {
    let [slot, e0, e1, e2, e3, ..] = word.to_le_bytes();
    Member { slot, epoch: u32::from_le_bytes([e0, e1, e2, e3]) }
}

fn refused(admission: Admission, what: &str) -> DomainError {
    DomainError::NotAdmitted { slot: usize::from(admission.member.slot), what: what.to_owned() }
}

fn slot_in(tables: &Tables, index: u8) -> Option<Slot<'_>> {
    let index = usize::from(index);
    let words = tables.words(PROCESS_TABLE_OFFSET_BYTES + index * SLOT_LEN_BYTES, slot::N_WORDS)?;
    (index < MAX_MEMBERS).then_some(Slot { words: words.first_chunk()? })
}

impl AsFd for Domain {
    /// The domain's file alone: [`Domain::fds`] without the socket to the descriptor store.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.backing.as_fd()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        let me = self.me();
        // In a forked process the parent is the member, and stays one.
        let Some(entry) = self.slot(me.slot).filter(|_| self.is_owning_process()) else { return };
        let state = entry.state();
        // This member was declared dead: its slot and every slot that it had stamped belong to its sweeper.
        if state.epoch != me.epoch || state.phase != Phase::Live {
            return;
        }
        // Sweeps that this member could not finish, because it could not reach some block: take the stamps
        // back, so that the next member that looks proves the death again and starts over. Nobody would watch
        // a stamp left here, because the process that it names does not die.
        for (_, other) in self.slots() {
            let stamped = other.state();
            if stamped.phase == Phase::Dead && stamped.author == me.slot {
                other.change(stamped, State { phase: Phase::Live, ..stamped });
            }
        }
        self.leave_invited();
        entry.change(state, State { phase: Phase::Free, ..state });
    }
}

#[cfg(test)]
mod tests;
