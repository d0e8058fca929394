//! The owner-stamped slot ring of `tensorferry-storage/src/ring.rs` with its recovery in `sweep.rs`: every shared
//! access is a step, any process may be killed before any step, a sweep may be broken off and started over, and a
//! living process may wrongly be declared dead (which proof by pidfd rules out; what the fences are for).
//!
//! What must hold: a message whose put has committed is taken once or lies ready; none is taken twice or taken without
//! having been committed; when all is done no slot is stuck; without a death each sender's order is kept.

use crate::explore::{Model, explore};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Tag {
    Free,
    Writing,
    Ready,
    Claimed,
}

/// A slot: its state word, and which message its data holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Slot {
    lap: u8,
    tag: Tag,
    owner: u8,
    message: u8,
}

/// Where a process is, with the private variables that it still needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    // Put.
    ReadTail,
    ReadSlot { position: u8 },
    Claim { position: u8 },
    HelpTail { position: u8 },
    MoveTail { position: u8 },
    Write { position: u8 },
    Commit { position: u8 },
    // Take.
    ReadHead { nothing_comes: bool },
    Scan { head: u8, position: u8, holes: u8, nothing_comes: bool },
    HelpHead { head: u8 },
    LookBack { head: u8, position: u8, holes: u8, next: u8 },
    Take { position: u8 },
    Read { position: u8 },
    Free { position: u8, message: u8 },
    // Either.
    Done,
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sweep {
    victim: u8,
    slot: u8,
    /// What the sweeper saw in the slot that it is about to change.
    seen: Option<Slot>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    slots: Vec<Slot>,
    head: u8,
    tail: u8,
    at: Vec<At>,
    /// How many messages each sender has committed.
    sent: Vec<u8>,
    /// Bits of messages.
    committed: u16,
    taken: u16,
    wrong: Option<&'static str>,
    any_death: bool,
    /// Declared dead, truly or not, and not swept yet.
    to_sweep: u8,
    sweep: Option<Sweep>,
    kills_left: u8,
    restarts_left: u8,
    false_deaths_left: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// A receiver does not look back at holes before it takes.
    NoLookBack,
    /// The commit is a plain store instead of a compare-and-swap.
    CommitStores,
    /// The free is a plain store instead of a compare-and-swap.
    FreeStores,
    /// A claimed slot of the dead is freed instead of made ready again.
    ClaimedIsFreed,
    /// A sender that finds its position taken does not move the tail for whoever died.
    NobodyHelps,
}

struct Ring {
    n_slots: u8,
    /// How many messages each sender puts.
    messages: Vec<u8>,
    n_receivers: u8,
    kills: u8,
    restarts: u8,
    false_deaths: u8,
    broken: Broken,
}

impl Ring {
    fn n_senders(&self) -> usize {
        self.messages.len()
    }

    /// The bit of a sender's message.
    fn message(&self, sender: usize, index: u8) -> u8 {
        self.messages[..sender].iter().sum::<u8>() + index
    }

    fn slot(&self, position: u8) -> (usize, u8) {
        (usize::from(position % self.n_slots), position / self.n_slots)
    }

    /// Whether no message can come any more: every sender is done or swept.
    fn nothing_comes(&self, state: &State) -> bool {
        state.to_sweep == 0 && state.at[..self.n_senders()].iter().all(|at| matches!(at, At::Done | At::Dead))
    }

    fn put(&self, next: &mut State, process: usize, at: At) -> At {
        let me = u8::try_from(process).expect("few processes");
        let writing = |lap| (lap, Tag::Writing, me);
        let is = |slot: &Slot, what: (u8, Tag, u8)| (slot.lap, slot.tag, slot.owner) == what;
        match at {
            At::ReadTail if next.sent[process] == self.messages[process] => At::Done,
            At::ReadTail => At::ReadSlot { position: next.tail },
            At::ReadSlot { position } => {
                let (index, lap) = self.slot(position);
                let slot = next.slots[index];
                match slot.lap.cmp(&lap) {
                    std::cmp::Ordering::Equal if slot.tag == Tag::Free => At::Claim { position },
                    std::cmp::Ordering::Less => At::ReadTail,
                    _ if self.broken == Broken::NobodyHelps => At::ReadTail,
                    _ => At::HelpTail { position },
                }
            }
            At::Claim { position } => {
                let (index, lap) = self.slot(position);
                if next.slots[index].lap == lap && next.slots[index].tag == Tag::Free {
                    next.slots[index] = Slot { lap, tag: Tag::Writing, owner: me, message: u8::MAX };
                    At::MoveTail { position }
                } else {
                    At::ReadTail
                }
            }
            At::HelpTail { position } | At::MoveTail { position } => {
                if next.tail == position {
                    next.tail += 1;
                }
                if matches!(at, At::HelpTail { .. }) { At::ReadTail } else { At::Write { position } }
            }
            At::Write { position } => {
                let (index, lap) = self.slot(position);
                // Data words are plain stores: a sender that was fenced scribbles over whoever has the slot now, if
                // it is still in the middle of writing. Only its own claim is looked at here, because that is
                // what the fence has to guarantee: nobody reads data of a slot before its commit.
                if is(&next.slots[index], writing(lap)) {
                    next.slots[index].message = self.message(process, next.sent[process]);
                }
                At::Commit { position }
            }
            At::Commit { position } => {
                let (index, lap) = self.slot(position);
                let mine = is(&next.slots[index], writing(lap));
                if mine || self.broken == Broken::CommitStores {
                    let message = self.message(process, next.sent[process]);
                    next.slots[index] = Slot { lap, tag: Tag::Ready, owner: 0, message };
                    next.committed |= 1 << message;
                    next.sent[process] += 1;
                    At::ReadTail
                } else {
                    // Fenced: it was declared dead. The put fails, and the process has left the domain.
                    At::Dead
                }
            }
            other => other,
        }
    }

