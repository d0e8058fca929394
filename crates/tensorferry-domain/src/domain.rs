//! The domain as one member sees it.

mod lodging;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tensorferry_os::home::HomeMark;
use tensorferry_os::mapping::{Reservation, Tables};
use tensorferry_os::memfd;
use tensorferry_os::pidfd::{Identity, PidFd};
use tensorferry_os::presence::Presence;
use tensorferry_sharing::{Backing, Door, Strategy};

pub use lodging::DomainFds;
use lodging::Lodging;

use crate::layout::{
    EXTENT_ENTRY_LEN_BYTES, EXTENT_TABLE_OFFSET_BYTES, MAGIC, MAX_MEMBERS, PROCESS_TABLE_OFFSET_BYTES,
    SLOT_LEN_BYTES, VERSION, extent, header, presence_offset, slot,
};
use crate::member::{Slot, State};
use crate::memory;
use crate::service::{self, Service, Whom};
use crate::{Admission, DomainBuilder, DomainError, Layout, Member, MemberInfo, Phase};

/// One member's mapping of a domain.
///
/// Dropping it leaves the domain: the member's slot becomes free. A process that ends without doing so is swept by the
/// others, with the same result.
#[derive(Debug)]
pub struct Domain {
    pub(crate) backing: Backing,
    tables: Tables,
    pub(crate) data: Reservation,
    layout: Layout,
    id: u64,
    /// Slot and epoch. Another member than before in a process that was forked and has joined by itself.
    me: AtomicU64,
    /// In the process that is this member, and in no process forked from it.
    home: HomeMark,
    pub(crate) service: OnceLock<Service>,
    lodging: Lodging,
    /// In a process that was forked from the one that made the domain.
    lodging_of_a_fork: OnceLock<Lodging>,
    /// Goes with the domain, after the slot was left.
    presence: Presence,
}

impl Domain {
    /// Settings of a new domain.
    #[must_use]
    pub fn builder() -> DomainBuilder {
        DomainBuilder::new()
    }

    /// Maps the domain behind `fds` and becomes the member that `admission` names. An admission can be used once. The
    /// domain's file alone is enough ([`DomainFds::door`] says for what).
    ///
    /// # Errors
    /// [`DomainError::NotADomain`], [`DomainError::WrongVersion`], [`DomainError::NotAdmitted`], or the
    /// kernel's error; in each case nothing was changed.
    pub fn join(fds: impl Into<DomainFds>, admission: Admission) -> Result<Arc<Self>, DomainError> {
        let DomainFds { file, door } = fds.into();
        let not = |what: String| DomainError::NotADomain { what };
        let backing = Backing::from_fd(file).map_err(|e| not(e.to_string()))?;
        if backing.len_bytes() < Layout::smallest().file_len_bytes() as u64 {
            return Err(not(format!("{} bytes are too few", backing.len_bytes())));
        }
        let head = memory::map_tables(&backing, EXTENT_TABLE_OFFSET_BYTES)?;
        let claims = read_header(&head)?;
        let [magic, version, _, data_offset, data_len, extent_len, id, ..] = claims;
        if magic != MAGIC {
            return Err(not(format!("it starts with {magic:#018x}")));
        }
        if version != VERSION {
            return Err(DomainError::WrongVersion { found: version, ours: VERSION });
        }
        let layout = Layout::from_claims(backing.len_bytes(), data_len, data_offset, extent_len)?;
        if admission.domain_id != id {
            return Err(refused(admission, "it is for another domain"));
        }
        // The invitation is used up before this process has anything that leaving would give away: whoever is refused
        // here has changed nothing.
        let slot = slot_in(&head, admission.member.slot)
            .ok_or_else(|| refused(admission, "there is no such slot"))?;
        let invited = slot.state();
        if invited.epoch != admission.member.epoch || invited.phase != Phase::Invited {
            return Err(refused(admission, "it was used or given back"));
        }
        if !PidFd::of_self()?.identity()?.is_same_process(&slot.identity()) {
            return Err(refused(admission, "it is for another process"));
        }
        // Before the slot is live: from then on an unlocked byte means a death.
        let presence = Presence::announce(&backing, presence_offset(admission.member))?;
        let live = State { phase: Phase::Live, ..invited };
        if !slot.change(invited, live) {
            return Err(refused(admission, "it was used or given back"));
        }
        let lodging = Lodging::Behind(door.map(Door::new));
        let domain = Self::map(backing, presence, layout, id, admission.member, lodging);
        if domain.is_err() {
            slot.change(live, invited);
        }
        Ok(Arc::new(domain?))
    }

