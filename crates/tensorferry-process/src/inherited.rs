//! What a child was given.

use std::os::fd::OwnedFd;

use tensorferry_os::pidfd::PidFd;

use crate::current::{self, Origin};
use crate::entry::{Failure, Run};
use crate::error::ProtocolError;
use crate::fork;
use crate::guard::Guard;
use crate::link::{Fds, Link};
use crate::protocol::{Frame, Hello};

/// What an entry gets: its name, the payload, the descriptors, and the way to its parent.
#[derive(Debug)]
pub struct Inherited {
    link: &'static Link,
    name: String,
    payload: Vec<u8>,
    fds: Fds,
}

impl Inherited {
    pub(crate) fn receive(link: &'static Link, hello: &Hello, fds: Fds) -> Result<Self, ProtocolError> {
        // A parent that closes the socket before all is said is dying, or has given this child up and kills it. Where it has
        // not read that this one has entered, that is ECONNRESET.
        let payload = link.read_payload().map_err(|error| match error {
            ProtocolError::Ended { .. } => ProtocolError::Orphan { pid: hello.parent_pid },
            ProtocolError::Os(error) if error.is_closed() => ProtocolError::Orphan { pid: hello.parent_pid },
            other => other,
        })?;
        let rank = hello.rank.and_then(|rank| usize::try_from(rank).ok());
        if hello.may_fork {
            fork::inherit_allowance();
        }
        current::become_child(Origin::new(hello.name.clone(), rank, hello.is_daemon, fds.parent.clone()));
        Ok(Self { link, name: hello.name.clone(), payload, fds })
    }

    /// What ends this process with its parent, to be started by an entry [without](crate::Entry::without_guard) it. With the
    /// payload this process has been told when and where to run, so that its threads inherit that.
    #[must_use]
    pub fn guard(&self) -> Guard {
        Guard::new(self.fds.parent.clone(), self.fds.kernels_parent)
    }

    /// Runs an entry with another payload.
    pub(crate) fn with_payload(&mut self, payload: Vec<u8>, run: Run) -> Result<(), Failure> {
        let own = std::mem::replace(&mut self.payload, payload);
        let outcome = run(self);
        self.payload = own;
        outcome
    }

    pub(crate) fn link(&self) -> &Link {
        self.link
    }

    /// What the parent calls this child.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The bytes that the parent sent along.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The descriptors that the parent handed over, in its order. The second call gives none.
    #[must_use]
    pub fn take_fds(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.fds.passed)
    }

    /// The parent. It is alive, or this process is about to be killed.
    #[must_use]
    pub fn parent(&self) -> &PidFd {
        self.fds.parent.pidfd()
    }

    /// Tells the parent that what the payload refers to has been adopted, so that it may let go of it.
    pub fn taken(&self) {
        self.link.send(&Frame::Taken);
    }
}
