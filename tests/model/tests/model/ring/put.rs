//! Putting, step by step.

use std::cmp::Ordering;

use super::{At, Broken, Ring, Slot, State, Tag};

impl Ring {
    pub(super) fn put(&self, next: &mut State, process: usize, at: At) -> At {
        let me = u8::try_from(process).expect("few processes");
        match at {
            At::LookWhetherOver if next.sent[process] == self.messages[process] => At::Leave,
            // Refused, it keeps its end of the ring for ever.
            At::LookWhetherOver if next.closed || self.nobody_receives(next) => At::Done,
            At::LookWhetherOver => At::ReadTail,
            At::ReadTail => At::Claim { position: next.tail },
            // A compare-and-swap, which says what is there where it fails.
            At::Claim { position } => {
                let (index, lap) = self.slot(position);
                let slot = next.slots[index];
                match slot.lap.cmp(&lap) {
                    Ordering::Equal if slot.tag == Tag::Free => {
                        next.slots[index] = Slot { lap, tag: Tag::Writing, owner: me, message: u8::MAX };
                        At::Commit { position }
                    }
                    // Full: the call looks again from its beginning.
                    Ordering::Less => At::LookWhetherOver,
                    _ if self.broken == Broken::NobodyHelps => At::ReadTail,
                    _ => At::HelpTail { position },
                }
            }
            At::HelpTail { position } | At::MoveTail { position } => {
                if next.tail == position {
                    next.tail += 1;
                }
                if matches!(at, At::HelpTail { .. }) {
                    At::ReadTail
                } else {
                    At::LookAgainWhetherClosed { position }
                }
            }
            // With the data, which nobody reads before.
            At::Commit { position } => {
                let (index, lap) = self.slot(position);
                if !next.slots[index].is(lap, Tag::Writing, me) && self.broken != Broken::CommitStores {
                    // Fenced: it was declared dead. The put fails, and the process has left the domain.
                    return At::Dead;
                }
                let message = self.message(process, next.sent[process]);
                next.slots[index] = Slot { lap, tag: Tag::Ready, owner: 0, message };
                next.committed |= 1 << message;
                next.sent[process] += 1;
                At::MoveTail { position }
            }
            At::LookAgainWhetherClosed { position } if next.closed && self.broken != Broken::NoTakeBack => {
                At::TakeBack { position }
            }
            At::TakeBack { position } => {
                let (index, lap) = self.slot(position);
                if next.slots[index].is(lap, Tag::Ready, 0) {
                    next.slots[index] = Slot::free(lap + 1);
                    // Nobody may take it from here on.
                    next.committed &= !(1 << self.message(process, next.sent[process] - 1));
                    return At::WakeForRefusal;
                }
                self.promise(next, process)
            }
            At::LookAgainWhetherClosed { .. } => self.promise(next, process),
            At::WakeForMessage => {
                self.wake(next, Broken::SilentPut);
                At::LookWhetherOver
            }
            At::WakeForRefusal => {
                self.wake(next, Broken::SilentTakeBack);
                At::Done
            }
            At::Leave => {
                next.senders &= !(1 << process);
                At::WakeForLeaving
            }
            At::WakeForLeaving => {
                self.wake(next, Broken::SilentLeaving);
                At::Done
            }
            other => other,
        }
    }

    /// Nothing can make the put fail any more.
    fn promise(&self, next: &mut State, process: usize) -> At {
        next.promised |= 1 << self.message(process, next.sent[process] - 1);
        At::WakeForMessage
    }
}