    /// Writes a fresh layout into an empty file and becomes its first member.
    pub(crate) fn format(
        backing: Backing,
        layout: Layout,
        limit_bytes: u64,
    ) -> Result<Arc<Self>, DomainError> {
        let identity = PidFd::of_self()?.identity()?;
        // The file's inode is unique among the live files of this boot, which is all that an id must tell apart.
        let (device, inode) = memfd::file_id(&backing)?;
        let id = device.rotate_left(32) ^ inode;
        let me = Member { slot: 0, epoch: 1 };
        let presence = Presence::announce(&backing, presence_offset(me))?;
        let domain = Self::map(backing, presence, layout, id, me, Lodging::Own(OnceLock::new()))?;
        let words = domain.header();
        for (index, value) in [
            (header::FILE_LEN_BYTES, layout.file_len_bytes() as u64),
            (header::DATA_OFFSET_BYTES, layout.data_offset_bytes as u64),
            (header::DATA_LEN_BYTES, layout.data_len_bytes as u64),
            (header::EXTENT_LEN_BYTES, layout.extent_len_bytes as u64),
            (header::DOMAIN_ID, id),
            (header::LIMIT_BYTES, limit_bytes),
            (header::VERSION, VERSION),
        ] {
            words[index].store(value, Ordering::Relaxed);
        }
        if let Some(slot) = domain.slot(me.slot) {
            slot.set_identity(identity);
            let free = State { epoch: 0, author: 0, phase: Phase::Free };
            slot.change(free, State { epoch: me.epoch, author: me.slot, phase: Phase::Live });
        }
        words[header::MAGIC].store(MAGIC, Ordering::Release);
        Ok(Arc::new(domain))
    }

    fn map(
        backing: Backing,
        presence: Presence,
        layout: Layout,
        id: u64,
        me: Member,
        lodging: Lodging,
    ) -> Result<Self, DomainError> {
        let tables = memory::map_tables(&backing, layout.data_offset_bytes)?;
        let data = memory::map_data(&backing, &layout)?;
        let (home, me) = (HomeMark::new()?, AtomicU64::new(pack(me)));
        let (service, lodging_of_a_fork) = (OnceLock::new(), OnceLock::new());
        Ok(Self {
            backing,
            tables,
            data,
            layout,
            id,
            me,
            home,
            service,
            lodging,
            lodging_of_a_fork,
            presence,
        })
    }

    /// In a process that was forked from this member: becomes the member that `admission` names, over the same mapping.
    /// [`Domain::me`] is another one from then on. `door` is as in [`DomainFds`]. The parent stands still meanwhile, and holds everything that this process
    /// has a copy of.
    ///
    /// This process is not [at home](Domain::is_home) yet: that is said by [`Domain::settle`], once it holds by itself what
    /// it has.
    ///
    /// # Errors
    /// [`DomainError::NotAdmitted`], or the kernel's error.
    pub(crate) fn rejoin(&self, admission: Admission, door: Option<OwnedFd>) -> Result<(), DomainError> {
        if self.is_home() {
            return Err(refused(admission, "this process is a member already, and was not forked from one"));
        }
        if admission.domain_id != self.id {
            return Err(refused(admission, "it is for another domain"));
        }
        let slot =
            self.slot(admission.member.slot).ok_or_else(|| refused(admission, "there is no such slot"))?;
        let invited = slot.state();
        if invited.epoch != admission.member.epoch || invited.phase != Phase::Invited {
            return Err(refused(admission, "it was used or given back"));
        }
        if !PidFd::of_self()?.identity()?.is_same_process(&slot.identity()) {
            return Err(refused(admission, "it is for another process"));
        }
        // As in `join`: before the slot is live. What this process shares with its parent would keep the parent's
        // byte locked after the parent's death.
        self.presence.renew(&self.backing, presence_offset(admission.member))?;
        if !slot.change(invited, State { phase: Phase::Live, ..invited }) {
            return Err(refused(admission, "it was used or given back"));
        }
        self.me.store(pack(admission.member), Ordering::SeqCst);
        if matches!(self.lodging(), Lodging::Own(_)) {
            // The keeper is the parent's.
            let _ = self.lodging_of_a_fork.set(Lodging::Behind(door.map(Door::new)));
        }
        Ok(())
    }

