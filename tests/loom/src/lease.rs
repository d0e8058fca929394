//! A stand-in for leases: no ring of a model has any.

use crate::block::Block;
use crate::message::IncomingMessage;
use crate::ring::{Ring, TakeFailure};
use crate::ring_layout::{RingWords, Slot, SlotState};

#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) spilled: Option<Block>,
}

impl Kept {
    pub(crate) fn claim_record(&mut self, _ring: &RingWords<'_>, _me: u8) -> bool {
        false
    }

    pub(crate) fn keep(
        &mut self,
        _ring: &RingWords<'_>,
        _position: u64,
        _slot: &Slot<'_>,
        _claimed: SlotState,
        _freed: SlotState,
    ) -> bool {
        false
    }

    pub(crate) fn let_go(&mut self, _ring: &RingWords<'_>) {}
}

impl Ring {
    pub(crate) fn take_returned(
        &self,
        _ring: &RingWords<'_>,
        _message: &mut IncomingMessage,
    ) -> Option<Result<(), TakeFailure>> {
        None
    }
}
