//! The data that a process needs to become a member: plain numbers that travel on any channel.

use crate::Member;

/// The right of one particular process to join one particular domain.
///
/// A member makes it with [`crate::Domain::admit`], for a process whose pidfd it holds. That process uses it
/// up with [`crate::Domain::join`], together with the domain's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Admission {
    pub(crate) domain_id: u64,
    pub(crate) member: Member,
}

impl Admission {
    /// The slot and epoch that the newcomer will have.
    #[must_use]
    pub fn member(&self) -> Member {
        self.member
    }
}