    /// Says that this process, which has [rejoined](Domain::rejoin), is this member.
    pub(crate) fn settle(&self) {
        self.home.settle();
    }

    /// Whether this process is this member: the one that made or joined the domain, and not one that was forked from it and
    /// has only a copy of the memory. Such a process is refused everything that a member may do.
    #[must_use]
    #[inline]
    pub fn is_home(&self) -> bool {
        self.home.is_here()
    }

    /// # Errors
    /// [`DomainError::Forked`] unless this process is this member.
    #[inline]
    pub fn check_home(&self) -> Result<(), DomainError> {
        if self.is_home() { Ok(()) } else { Err(DomainError::Forked) }
    }

    /// Claims a slot for the process behind `child` and says what that process needs to join.
    ///
    /// The caller keeps the pidfd until the child has joined; a child that dies before is swept like any
    /// member.
    ///
    /// # Errors
    /// [`DomainError::ProcessTableFull`] when every slot is taken, [`DomainError::UnknownProcess`] when the process
    /// cannot be told from others.
    ///
    /// # Blocking
    /// When every slot is taken, for as long as [`Domain::look_at_all`] takes, which makes room.
    pub fn admit(&self, child: &PidFd) -> Result<Admission, DomainError> {
        self.check_home()?;
        let identity = child.identity()?;
        if !identity.is_known() {
            return Err(DomainError::UnknownProcess { pid: child.pid() });
        }
        let invited = self.invite(identity).or_else(|| {
            self.look_at_all();
            self.invite(identity)
        });
        invited.ok_or(DomainError::ProcessTableFull { slots: MAX_MEMBERS })
    }