    fn take(&self, next: &mut State, process: usize, at: At) -> At {
        let me = u8::try_from(process).expect("few processes");
        let again = At::ReadHead { nothing_comes: false };
        match at {
            At::ReadHead { .. } => {
                let nothing_comes = self.nothing_comes(next);
                At::Scan { head: next.head, position: next.head, holes: 0, nothing_comes }
            }
            At::Scan { head, position, holes, nothing_comes } => {
                let end = if nothing_comes { At::Done } else { again };
                if position - head >= self.n_slots {
                    return if holes == 0 { end } else { again };
                }
                let (index, lap) = self.slot(position);
                let slot = next.slots[index];
                if slot.lap > lap {
                    if position == head {
                        return At::HelpHead { head };
                    }
                    return At::Scan { head, position: position + 1, holes, nothing_comes };
                }
                if slot.lap < lap || slot.tag == Tag::Free {
                    return if holes == 0 { end } else { again };
                }
                match slot.tag {
                    Tag::Ready if holes == 0 || self.broken == Broken::NoLookBack => At::Take { position },
                    Tag::Ready => At::LookBack { head, position, holes, next: 0 },
                    _ => {
                        let holes = holes | 1 << (position - head);
                        At::Scan { head, position: position + 1, holes, nothing_comes }
                    }
                }
            }
            At::HelpHead { head } => {
                if next.head == head {
                    next.head += 1;
                }
                again
            }
            At::LookBack { head, position, holes, next: from } => {
                match (from..8).find(|bit| holes >> bit & 1 != 0) {
                    None => At::Take { position },
                    Some(bit) => {
                        let (index, lap) = self.slot(head + bit);
                        let slot = next.slots[index];
                        if slot.lap == lap && slot.tag == Tag::Ready {
                            again
                        } else {
                            At::LookBack { head, position, holes, next: bit + 1 }
                        }
                    }
                }
            }
            At::Take { position } => {
                let (index, lap) = self.slot(position);
                let slot = &mut next.slots[index];
                if slot.lap != lap || slot.tag != Tag::Ready {
                    return again;
                }
                (slot.tag, slot.owner) = (Tag::Claimed, me);
                At::Read { position }
            }
            At::Read { position } => {
                let (index, _) = self.slot(position);
                At::Free { position, message: next.slots[index].message }
            }
            At::Free { position, message } => {
                let (index, lap) = self.slot(position);
                let slot = &mut next.slots[index];
                let mine = (slot.lap, slot.tag, slot.owner) == (lap, Tag::Claimed, me);
                if !mine && self.broken != Broken::FreeStores {
                    // Fenced: whatever was read is dropped.
                    return At::Dead;
                }
                *slot = Slot { lap: lap + 1, tag: Tag::Free, owner: 0, message: u8::MAX };
                self.deliver(next, message);
                again
            }
            other => other,
        }
    }

    fn deliver(&self, next: &mut State, message: u8) {
        if message == u8::MAX || next.committed >> message & 1 == 0 {
            next.wrong = Some("a message was taken that was never committed");
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

    /// One step of whoever sweeps.
    fn sweep(&self, next: &mut State) {
        let Some(sweep) = next.sweep.clone() else {
            let victim = u8::try_from(next.to_sweep.trailing_zeros()).unwrap_or(0);
            next.sweep = Some(Sweep { victim, slot: 0, seen: None });
            return;
        };
        if sweep.slot == self.n_slots {
            next.to_sweep &= !(1 << sweep.victim);
            next.sweep = None;
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
                let same = (slot.lap, slot.tag, slot.owner) == (seen.lap, seen.tag, seen.owner);
                let skip = seen.tag == Tag::Writing || self.broken == Broken::ClaimedIsFreed;
                if same && skip {
                    *slot = Slot { lap: seen.lap + 1, tag: Tag::Free, owner: 0, message: u8::MAX };
                } else if same {
                    (slot.tag, slot.owner) = (Tag::Ready, 0);
                }
                moved_on
            }
        });
    }
}

impl Model for Ring {
    type State = State;

