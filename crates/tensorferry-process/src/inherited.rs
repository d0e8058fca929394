//! What a child received from its parent.

use std::os::fd::OwnedFd;

use tensorferry_os::pidfd::PidFd;

use crate::current::{self, Origin};
use crate::entry::{Failure, Run};
use crate::error::ProtocolError;
use crate::fork;
use crate::link::{Fds, Link};
use crate::protocol::{Frame, Hello};

/// The argument of an entry: the child's name, the payload, the descriptors, and the connection to the
/// parent.
#[derive(Debug)]
pub struct Inherited {
    link: &'static Link,
    name: String,
    payload: Vec<u8>,
    fds: Fds,
}

impl Inherited {
    pub(crate) fn receive(link: &'static Link, hello: &Hello, fds: Fds) -> Result<Self, ProtocolError> {
        // A parent that closes the socket early is dying, or has given this child up and kills it. The error
        // is ECONNRESET if the parent has not read this child's `Entered`.
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

    /// The name that the parent gave this child.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The payload.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The descriptors that the parent passed, in its order. A second call returns none.
    #[must_use]
    pub fn take_fds(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.fds.passed)
    }

    /// The parent's pidfd. The parent is alive, or this process is about to be killed.
    #[must_use]
    pub fn parent(&self) -> &PidFd {
        self.fds.parent.pidfd()
    }

    /// Tells the parent that this process has adopted everything the payload refers to, so the parent may
    /// release it.
    pub fn taken(&self) {
        self.link.send(&Frame::Taken);
    }
}
