//! What a newcomer needs to become a member: plain numbers that travel on any channel.

use crate::Member;

/// The right of one particular process to join one particular domain.
///
/// Made by [`crate::Domain::admit`] for a process whose pidfd the admitting member holds, and used up by
/// [`crate::Domain::join`] in that process, together with the domain's descriptor.
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