    fn start(&self) -> State {
        let slot = Slot { lap: 0, tag: Tag::Free, owner: 0, message: u8::MAX };
        let senders = self.messages.iter().map(|_| At::ReadTail);
        let receivers = (0..self.n_receivers).map(|_| At::ReadHead { nothing_comes: false });
        State {
            slots: vec![slot; usize::from(self.n_slots)],
            head: 0,
            tail: 0,
            at: senders.chain(receivers).collect(),
            sent: vec![0; self.n_senders()],
            committed: 0,
            taken: 0,
            wrong: None,
            any_death: false,
            to_sweep: 0,
            sweep: None,
            kills_left: self.kills,
            restarts_left: self.restarts,
            false_deaths_left: self.false_deaths,
        }
    }

    fn steps(&self, state: &State) -> Vec<State> {
        let mut steps = Vec::new();
        for process in 0..state.at.len() {
            let at = state.at[process];
            if matches!(at, At::Done | At::Dead) {
                continue;
            }
            if state.kills_left > 0 {
                let mut next = state.clone();
                next.kills_left -= 1;
                next.any_death = true;
                next.at[process] = At::Dead;
                next.to_sweep |= 1 << process;
                steps.push(next);
            }
            if state.false_deaths_left > 0 {
                let mut next = state.clone();
                next.false_deaths_left -= 1;
                next.any_death = true;
                next.to_sweep |= 1 << process;
                steps.push(next);
            }
            let mut next = state.clone();
            next.at[process] = if process < self.n_senders() {
                self.put(&mut next, process, at)
            } else {
                self.take(&mut next, process, at)
            };
            steps.push(next);
        }
        if state.to_sweep != 0 {
            let mut next = state.clone();
            self.sweep(&mut next);
            steps.push(next);
            if state.restarts_left > 0 && state.sweep.is_some() {
                let mut next = state.clone();
                next.restarts_left -= 1;
                next.sweep = None;
                steps.push(next);
            }
        }
        steps
    }

    fn fault(&self, state: &State) -> Option<String> {
        if let Some(wrong) = state.wrong {
            return Some(wrong.to_owned());
        }
        let all_over = state.to_sweep == 0 && state.at.iter().all(|at| matches!(at, At::Done | At::Dead));
        if !all_over {
            return None;
        }
        let ready = state.slots.iter().filter(|s| s.tag == Tag::Ready);
        let waiting = ready.fold(0_u16, |bits, slot| bits | 1 << slot.message);
        if state.committed != state.taken | waiting {
            return Some("a committed message is lost".to_owned());
        }
        if state.taken & waiting != 0 {
            return Some("a message was taken and is still there".to_owned());
        }
        let stuck = state.slots.iter().any(|s| matches!(s.tag, Tag::Writing | Tag::Claimed));
        stuck.then(|| "a slot is stuck".to_owned())
    }

    fn is_settled(&self, state: &State) -> bool {
        let receivers = &state.at[self.n_senders()..];
        let senders = &state.at[..self.n_senders()];
        let over = |at: &At| matches!(at, At::Done | At::Dead);
        // Without receivers senders may wait for ever; with one, everything comes to an end.
        state.to_sweep == 0
            && receivers.iter().all(over)
            && (senders.iter().all(over) || receivers.iter().all(|at| *at == At::Dead))
    }
}

fn ring(n_slots: u8, messages: &[u8], n_receivers: u8) -> Ring {
    Ring {
        n_slots,
        messages: messages.to_vec(),
        n_receivers,
        kills: 0,
        restarts: 0,
        false_deaths: 0,
        broken: Broken::Nothing,
    }
}

#[test]
fn nothing_is_lost_doubled_or_stuck() {
    let cases = [
        ("no death", ring(2, &[2, 1], 2)),
        ("no death, one slot", ring(1, &[2, 1], 2)),
        ("one kill", Ring { kills: 1, restarts: 1, ..ring(2, &[1, 1], 2) }),
        ("one kill, three messages", Ring { kills: 1, ..ring(2, &[2, 1], 1) }),
        ("two kills", Ring { kills: 2, restarts: 1, ..ring(2, &[1, 1], 1) }),
        ("a false death", Ring { false_deaths: 1, ..ring(2, &[1, 1], 2) }),
        ("a false death, one slot", Ring { false_deaths: 1, ..ring(1, &[2, 1], 1) }),
    ];
    for (name, model) in cases {
        println!("{name}: {} states", explore(&model).expect_holds());
    }
}

#[test]
fn each_rule_is_needed() {
    let killed = || Ring { kills: 1, ..ring(2, &[1, 1], 2) };
    let fenced = || Ring { false_deaths: 1, ..ring(1, &[2, 1], 2) };
    for model in [
        Ring { broken: Broken::NoLookBack, ..ring(4, &[2, 1], 1) },
        Ring { broken: Broken::CommitStores, ..fenced() },
        Ring { broken: Broken::FreeStores, ..fenced() },
        Ring { broken: Broken::ClaimedIsFreed, ..killed() },
        Ring { broken: Broken::NobodyHelps, ..killed() },
    ] {
        assert!(explore(&model).is_broken(), "{:?} was not noticed", model.broken);
    }
}
