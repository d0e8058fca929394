//! Holder bits, pins and SUSPECT: one block on its way from its owner through a forwarder to a last receiver.
//! After `tensorferry-storage/src/{heap,pins,ring,sweep}.rs`.
//!
//! Process 0 owns the block and puts it into ring 0; process 1 takes it there and puts it into ring 1;
//! process 2 takes it there. Each sender keeps its bit until it sees that its slot has moved on; each
//! receiver sets its bit before it frees the slot. Any process may be killed before any step; a sweep looks
//! at one word at a time and may be started over.
//!
//! What must hold: whenever the holder word is empty (the owner may then reuse the block) no living process
//! believes that it holds the block and no message names it. And when everything is over, the word is empty
//! unless a message still names the block.

use crate::explore::{Model, explore};

const SUSPECT: u8 = 1 << 7;

/// A ring of one slot, which is used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Slot {
    Free,
    Ready,
    ClaimedBy(u8),
    MovedOn,
}

/// What a process does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Claim,
    Hold,
    FreeSlot,
    Put,
    DropOrPin,
    ClearBit,
    Over,
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sweep {
    /// Which slot is looked at.
    Slots(u8),
    Bit,
    /// Which slot is scanned, and whether one that was scanned names the block.
    Scan(u8, bool),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    holders: u8,
    slots: [Slot; 2],
    at: [At; 3],
    to_sweep: u8,
    /// Which victim, and how far. A sweeper finishes its victim before it turns to the next.
    sweep: Option<(u8, Sweep)>,
    kills_left: u8,
    restarts_left: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// A receiver frees the slot before it sets its bit.
    FreesBeforeHolding,
    /// A sender lets go at once instead of pinning.
    NoPin,
    /// A sweep clears the dead one's bit without leaving SUSPECT.
    NoSuspect,
    /// A sweep leaves SUSPECT and never scans.
    NoScan,
}

struct Holding {
    kills: u8,
    restarts: u8,
    broken: Broken,
}

/// The ring that a process takes from, and the one that it puts into.
fn rings(process: usize) -> (Option<usize>, Option<usize>) {
    (process.checked_sub(1), (process < 2).then_some(process))
}

impl Holding {
    fn step(&self, next: &mut State, process: usize) {
        let bit = 1 << process;
        let (from, to) = rings(process);
        let me = u8::try_from(process).expect("few processes");
        let early = self.broken == Broken::FreesBeforeHolding;
        next.at[process] = match next.at[process] {
            At::Claim => match from.map(|ring| next.slots[ring]) {
                Some(Slot::Ready) => {
                    next.slots[process - 1] = Slot::ClaimedBy(me);
                    if early { At::FreeSlot } else { At::Hold }
                }
                // Nothing comes any more once everybody before is over and swept.
                _ if next.to_sweep == 0
                    && next.at[..process].iter().all(|at| matches!(at, At::Over | At::Dead)) =>
                {
                    At::Over
                }
                _ => At::Claim,
            },
            At::Hold => {
                next.holders |= bit;
                if early { At::Put } else { At::FreeSlot }
            }
            At::FreeSlot => {
                if next.slots[process - 1] == Slot::ClaimedBy(me) {
                    next.slots[process - 1] = Slot::MovedOn;
                    if early { At::Hold } else { At::Put }
                } else {
                    At::ClearBit
                }
            }
            At::Put => match to {
                Some(ring) => {
                    next.slots[ring] = Slot::Ready;
                    At::DropOrPin
                }
                None => At::ClearBit,
            },
            // The handle is dropped; the pin holds until the slot has moved on.
            At::DropOrPin => match to.map(|ring| next.slots[ring]) {
                Some(Slot::MovedOn) => At::ClearBit,
                // Nobody is left who could take it: its sender throws it away.
                Some(Slot::Ready) if next.at[process + 1] == At::Dead && next.to_sweep == 0 => {
                    next.slots[process] = Slot::MovedOn;
                    At::ClearBit
                }
                _ if self.broken == Broken::NoPin => At::ClearBit,
                _ => At::DropOrPin,
            },
            At::ClearBit => {
                next.holders &= !bit;
                At::Over
            }
            at => at,
        };
    }

