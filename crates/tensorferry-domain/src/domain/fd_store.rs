//! The descriptors that a domain passes on: its own, for newcomers, and those stored for memory outside of
//! its file.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use tensorferry_sharing::{FdStore, FdStoreClient, FdStoreError};

use super::Domain;
use crate::DomainError;

/// How this member reaches the descriptor store.
#[derive(Debug)]
pub(super) enum FdStoreAccess {
    /// The store is in this process, which made the domain. It is created when it is first needed.
    Own(OnceLock<Arc<FdStore>>),
    /// The store is in the process that made the domain. `None` if this member joined without a socket to it.
    Remote(Option<FdStoreClient>),
}

/// The descriptors that a newcomer needs beside its [`Admission`](crate::Admission). Pass on both, in this
/// order.
#[derive(Debug)]
pub struct DomainFds {
    /// The domain's file.
    pub file: OwnedFd,
    /// The socket to the descriptor store. A member without it can do everything except receive memory that
    /// is outside of the domain's file.
    pub fd_store: Option<OwnedFd>,
}

impl From<OwnedFd> for DomainFds {
    fn from(file: OwnedFd) -> Self {
        Self { file, fd_store: None }
    }
}

impl DomainFds {
    /// Takes the descriptors of a message, in their order. Returns `None` when there is not even one.
    #[must_use]
    pub fn from_message(fds: Vec<OwnedFd>) -> Option<Self> {
        let mut fds = fds.into_iter();
        Some(Self { file: fds.next()?, fd_store: fds.next() })
    }

    /// The descriptors in the order in which they travel.
    pub fn into_message(self) -> impl Iterator<Item = OwnedFd> {
        std::iter::once(self.file).chain(self.fd_store)
    }
}

impl Domain {
    /// Duplicates the descriptors that a newcomer needs beside its [`Admission`](crate::Admission).
    ///
    /// # Errors
    /// EMFILE when no descriptor is left; [`DomainError::Forked`] in a fork of a member.
    pub fn fds(&self) -> Result<DomainFds, DomainError> {
        self.check_owning_process()?;
        let copy = |fd: BorrowedFd<'_>| {
            let copied = fd.try_clone_to_owned();
            copied.map_err(|e| tensorferry_os::Error::new("duplicating a descriptor of the domain", e))
        };
        let fd_store = match self.fd_store_access() {
            FdStoreAccess::Own(_) => Some(copy(self.own_fd_store()?.members_end())?),
            FdStoreAccess::Remote(client) => {
                client.as_ref().map(|client| copy(client.as_fd())).transpose()?
            }
        };
        Ok(DomainFds { file: copy(self.backing.as_fd())?, fd_store })
    }

    /// Stores a descriptor in the process that made the domain, under the name of a block, for as long as any
    /// member holds the block. Call it before the block is first sent. A receiver of the block can then fetch
    /// the descriptor even if this process has ended meanwhile.
    ///
    /// # Errors
    /// [`FdStoreError::NotConnected`] without a socket to the store or in a fork of a member,
    /// [`FdStoreError::Gone`], [`FdStoreError::Silent`], [`FdStoreError::Os`].
    ///
    /// # Blocking
    /// Only while the socket of the descriptor store has no room, for 20 seconds at most.
    pub fn store_fd(&self, name: u64, fd: OwnedFd) -> Result<(), FdStoreError> {
        self.check_owning_process().map_err(|_| FdStoreError::NotConnected)?;
        match self.fd_store_access() {
            FdStoreAccess::Own(_) => {
                self.own_fd_store()?.store(name, fd);
                Ok(())
            }
            FdStoreAccess::Remote(client) => {
                client.as_ref().ok_or(FdStoreError::NotConnected)?.store(name, fd.as_fd())
            }
        }
    }

    /// Fetches the descriptor that was stored under the name of a block.
    ///
    /// # Errors
    /// [`FdStoreError`].
    ///
    /// # Blocking
    /// Until the process that made the domain answers, for 20 seconds at most.
    pub fn fetch_fd(&self, name: u64) -> Result<OwnedFd, FdStoreError> {
        self.check_owning_process().map_err(|_| FdStoreError::NotConnected)?;
        match self.fd_store_access() {
            FdStoreAccess::Own(_) => self.own_fd_store()?.fetch(name),
            FdStoreAccess::Remote(client) => client.as_ref().ok_or(FdStoreError::NotConnected)?.fetch(name),
        }
    }

    /// The number of descriptors that this process stores for the domain.
    #[must_use]
    pub fn n_fds_kept(&self) -> usize {
        self.fd_store().map_or(0, |fd_store| fd_store.n_kept())
    }

    pub(super) fn fd_store_access(&self) -> &FdStoreAccess {
        self.fd_store_of_a_fork.get().unwrap_or(&self.fd_store)
    }

    /// Whether this process made the domain.
    pub(crate) fn is_maker(&self) -> bool {
        matches!(self.fd_store_access(), FdStoreAccess::Own(_))
    }

    /// The descriptor store, if it is in this process and was needed already.
    pub(crate) fn fd_store(&self) -> Option<&Arc<FdStore>> {
        match self.fd_store_access() {
            FdStoreAccess::Own(fd_store) => fd_store.get(),
            FdStoreAccess::Remote(_) => None,
        }
    }

    fn own_fd_store(&self) -> Result<&Arc<FdStore>, tensorferry_os::Error> {
        let FdStoreAccess::Own(fd_store) = self.fd_store_access() else {
            let kind = std::io::Error::from(std::io::ErrorKind::Unsupported);
            return Err(tensorferry_os::Error::new(
                "keeping descriptors for a domain of another process",
                kind,
            ));
        };
        if let Some(fd_store) = fd_store.get() {
            return Ok(fd_store);
        }
        let fresh = Arc::new(FdStore::new()?);
        let fd_store = fd_store.get_or_init(|| fresh);
        // So that the service thread polls the store's socket.
        self.wake_service();
        Ok(fd_store)
    }
}
