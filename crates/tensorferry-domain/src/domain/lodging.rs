//! Descriptors that the domain passes on: its own, for newcomers, and those that are kept for memory outside of its file.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use tensorferry_sharing::{Door, Keeper, KeeperError};

use super::Domain;
use crate::DomainError;

/// Where this member has descriptors kept.
#[derive(Debug)]
pub(super) enum Lodging {
    /// Here: this process made the domain. Made when the first newcomer needs a way to it.
    Own(OnceLock<Arc<Keeper>>),
    /// With whoever made the domain.
    Behind(Option<Door>),
}

/// The descriptors that a newcomer needs beside its [`Admission`](crate::Admission): pass on both of them, in this order.
#[derive(Debug)]
pub struct DomainFds {
    /// The domain's file.
    pub file: OwnedFd,
    /// The way to the keeper of descriptors. Who has none can do everything but receive memory that lies outside of the
    /// domain's file.
    pub door: Option<OwnedFd>,
}

impl From<OwnedFd> for DomainFds {
    fn from(file: OwnedFd) -> Self {
        Self { file, door: None }
    }
}

impl DomainFds {
    /// As they came out of a message, in their order. `None` when there is not even one.
    #[must_use]
    pub fn from_message(fds: Vec<OwnedFd>) -> Option<Self> {
        let mut fds = fds.into_iter();
        Some(Self { file: fds.next()?, door: fds.next() })
    }

    /// In the order in which they travel.
    pub fn into_message(self) -> impl Iterator<Item = OwnedFd> {
        std::iter::once(self.file).chain(self.door)
    }
}

impl Domain {
    /// What a newcomer needs beside its [`Admission`](crate::Admission).
    ///
    /// # Errors
    /// EMFILE when no descriptor is left.
    pub fn fds(&self) -> Result<DomainFds, DomainError> {
        self.check_home()?;
        let copy = |fd: BorrowedFd<'_>| {
            let copied = fd.try_clone_to_owned();
            copied.map_err(|e| tensorferry_os::Error::new("duplicating a descriptor of the domain", e))
        };
        let door = match self.lodging() {
            Lodging::Own(_) => Some(copy(self.own_keeper()?.door())?),
            Lodging::Behind(door) => door.as_ref().map(|door| copy(door.as_fd())).transpose()?,
        };
        Ok(DomainFds { file: copy(self.backing.as_fd())?, door })
    }

    /// Has a descriptor kept in the process that made the domain, under the name of a block, for as long as somebody
    /// holds the block. Call it before the block is first sent: then whoever receives it finds the descriptor, also when
    /// this process has ended meanwhile.
    ///
    /// # Errors
    /// [`KeeperError`].
    ///
    /// # Blocking
    /// Only when a great deal waits for the keeper.
    pub fn lodge(&self, name: u64, fd: OwnedFd) -> Result<(), KeeperError> {
        self.check_home().map_err(|_| KeeperError::NoDoor)?;
        match self.lodging() {
            Lodging::Own(_) => {
                self.own_keeper()?.lodge(name, fd);
                Ok(())
            }
            Lodging::Behind(door) => door.as_ref().ok_or(KeeperError::NoDoor)?.lodge(name, fd.as_fd()),
        }
    }

    /// The descriptor that was lodged under the name of a block.
    ///
    /// # Errors
    /// [`KeeperError`].
    ///
    /// # Blocking
    /// Until the process that made the domain answers, for 20 seconds at most.
    pub fn fetch(&self, name: u64) -> Result<OwnedFd, KeeperError> {
        self.check_home().map_err(|_| KeeperError::NoDoor)?;
        match self.lodging() {
            Lodging::Own(_) => self.own_keeper()?.fetch(name),
            Lodging::Behind(door) => door.as_ref().ok_or(KeeperError::NoDoor)?.fetch(name),
        }
    }

    /// How many descriptors this process keeps for the domain.
    #[must_use]
    pub fn n_fds_kept(&self) -> usize {
        self.keeper().map_or(0, |keeper| keeper.n_kept())
    }

    pub(super) fn lodging(&self) -> &Lodging {
        self.lodging_of_a_fork.get().unwrap_or(&self.lodging)
    }

    /// The keeper, if it is here and was needed yet.
    pub(crate) fn keeper(&self) -> Option<&Arc<Keeper>> {
        match self.lodging() {
            Lodging::Own(keeper) => keeper.get(),
            Lodging::Behind(_) => None,
        }
    }

    fn own_keeper(&self) -> Result<&Arc<Keeper>, tensorferry_os::Error> {
        let Lodging::Own(keeper) = self.lodging() else {
            let kind = std::io::Error::from(std::io::ErrorKind::Unsupported);
            return Err(tensorferry_os::Error::new(
                "keeping descriptors for a domain of another process",
                kind,
            ));
        };
        if let Some(keeper) = keeper.get() {
            return Ok(keeper);
        }
        let fresh = Arc::new(Keeper::new()?);
        let keeper = keeper.get_or_init(|| fresh);
        // So that the service thread listens at the door.
        self.poke();
        Ok(keeper)
    }
}