    fn sweep(&self, next: &mut State) {
        let first = u8::try_from(next.to_sweep.trailing_zeros()).unwrap_or(0);
        let Some((victim, stage)) = next.sweep else {
            next.sweep = Some((first, Sweep::Slots(0)));
            return;
        };
        let following = match stage {
            Sweep::Slots(index) => {
                let slot = &mut next.slots[usize::from(index)];
                if *slot == Slot::ClaimedBy(victim) {
                    *slot = Slot::Ready;
                }
                Some(if index == 0 { Sweep::Slots(1) } else { Sweep::Bit })
            }
            Sweep::Bit => {
                if next.holders & 1 << victim != 0 {
                    next.holders &= !(1 << victim);
                    if self.broken != Broken::NoSuspect {
                        next.holders |= SUSPECT;
                    }
                }
                (self.broken != Broken::NoScan).then_some(Sweep::Scan(0, false))
            }
            Sweep::Scan(index @ 0..2, named) => {
                let names = matches!(next.slots[usize::from(index)], Slot::Ready | Slot::ClaimedBy(_));
                Some(Sweep::Scan(index + 1, named || names))
            }
            Sweep::Scan(_, named) => {
                if !named {
                    next.holders &= !SUSPECT;
                }
                None
            }
        };
        next.sweep = following.map(|stage| (victim, stage));
        if following.is_none() {
            next.to_sweep &= !(1 << victim);
        }
    }

    fn is_named(state: &State) -> bool {
        state.slots.iter().any(|slot| matches!(slot, Slot::Ready | Slot::ClaimedBy(_)))
    }

    fn is_over(state: &State) -> bool {
        state.to_sweep == 0 && state.at.iter().all(|at| matches!(at, At::Over | At::Dead))
    }
}

impl Model for Holding {
    type State = State;

    fn start(&self) -> State {
        State {
            holders: 1,
            slots: [Slot::Free; 2],
            at: [At::Put, At::Claim, At::Claim],
            to_sweep: 0,
            sweep: None,
            kills_left: self.kills,
            restarts_left: self.restarts,
        }
    }

    fn steps(&self, state: &State) -> Vec<State> {
        let mut steps = Vec::new();
        for process in 0..3 {
            if matches!(state.at[process], At::Over | At::Dead) {
                continue;
            }
            let mut next = state.clone();
            self.step(&mut next, process);
            steps.push(next);
            if state.kills_left > 0 {
                let mut next = state.clone();
                next.kills_left -= 1;
                next.at[process] = At::Dead;
                next.to_sweep |= 1 << process;
                steps.push(next);
            }
        }
        if state.to_sweep != 0 {
            let mut next = state.clone();
            self.sweep(&mut next);
            steps.push(next);
            if state.restarts_left > 0 && state.sweep.is_some() {
                let mut next = state.clone();
                (next.restarts_left, next.sweep) = (state.restarts_left - 1, None);
                steps.push(next);
            }
        } else if state.holders & SUSPECT != 0 && Self::is_over(state) && !Self::is_named(state) {
            // Whoever drops the last reference of a suspect block scans once more.
            let mut next = state.clone();
            if self.broken != Broken::NoScan {
                next.holders &= !SUSPECT;
            }
            steps.push(next);
        }
        steps
    }

    fn fault(&self, state: &State) -> Option<String> {
        if state.holders != 0 {
            return None;
        }
        // Between holding and clearing the bit a process uses the block.
        let uses = |process: usize| match state.at[process] {
            At::Put => process > 0 || state.slots[0] == Slot::Free,
            At::FreeSlot => self.broken != Broken::FreesBeforeHolding,
            At::Hold => self.broken == Broken::FreesBeforeHolding,
            At::ClearBit => true,
            _ => false,
        };
        if (0..3).any(uses) {
            return Some("the block can be reused while a living process uses it".to_owned());
        }
        Self::is_named(state).then(|| "the block can be reused while a message names it".to_owned())
    }

    fn is_settled(&self, state: &State) -> bool {
        Self::is_over(state) && (state.holders == 0 || Self::is_named(state))
    }
}

fn holding(kills: u8, restarts: u8, broken: Broken) -> Holding {
    Holding { kills, restarts, broken }
}

#[test]
fn a_block_is_reused_only_when_nobody_needs_it_and_then_surely() {
    for (kills, restarts) in [(0, 0), (1, 1), (2, 2), (3, 2)] {
        let n_states = explore(&holding(kills, restarts, Broken::Nothing)).expect_holds();
        println!("{kills} kills, {restarts} broken sweeps: {n_states} states");
    }
}

#[test]
fn each_rule_is_needed() {
    for broken in [Broken::FreesBeforeHolding, Broken::NoPin, Broken::NoSuspect, Broken::NoScan] {
        assert!(explore(&holding(2, 0, broken)).is_broken(), "{broken:?} was not noticed");
    }
}
