//! How a process becomes a member: by making a domain, by joining one, or by rejoining after a fork of a
//! member.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tensorferry_os::fork_detector::ForkDetector;
use tensorferry_os::mapping::{Reservation, Tables};
use tensorferry_os::memfd;
use tensorferry_os::pidfd::PidFd;
use tensorferry_os::presence::Presence;
use tensorferry_sharing::{Backing, FdStoreClient};

use super::fd_store::FdStoreAccess;
use super::{Domain, DomainFds, pack, refused, slot_in};
use crate::layout::{MAGIC, VERSION, header, presence_offset};
use crate::member::{Slot, State};
use crate::memory;
use crate::service::MAX_CLAIMS;
use crate::{Admission, DomainError, DomainFile, Layout, Member, Phase};

impl Domain {
    /// Maps the domain behind `fds` and becomes the member that `admission` names. An admission can be used
    /// once. The domain's file alone is enough ([`DomainFds::fd_store`] says what is missing then).
    ///
    /// # Errors
    /// [`DomainError::NotADomain`], [`DomainError::WrongVersion`], [`DomainError::NotAdmitted`], or the
    /// kernel's error. In each case nothing was changed.
    pub fn join(fds: impl Into<DomainFds>, admission: Admission) -> Result<Arc<Self>, DomainError> {
        let DomainFds { file, fd_store } = fds.into();
        let DomainFile { backing, layout, id } = DomainFile::open(file)?;
        if admission.domain_id != id {
            return Err(refused(admission, "it is for another domain"));
        }
        let mapping = Mapping::new(&backing, &layout)?;
        let slot = slot_in(&mapping.tables, admission.member.slot)
            .ok_or_else(|| refused(admission, "there is no such slot"))?;
        invited(slot, admission)?;
        if !PidFd::of_self()?.is_process(&slot.identity())? {
            return Err(refused(admission, "it is for another process"));
        }
        // Lock the byte before the slot is live: from then on an unlocked byte is proof of a death.
        let presence = Presence::announce(&backing, presence_offset(admission.member))?;
        // The last step that can fail. Nothing was changed before it except the lock, which `presence`
        // releases.
        go_live(slot, admission)?;
        let fd_store = FdStoreAccess::Remote(fd_store.map(FdStoreClient::new));
        Ok(Arc::new(Self::over(backing, mapping, presence, layout, id, admission.member, fd_store)))
    }

    /// Writes a fresh layout into an empty file and becomes its first member.
    pub(crate) fn format(
        backing: Backing,
        layout: Layout,
        limit_bytes: u64,
    ) -> Result<Arc<Self>, DomainError> {
        let identity = PidFd::of_self()?.identity()?;
        // The inode is unique among the live files of this boot, which is all that an id must tell apart.
        let (device, inode) = memfd::file_id(&backing)?;
        let id = device.rotate_left(32) ^ inode;
        let me = Member { slot: 0, epoch: 1 };
        let presence = Presence::announce(&backing, presence_offset(me))?;
        let mapping = Mapping::new(&backing, &layout)?;
        let domain =
            Self::over(backing, mapping, presence, layout, id, me, FdStoreAccess::Own(OnceLock::new()));
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

    fn over(
        backing: Backing,
        Mapping { tables, data, fork_detector }: Mapping,
        presence: Presence,
        layout: Layout,
        id: u64,
        me: Member,
        fd_store: FdStoreAccess,
    ) -> Self {
        Self {
            backing,
            tables,
            data,
            layout,
            id,
            me: AtomicU64::new(pack(me)),
            fork_detector,
            service: OnceLock::new(),
            fd_store,
            fd_store_of_a_fork: OnceLock::new(),
            presence,
        }
    }

    /// In a process that was forked from this member: becomes the member that `admission` names, over the
    /// same mapping. From then on [`Domain::me`] returns the new member. `fd_store` is as in [`DomainFds`].
    /// The parent waits meanwhile, and holds everything that this process has a copy of.
    ///
    /// This process does not [own](Domain::is_owning_process) the member yet. [`Domain::finish_rejoin`] makes
    /// it the owner, once it holds everything by its own bits.
    ///
    /// # Errors
    /// [`DomainError::NotAdmitted`], or the kernel's error.
    pub(crate) fn rejoin(&self, admission: Admission, fd_store: Option<OwnedFd>) -> Result<(), DomainError> {
        if self.is_owning_process() {
            return Err(refused(admission, "this process is a member already, and was not forked from one"));
        }
        if admission.domain_id != self.id {
            return Err(refused(admission, "it is for another domain"));
        }
        let slot =
            self.slot(admission.member.slot).ok_or_else(|| refused(admission, "there is no such slot"))?;
        invited(slot, admission)?;
        if !PidFd::of_self()?.is_process(&slot.identity())? {
            return Err(refused(admission, "it is for another process"));
        }
        // As in `join`, before the slot is live. A lock shared with the parent would keep the parent's byte
        // locked after the parent's death.
        self.presence.renew(&self.backing, presence_offset(admission.member))?;
        go_live(slot, admission)?;
        self.me.store(pack(admission.member), Ordering::SeqCst);
        if let FdStoreAccess::Own(store) = self.fd_store_access() {
            // The descriptor store is the parent's. If a socket stays open, the only effect is that members
            // do not see that the parent has ended.
            let _ = store.get().map(|store| store.leave_to_parent());
            let _ = self.fd_store_of_a_fork.set(FdStoreAccess::Remote(fd_store.map(FdStoreClient::new)));
        }
        Ok(())
    }

    /// Makes this process, which has [rejoined](Domain::rejoin), the owner of its member.
    pub(crate) fn finish_rejoin(&self) {
        self.fork_detector.adopt();
    }
}

/// Returns the state of the slot while its admission can be used.
fn invited(slot: Slot<'_>, admission: Admission) -> Result<State, DomainError> {
    let state = slot.state();
    let is_valid = state.epoch == admission.member.epoch && state.phase == Phase::Invited;
    if is_valid { Ok(state) } else { Err(refused(admission, "it was used or given back")) }
}

/// Turns an invited slot live. A sweeper of its admitter may restamp the slot meanwhile.
fn go_live(slot: Slot<'_>, admission: Admission) -> Result<(), DomainError> {
    for _ in 0..MAX_CLAIMS {
        let state = invited(slot, admission)?;
        if slot.change(state, State { phase: Phase::Live, ..state }) {
            return Ok(());
        }
    }
    Err(refused(admission, "its slot changes all the time"))
}

/// A process's mappings of a domain.
struct Mapping {
    tables: Tables,
    data: Reservation,
    fork_detector: ForkDetector,
}

impl Mapping {
    fn new(backing: &Backing, layout: &Layout) -> Result<Self, DomainError> {
        let tables = memory::map_tables(backing, layout.data_offset_bytes)?;
        let data = memory::map_data(backing, layout)?;
        Ok(Self { tables, data, fork_detector: ForkDetector::new()? })
    }
}
