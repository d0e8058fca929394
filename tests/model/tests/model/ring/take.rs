//! Taking, step by step, and sleeping when there is nothing.

use super::{At, Broken, Ring, Slot, State, Tag};

impl Ring {
    pub(super) fn take(&self, next: &mut State, process: usize, at: At) -> At {
        let me = u8::try_from(process).expect("few processes");
        match at {
            At::Prepare => {
                next.woken &= !(1 << process);
                At::ReadHead
            }
            At::ReadHead => At::Scan { head: next.head, position: next.head, holes: 0 },
            At::Scan { head, position, holes } => self.scan(next, head, position, holes),
            At::HelpHead { head } => {
                if next.head == head {
                    next.head += 1;
                }
                At::ReadHead
            }
            At::LookBack { head, position, holes, next: from } => {
                match (from..8).find(|bit| holes >> bit & 1 != 0) {
                    None => At::Take { position },
                    Some(bit) => {
                        let (index, lap) = self.slot(head + bit);
                        if next.slots[index].is(lap, Tag::Ready, 0) {
                            At::ReadHead
                        } else {
                            At::LookBack { head, position, holes, next: bit + 1 }
                        }
                    }
                }
            }
            At::Take { position } => {
                let (index, lap) = self.slot(position);
                let slot = &mut next.slots[index];
                if !slot.is(lap, Tag::Ready, 0) {
                    return At::ReadHead;
                }
                (slot.tag, slot.owner) = (Tag::Claimed, me);
                At::Free { position, message: slot.message }
            }
            At::Free { position, message } => {
                let (index, lap) = self.slot(position);
                if !next.slots[index].is(lap, Tag::Claimed, me) && self.broken != Broken::FreeStores {
                    // Fenced: whatever was read is dropped.
                    return At::Dead;
                }
                next.slots[index] = Slot::free(lap + 1);
                self.deliver(next, message);
                At::WakeTheLast
            }
            At::WakeTheLast => {
                if next.closed || next.senders == 0 {
                    self.wake(next, Broken::SilentLast);
                }
                At::Prepare
            }
            At::AskWhetherMoreCanCome if !next.closed && next.senders != 0 => At::Sleep,
            At::AskWhetherMoreCanCome if self.broken == Broken::NoSearch => At::Done,
            At::AskWhetherMoreCanCome => At::SearchForMore { slot: 0 },
            At::SearchForMore { slot } if slot == self.n_slots => At::Done,
            At::SearchForMore { slot } => match next.slots[usize::from(slot)].tag {
                Tag::Ready => At::Sleep,
                Tag::Claimed if self.broken != Broken::ClaimedIsNothing => At::Sleep,
                _ => At::SearchForMore { slot: slot + 1 },
            },
            At::Sleep if next.woken >> process & 1 != 0 => At::Prepare,
            other => other,
        }
    }

    fn scan(&self, next: &State, head: u8, position: u8, holes: u8) -> At {
        if position - head >= self.n_slots {
            return At::AskWhetherMoreCanCome;
        }
        let (index, lap) = self.slot(position);
        let slot = next.slots[index];
        if slot.lap > lap {
            if position == head {
                return At::HelpHead { head };
            }
            return At::Scan { head, position: position + 1, holes };
        }
        if slot.lap < lap {
            return At::AskWhetherMoreCanCome;
        }
        match slot.tag {
            Tag::Free => At::AskWhetherMoreCanCome,
            Tag::Ready if holes == 0 || self.broken == Broken::NoLookBack => At::Take { position },
            Tag::Ready => At::LookBack { head, position, holes, next: 0 },
            Tag::Writing | Tag::Claimed => {
                At::Scan { head, position: position + 1, holes: holes | 1 << (position - head) }
            }
        }
    }

    fn deliver(&self, next: &mut State, message: u8) {
        if message == u8::MAX || next.committed >> message & 1 == 0 {
            next.wrong = Some("a message was taken that was never committed, or taken back");
            return;
        }
        if next.taken >> message & 1 != 0 {
            next.wrong = Some("a message was taken twice");
        }
        let sender = (0..self.n_senders()).rev().find(|&s| message >= self.message(s, 0)).unwrap_or(0);
        let earlier = (self.message(sender, 0)..message).all(|m| next.taken >> m & 1 != 0);
        // Takers of one sender's messages may finish in any order; a single receiver may not.
        if !earlier && !next.any_death && self.n_receivers == 1 {
            next.wrong = Some("a sender's order was not kept");
        }
        next.taken |= 1 << message;
    }
}
