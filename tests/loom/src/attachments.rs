//! A stand-in for the attachment to a ring: the roles are in the ring from the beginning.

use crate::block::Block;
use crate::reference::Role;

/// One process's hold on the ring.
#[derive(Clone, Debug)]
pub(crate) struct Attachment {
    block: Block,
}

impl Attachment {
    pub(crate) fn new(block: Block, _role: Role) -> Self {
        Self { block }
    }

    pub(crate) fn with_role(&self, _role: Role) -> Self {
        self.clone()
    }

    pub(crate) fn block(&self) -> &Block {
        &self.block
    }

    pub(crate) fn role_in_transit(&self) -> Role {
        Role::default()
    }
}