    /// Claims a free slot, if there is one.
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
                self.poke();
                return Some(Admission {
                    domain_id: self.id,
                    member: Member { slot, epoch: admitting.epoch },
                });
            }
        }
        None
    }

    /// Whether this member lives, as far as is known: a death is known shortly after it.
    #[must_use]
    pub fn is_live(&self, member: Member) -> bool {
        self.slot(member.slot).is_some_and(|slot| {
            let state = slot.state();
            state.epoch == member.epoch && state.phase == Phase::Live
        })
    }

    /// Whether this member is proven to be gone, also when nobody has noticed its death yet.
    #[must_use]
    pub fn is_gone(&self, member: Member) -> bool {
        !self.is_live(member) || service::is_proven_dead(self, member)
    }

    /// This member.
    #[must_use]
    #[inline]
    pub fn me(&self) -> Member {
        unpack(self.me.load(Ordering::Relaxed))
    }

    /// What tells this domain from every other live one on this machine.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Where everything lies.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The strategy that backs it.
    #[must_use]
    pub fn strategy(&self) -> Strategy {
        self.backing.strategy()
    }

    /// How much memory all members together may populate, in bytes.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.header()[header::LIMIT_BYTES].load(Ordering::Relaxed)
    }

    /// The members that are not free, dead ones that are being swept included.
    #[must_use]
    pub fn members(&self) -> Vec<MemberInfo> {
        self.slots()
            .map(|(index, entry)| entry.info(index))
            .filter(|member| member.phase != Phase::Free)
            .collect()
    }

    /// How many of the dead have been swept since the domain was made.
    #[must_use]
    pub fn sweeps(&self) -> u64 {
        self.header()[header::SWEEPS].load(Ordering::SeqCst)
    }

    /// How often a sweep has begun to mark what a dead member held. A scan for what its messages still name decides
    /// about such marks only if this has not moved since the scan began: an older scan may have missed what the dead
    /// one sent.
    #[must_use]
    pub fn suspicions(&self) -> u64 {
        self.header()[header::SUSPICIONS].load(Ordering::SeqCst)
    }

    /// Memory that the whole file has allocated, in bytes, tables included.
    ///
    /// # Errors
    /// The kernel's error of fstat(2).
    pub fn allocated_bytes(&self) -> Result<u64, DomainError> {
        Ok(memfd::allocated_bytes(&self.backing)?)
    }

    /// Makes the service thread look around now.
    pub fn poke(&self) {
        if let Some(service) = self.service.get().filter(|_| self.is_home()) {
            service.poke();
        }
    }

    /// Proves and sweeps the dead now, on this thread, instead of when the service thread gets to it: afterwards the slots
    /// of children that this process has waited for are free, and who waits for them has been told, unless another member
    /// was first and is at it. Does nothing before the service is started.
    ///
    /// # Blocking
    /// While the service thread or another thread sweeps.
    pub fn look_around(&self) {
        self.look(Whom::Watched);
    }

    /// As [`Domain::look_around`], for whoever needs the slots of the dead: at all members, and not only at those that this one
    /// has admitted and at its neighbours. Whom another member is sweeping at the moment has a slot until that is done.
    ///
    /// # Blocking
    /// As [`Domain::look_around`].
    pub fn look_at_all(&self) {
        self.look(Whom::All);
    }

    fn look(&self, at: Whom) {
        if let Some(service) = self.service.get().filter(|_| self.is_home()) {
            service.look_around(self, at);
        }
    }

    pub(crate) fn count_sweep(&self) {
        self.header()[header::SWEEPS].fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn header(&self) -> &[AtomicU64; header::N_WORDS] {
        // The tables were mapped with at least one page, so the header is always there.
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

/// A member in one word, so that it changes in one step.
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

fn read_header(tables: &Tables) -> Result<[u64; header::N_WORDS], DomainError> {
    let words = tables
        .words(0, header::N_WORDS)
        .ok_or_else(|| DomainError::NotADomain { what: "it has no header".to_owned() })?;
    let mut claims = [0; header::N_WORDS];
    for (claim, word) in claims.iter_mut().zip(words) {
        *claim = word.load(Ordering::Acquire);
    }
    Ok(claims)
}

impl AsFd for Domain {
    /// The domain's file: [`Domain::fds`] without the way to the keeper.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.backing.as_fd()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        let me = self.me();
        // In a forked process it is the parent that is a member, and stays one.
        let Some(entry) = self.slot(me.slot).filter(|_| self.is_home()) else { return };
        let state = entry.state();
        // Where it was declared dead, the slot is the sweeper's, and so is what it had stamped.
        if state.epoch != me.epoch || state.phase != Phase::Live {
            return;
        }
        // Sweeps that could not be finished, because something could not be reached from here: whoever looks next proves
        // the death once more and begins again. A stamp would be looked after by nobody, since whose it is does not die.
        for (_, other) in self.slots() {
            let stamped = other.state();
            if stamped.phase == Phase::Dead && stamped.author == me.slot {
                other.change(stamped, State { phase: Phase::Live, ..stamped });
            }
        }
        entry.change(state, State { phase: Phase::Free, ..state });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;
    use crate::{Caretaker, Memory};

    /// Who was swept, one entry for each sweep.
    #[derive(Default)]
    struct Notes(Mutex<Vec<Vec<Member>>>);

    impl Caretaker for Notes {
        fn sweep(&self, dead: &[Member]) -> bool {
            self.0.lock().unwrap().push(dead.to_vec());
            true
        }

        fn beat(&self) -> Option<Duration> {
            None
        }

        fn is_held(&self, _name: u64) -> bool {
            false
        }
    }

    /// Somebody whose number is above any that Linux gives, in a slot that is free.
    fn nobody_in(domain: &Domain, slot: u8, author: Member, phase: Phase) {
        let entry = domain.slot(slot).unwrap();
        entry.set_identity(Identity { pid: 1 << 22, ..PidFd::of_self().unwrap().identity().unwrap() });
        let free = State { epoch: 0, author: 0, phase: Phase::Free };
        assert!(entry.change(free, State { epoch: 1, author: author.slot, phase }));
    }

    #[test]
    fn what_a_leaver_could_not_finish_sweeping_is_swept_by_another() {
        let first = Domain::builder().create().unwrap();
        let admission = first.admit(&PidFd::of_self().unwrap()).unwrap();
        let second = Domain::join(first.as_fd().try_clone_to_owned().unwrap(), admission).unwrap();
        nobody_in(&first, 2, second.me(), Phase::Dead);

        let memory = Memory::over(Arc::clone(&first));
        let notes: Arc<dyn Caretaker> = Arc::new(Notes::default());
        memory.start_service(Arc::downgrade(&notes)).unwrap();
        first.look_around();
        assert_eq!(first.sweeps(), 0, "it is being swept by a living member");
        drop(second);
        first.look_around();
        assert_eq!(first.sweeps(), 1);
        assert_eq!(first.members().len(), 1);
        drop((memory, notes));
    }

    /// With a service that notes down who was swept.
    fn served(domain: &Arc<Domain>) -> (Memory, Arc<Notes>, Arc<dyn Caretaker>) {
        let notes = Arc::new(Notes::default());
        let caretaker: Arc<dyn Caretaker> = Arc::<Notes>::clone(&notes);
        let memory = Memory::over(Arc::clone(domain));
        memory.start_service(Arc::downgrade(&caretaker)).unwrap();
        (memory, notes, caretaker)
    }

    /// Behind the last slot.
    fn end() -> u8 {
        u8::try_from(MAX_MEMBERS).unwrap()
    }

    #[test]
    fn the_dead_of_a_full_table_make_room_in_one_sweep() {
        let first = Domain::builder().create().unwrap();
        // Slot 1 was sweeping slot 2, which was sweeping slot 3, when both died; the next ones slot 1 had admitted.
        nobody_in(&first, 1, first.me(), Phase::Live);
        nobody_in(&first, 2, Member { slot: 1, epoch: 1 }, Phase::Dead);
        nobody_in(&first, 3, Member { slot: 2, epoch: 1 }, Phase::Dead);
        (4..20).for_each(|slot| nobody_in(&first, slot, Member { slot: 1, epoch: 1 }, Phase::Live));
        (20..end()).for_each(|slot| nobody_in(&first, slot, first.me(), Phase::Live));
        let myself = PidFd::of_self().unwrap();
        let full = first.admit(&myself).unwrap_err();
        assert!(matches!(full, DomainError::ProcessTableFull { slots: MAX_MEMBERS }), "{full}");

        let _served @ (_, notes, _) = &served(&first);
        first.admit(&myself).unwrap();
        let mut swept = notes.0.lock().unwrap().concat();
        swept.sort_by_key(|member| member.slot);
        let all: Vec<_> = (1..end()).map(|slot| Member { slot, epoch: 1 }).collect();
        assert_eq!(swept, all);
        assert_eq!(notes.0.lock().unwrap().len(), 1, "in one");
        assert_eq!(first.sweeps(), u64::from(end()) - 1);
    }

    #[test]
    fn who_needs_room_looks_at_those_too_whom_others_have_admitted() {
        let first = Domain::builder().create().unwrap();
        let myself = PidFd::of_self().unwrap();
        let admissions = [(); 3].map(|()| first.admit(&myself).unwrap());
        // Two living neighbours, so that whoever comes after them is not watched from here.
        let _living = admissions
            .map(|admission| Domain::join(first.as_fd().try_clone_to_owned().unwrap(), admission).unwrap());
        (4..end()).for_each(|slot| nobody_in(&first, slot, Member { slot: 3, epoch: 1 }, Phase::Live));
        let _served @ (_, notes, _) = &served(&first);
        first.look_around();
        assert!(notes.0.lock().unwrap().is_empty(), "the one who has admitted them looks after them");
        first.admit(&myself).unwrap();
        assert_eq!(notes.0.lock().unwrap().concat().len(), usize::from(end()) - 4);
    }

    #[test]
    fn a_state_that_nobody_can_have_written_is_nobodys() {
        let first = Domain::builder().create().unwrap();
        let _served @ (_, notes, _) = &served(&first);
        let dead = State { epoch: 1, author: first.me().slot, phase: Phase::Dead };
        let word = &first.slot(1).unwrap().words[crate::layout::slot::STATE];
        word.store(dead.pack() | 1 << 20, Ordering::SeqCst);
        first.look_around();
        assert!(notes.0.lock().unwrap().is_empty());
        assert_eq!(first.members().len(), 1);
        // Who looks for a free slot passes it by.
        assert_eq!(first.admit(&PidFd::of_self().unwrap()).unwrap().member().slot, 2);
    }
}
