//! Sweeping the slots of a dead process, step by step.

use super::{Broken, Ring, Slot, State, Tag};

/// How far a sweep has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sweep {
    victim: u8,
    slot: u8,
    /// What the sweeper saw in the slot that it is about to change.
    seen: Option<Slot>,
    role_ended: bool,
}

impl Ring {
    /// One step of whoever sweeps.
    pub(super) fn sweep(&self, next: &mut State) {
        let Some(sweep) = next.sweep else {
            let victim = u8::try_from(next.to_sweep.trailing_zeros()).unwrap_or(0);
            next.sweep = Some(Sweep { victim, slot: 0, seen: None, role_ended: false });
            return;
        };
        if sweep.role_ended {
            self.wake(next, Broken::SilentSweep);
            next.to_sweep &= !(1 << sweep.victim);
            next.sweep = None;
            return;
        }
        if sweep.slot == self.n_slots {
            next.senders &= !(1 << sweep.victim);
            next.sweep = Some(Sweep { role_ended: true, ..sweep });
            return;
        }
        let slot = &mut next.slots[usize::from(sweep.slot)];
        let moved_on = Sweep { slot: sweep.slot + 1, seen: None, ..sweep };
        next.sweep = Some(match sweep.seen {
            None if matches!(slot.tag, Tag::Writing | Tag::Claimed) && slot.owner == sweep.victim => {
                Sweep { seen: Some(*slot), ..sweep }
            }
            None => moved_on,
            Some(seen) => {
                let same = slot.is(seen.lap, seen.tag, seen.owner);
                let skip = seen.tag == Tag::Writing || self.broken == Broken::ClaimedIsFreed;
                if same && skip {
                    *slot = Slot::free(seen.lap + 1);
                } else if same {
                    (slot.tag, slot.owner) = (Tag::Ready, 0);
                }
                moved_on
            }
        });
    }
}
