//! Handing over a block that is one process's alone. After `Claim` in `tensorferry-storage/src/access.rs`,
//! `ring/put.rs`, `ring/take.rs` and `sweep_ring.rs`.
//!
//! Process 0 has the exclusive right to a block and puts it into a ring of one slot; from then on its holder
//! bit is only a pin. Processes 1 and 2 receive from the ring. The ring may be closed meanwhile, and then the
//! sender takes the message back and has the right again, unless somebody was faster. Any process may be
//! killed before any step, a sweep may be started over, and a receiver may wrongly be declared dead while it
//! takes.
//!
//! What must hold: the right is in one hand at most, in a living process or in the message; and, as long as
//! who is declared dead is dead, the block is not reused while it is in any.

use crate::explore::{Model, explore};

const SUSPECT: u8 = 1 << 7;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Slot {
    Free,
    Ready,
    ClaimedBy(u8),
    MovedOn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    // The sender.
    Put,
    LookWhetherClosed,
    TakeBack,
    WaitUntilTaken,
    // A receiver.
    Claim,
    Hold,
    FreeSlot,
    // Whoever has the right, and then lets go of it.
    Use,
    ClearBit,
    Over,
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sweep {
    Slot,
    Bit,
    Scan,
    Clear { named: bool },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    slot: Slot,
    holders: u8,
    closed: bool,
    at: [At; 3],
    /// Bits of processes that believe that the block is theirs alone.
    rights: u8,
    to_sweep: u8,
    sweep: Option<(u8, Sweep)>,
    kills_left: u8,
    restarts_left: u8,
    false_deaths_left: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// The sender keeps its right after the put.
    KeepsRight,
    /// The sender takes the message back with a plain store.
    TakesBackByStore,
    /// A receiver has the right as soon as it has set its bit, before the slot is freed.
    RightBeforeFree,
    /// The slot is freed with a plain store.
    FreesByStore,
    /// The sender lets go of its bit at once.
    NoPin,
}

struct Handing {
    closes: bool,
    kills: u8,
    restarts: u8,
    false_deaths: u8,
    broken: Broken,
}

impl Handing {
    fn step(&self, next: &mut State, process: usize) {
        let bit = 1 << process;
        let me = u8::try_from(process).expect("few processes");
        next.at[process] = match next.at[process] {
            At::Put => {
                next.slot = Slot::Ready;
                if self.broken != Broken::KeepsRight {
                    next.rights &= !bit;
                }
                if self.broken == Broken::NoPin { At::ClearBit } else { At::LookWhetherClosed }
            }
            At::LookWhetherClosed if next.closed => At::TakeBack,
            At::LookWhetherClosed => At::WaitUntilTaken,
            At::TakeBack if next.slot == Slot::Ready || self.broken == Broken::TakesBackByStore => {
                next.slot = Slot::MovedOn;
                next.rights |= bit;
                At::Use
            }
            At::TakeBack => At::WaitUntilTaken,
            At::WaitUntilTaken if next.slot == Slot::MovedOn => At::ClearBit,
            // Nobody is left who could take it: its sender throws it away.
            At::WaitUntilTaken if next.slot == Slot::Ready && self.nobody_receives(next) => {
                next.slot = Slot::MovedOn;
                At::ClearBit
            }
            At::Claim if next.slot == Slot::Ready => {
                next.slot = Slot::ClaimedBy(me);
                At::Hold
            }
            At::Claim if next.slot == Slot::MovedOn || self.nothing_comes(next) => At::Over,
            At::Hold => {
                next.holders |= bit;
                if self.broken == Broken::RightBeforeFree {
                    next.rights |= bit;
                }
                At::FreeSlot
            }
            At::FreeSlot if next.slot == Slot::ClaimedBy(me) || self.broken == Broken::FreesByStore => {
                next.slot = Slot::MovedOn;
                next.rights |= bit;
                At::Use
            }
            // Fenced: what it holds is dropped.
            At::FreeSlot => At::ClearBit,
            At::Use => {
                next.rights &= !bit;
                At::ClearBit
            }
            At::ClearBit => {
                next.rights &= !bit;
                next.holders &= !bit;
                At::Over
            }
            at => at,
        };
    }

    fn nobody_receives(&self, state: &State) -> bool {
        state.to_sweep == 0 && state.at[1..].iter().all(|at| matches!(at, At::Over | At::Dead))
    }

    fn nothing_comes(&self, state: &State) -> bool {
        let sender_is_gone = state.to_sweep & 1 == 0 && matches!(state.at[0], At::Over | At::Dead);
        (state.closed || sender_is_gone) && !matches!(state.slot, Slot::Ready | Slot::ClaimedBy(_))
    }

    fn sweep(&self, next: &mut State) {
        let first = u8::try_from(next.to_sweep.trailing_zeros()).unwrap_or(0);
        let Some((victim, stage)) = next.sweep else {
            next.sweep = Some((first, Sweep::Slot));
            return;
        };
        let following = match stage {
            Sweep::Slot => {
                if next.slot == Slot::ClaimedBy(victim) {
                    next.slot = Slot::Ready;
                }
                Some(Sweep::Bit)
            }
            Sweep::Bit => {
                if next.holders & 1 << victim != 0 {
                    next.holders = next.holders & !(1 << victim) | SUSPECT;
                }
                Some(Sweep::Scan)
            }
            Sweep::Scan => Some(Sweep::Clear { named: Self::is_named(next) }),
            Sweep::Clear { named } => {
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
        matches!(state.slot, Slot::Ready | Slot::ClaimedBy(_))
    }

    fn is_over(state: &State) -> bool {
        state.to_sweep == 0 && state.at.iter().all(|at| matches!(at, At::Over | At::Dead))
    }
}

impl Model for Handing {
    type State = State;

    fn start(&self) -> State {
        State {
            slot: Slot::Free,
            holders: 1,
            closed: false,
            at: [At::Put, At::Claim, At::Claim],
            rights: 1,
            to_sweep: 0,
            sweep: None,
            kills_left: self.kills,
            restarts_left: self.restarts,
            false_deaths_left: self.false_deaths,
        }
    }

    fn steps(&self, state: &State) -> Vec<State> {
        let mut steps = Vec::new();
        for process in 0..3 {
            let at = state.at[process];
            if matches!(at, At::Over | At::Dead) {
                continue;
            }
            let mut next = state.clone();
            self.step(&mut next, process);
            steps.push(next);
            if state.kills_left > 0 {
                let mut next = state.clone();
                next.kills_left -= 1;
                next.at[process] = At::Dead;
                next.rights &= !(1 << process);
                next.to_sweep |= 1 << process;
                steps.push(next);
            }
            if state.false_deaths_left > 0 && matches!(at, At::Hold | At::FreeSlot) {
                let mut next = state.clone();
                next.false_deaths_left -= 1;
                next.to_sweep |= 1 << process;
                steps.push(next);
            }
        }
        if self.closes && !state.closed {
            steps.push(State { closed: true, ..state.clone() });
        }
        if state.to_sweep != 0 {
            let mut next = state.clone();
            self.sweep(&mut next);
            steps.push(next);
            if state.restarts_left > 0 && state.sweep.is_some() {
                let restarts_left = state.restarts_left - 1;
                steps.push(State { restarts_left, sweep: None, ..state.clone() });
            }
        } else if state.holders & SUSPECT != 0 && Self::is_over(state) && !Self::is_named(state) {
            // Whoever drops the last reference of a suspect block scans once more.
            steps.push(State { holders: state.holders & !SUSPECT, ..state.clone() });
        }
        steps
    }

    fn fault(&self, state: &State) -> Option<String> {
        let in_message = u32::from(Self::is_named(state));
        if state.rights.count_ones() > 1 {
            return Some("two processes have the block for themselves".to_owned());
        }
        if state.rights.count_ones() + in_message > 1 {
            return Some(
                "a process has the block for itself, and a message will give it to another".to_owned(),
            );
        }
        let is_had = state.rights.count_ones() + in_message > 0;
        // What was taken by somebody who is then declared dead is lost to it: no fence keeps its bit. Proof
        // of death does.
        (is_had && state.holders == 0 && self.false_deaths == 0)
            .then(|| "the block can be reused while it is somebody's".to_owned())
    }

    fn is_settled(&self, state: &State) -> bool {
        Self::is_over(state) && (state.holders == 0 || Self::is_named(state))
    }
}

fn handing(closes: bool, kills: u8, restarts: u8, false_deaths: u8) -> Handing {
    Handing { closes, kills, restarts, false_deaths, broken: Broken::Nothing }
}

#[test]
fn the_right_to_a_block_is_in_one_hand_at_most() {
    for (closes, kills, restarts, false_deaths) in
        [(false, 0, 0, 0), (false, 2, 1, 0), (true, 0, 0, 0), (true, 2, 1, 0), (true, 0, 1, 1)]
    {
        let n_states = explore(&handing(closes, kills, restarts, false_deaths)).expect_holds();
        println!("{kills} kills, {false_deaths} false deaths, {restarts} broken sweeps: {n_states} states");
    }
}

#[test]
fn each_rule_is_needed() {
    for broken in [
        Broken::KeepsRight,
        Broken::TakesBackByStore,
        Broken::RightBeforeFree,
        Broken::FreesByStore,
        Broken::NoPin,
    ] {
        let in_time = Handing { broken, ..handing(true, 1, 0, 0) };
        let fenced = Handing { broken, ..handing(true, 0, 0, 1) };
        assert!(explore(&in_time).is_broken() || explore(&fenced).is_broken(), "{broken:?} was not noticed");
    }
}
