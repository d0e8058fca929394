//! A bundle on its way from its maker to a receiver, in a message that is too long for its slot, or in a
//! parcel. After `tensorferry-storage/src/{bundle,parcel,sweep}.rs`.
//!
//! Process 0 holds a block, a bundle that names it, and a message that names the bundle, and puts the
//! message, or posts it as a parcel. It keeps the bundle and the block until it sees that nobody else holds
//! the bundle. Process 1 takes the message: it holds the message's block and the bundle before it frees the
//! slot, and lets go of the message. Of a parcel it first holds the block, then says that it opens it, then
//! holds the bundle and says that it has adopted everything. It uses the named block without holding it, then
//! holds it, lets go of the bundle, and in the end of the block. Process 2 holds the block too; it writes it
//! once it finds itself alone with it. Process 0 or 1 may be killed before any step; a sweep marks one word
//! at a time, a scan reads one word at a time and begins again when another one has died meanwhile. Two
//! processes may scan at once.
//!
//! What must hold: a block without holders is used by no living process and named by nothing that somebody
//! can still take or has. A block is not written while it is read. And when everything is over, nothing is
//! held, unless a message is still there.

use crate::explore::{Model, explore};

const SUSPECT: u8 = 1 << 7;
const MAKER: u8 = 1;
const TAKER: u8 = 2;
const OTHER: u8 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Slot {
    Free,
    Ready,
    /// Or opened.
    Claimed,
    /// Or adopted.
    MovedOn,
    /// Nobody opens the parcel any more.
    TakenBack,
}

/// What the maker does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Maker {
    Put,
    WaitTaken,
    DropMessage,
    WaitSole,
    DropBundle,
    DropBlock,
    Over,
    Dead,
}

/// What the receiver does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Taker {
    Claim,
    HoldMessage,
    HoldBundle,
    /// Lets go of what it has.
    GiveUp,
    FreeSlot,
    DropMessage,
    HoldBlock,
    DropBundle,
    DropBlock,
    Over,
    Dead,
}

/// What a sweeper does next. In `Read` it reads what the number stands for in the order of the scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sweep {
    Slot,
    Mark(usize),
    Read(usize),
    /// Finds out what becomes of a parcel that no living process holds, in three steps.
    Decide(usize, u8),
    Clear(usize),
}

/// The words that say who holds what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Word {
    Message,
    Bundle,
    Block,
}

const WORDS: [Word; 3] = [Word::Message, Word::Bundle, Word::Block];

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    slot: Slot,
    holders: [u8; 3],
    maker: Maker,
    taker: Taker,
    dead: u8,
    /// Whose bits have not been turned into marks.
    to_sweep: u8,
    sweep: Option<Sweep>,
    /// What the scan has found named so far.
    named: [bool; 3],
    /// Something may be unmarked that was not named any more when it was let go of.
    is_scan_due: bool,
    /// Process 2 has found itself alone with the block, and writes it.
    is_exclusive: bool,
    kills_left: u8,
    /// A scan that another process makes at the same time.
    other_scan: Option<Sweep>,
    other_named: [bool; 3],
    other_scans_left: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// A scan reads the bundles that are held before the rings.
    BundlesBeforeRings,
    /// A scan does not look into a bundle that a message names.
    NotInside,
    /// The maker lets go of the block as soon as the message was taken.
    KeepsNothing,
    /// The receiver lets go of the bundle before it holds what it takes out of it.
    TakesOutLate,
    /// A scan passes over a parcel that no living process holds, and leaves it to be opened.
    LeavesParcels,
    /// A scan takes a parcel that somebody opens for one that names nothing.
    ForgetsOpeners,
    /// A scan reads the bundles that are held before the parcels.
    BundlesBeforeParcels,
}

struct Bundling {
    /// No ring names a parcel: its receiver knows where it lies.
    is_parcel: bool,
    /// A scan reads the tables that are held in the order in which they lie.
    is_bundle_first: bool,
    kills: u8,
    broken: Broken,
}

/// What a scan reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    Ring,
    HeldMessage,
    HeldBundle,
}

impl Bundling {
    fn order(&self) -> [Reading; 3] {
        use Reading::{HeldBundle, HeldMessage, Ring};
        match self.broken {
            Broken::BundlesBeforeRings => [HeldBundle, Ring, HeldMessage],
            Broken::BundlesBeforeParcels => [Ring, HeldBundle, HeldMessage],
            _ if self.is_bundle_first && !self.is_parcel => [Ring, HeldBundle, HeldMessage],
            _ => [Ring, HeldMessage, HeldBundle],
        }
    }

    fn make(&self, next: &mut State) {
        next.maker = match next.maker {
            Maker::Put => {
                next.slot = Slot::Ready;
                Maker::WaitTaken
            }
            Maker::WaitTaken => match next.slot {
                Slot::MovedOn => Maker::DropMessage,
                // Nobody is left who could take it: its sender throws it away.
                Slot::Ready if next.taker == Taker::Dead && next.to_sweep == 0 => {
                    next.slot = Slot::MovedOn;
                    Maker::DropMessage
                }
                // Whoever opened the parcel is dead.
                Slot::Claimed if self.is_parcel && next.holders[0] == MAKER => Maker::DropMessage,
                _ => Maker::WaitTaken,
            },
            Maker::DropMessage => {
                let_go(next, Word::Message, MAKER);
                if self.broken == Broken::KeepsNothing { Maker::DropBundle } else { Maker::WaitSole }
            }
            Maker::WaitSole if next.holders[1] == MAKER => Maker::DropBundle,
            Maker::WaitSole => Maker::WaitSole,
            Maker::DropBundle => {
                let_go(next, Word::Bundle, MAKER);
                Maker::DropBlock
            }
            Maker::DropBlock => {
                let_go(next, Word::Block, MAKER);
                Maker::Over
            }
            at => at,
        };
    }

    fn take(&self, next: &mut State) {
        let late = self.broken == Broken::TakesOutLate;
        next.taker = match next.taker {
            // It is not told where the parcel lies, or never will be.
            Taker::HoldMessage if self.is_parcel && next.slot == Slot::Free => match next.maker {
                Maker::Dead => Taker::Over,
                _ => Taker::HoldMessage,
            },
            // The parcel of a dead process, or something that it names, is gone.
            Taker::HoldMessage if self.is_parcel && next.holders[0] == 0 => Taker::Over,
            Taker::HoldBundle if self.is_parcel && next.holders[1] == 0 => Taker::GiveUp,
            Taker::HoldMessage if self.is_parcel => {
                next.holders[0] |= TAKER;
                Taker::Claim
            }
            Taker::Claim if self.is_parcel => match next.slot {
                Slot::Ready => {
                    next.slot = Slot::Claimed;
                    Taker::HoldBundle
                }
                _ => Taker::GiveUp,
            },
            Taker::GiveUp => {
                let_go(next, Word::Message, TAKER);
                Taker::Over
            }
            Taker::Claim => match next.slot {
                Slot::Ready => {
                    next.slot = Slot::Claimed;
                    Taker::HoldMessage
                }
                // Nothing comes any more.
                Slot::Free if next.maker == Maker::Dead && next.to_sweep == 0 => Taker::Over,
                Slot::MovedOn => Taker::Over,
                _ => Taker::Claim,
            },
            Taker::HoldMessage => {
                next.holders[0] |= TAKER;
                Taker::HoldBundle
            }
            Taker::HoldBundle => {
                next.holders[1] |= TAKER;
                Taker::FreeSlot
            }
            Taker::FreeSlot => {
                next.slot = Slot::MovedOn;
                Taker::DropMessage
            }
            Taker::DropMessage => {
                let_go(next, Word::Message, TAKER);
                if late { Taker::DropBundle } else { Taker::HoldBlock }
            }
            Taker::HoldBlock => {
                next.holders[2] |= TAKER;
                if late { Taker::DropBlock } else { Taker::DropBundle }
            }
            Taker::DropBundle => {
                let_go(next, Word::Bundle, TAKER);
                if late { Taker::HoldBlock } else { Taker::DropBlock }
            }
            Taker::DropBlock => {
                let_go(next, Word::Block, TAKER);
                Taker::Over
            }
            at => at,
        };
    }

    fn sweep(&self, next: &mut State) {
        let stage = next.sweep.unwrap_or(Sweep::Slot);
        next.sweep = match stage {
            Sweep::Slot => {
                if !self.is_parcel && next.slot == Slot::Claimed && next.to_sweep & TAKER != 0 {
                    next.slot = Slot::Ready;
                }
                Some(Sweep::Mark(0))
            }
            Sweep::Mark(at) => {
                let dead = next.to_sweep;
                if let Some(word) = next.holders.get_mut(at)
                    && *word & dead != 0
                {
                    *word = *word & !dead | SUSPECT;
                }
                if at + 1 < WORDS.len() {
                    Some(Sweep::Mark(at + 1))
                } else {
                    next.to_sweep = 0;
                    next.named = [false; 3];
                    next.is_scan_due = false;
                    Some(Sweep::Read(0))
                }
            }
            Sweep::Read(at) => {
                let what = self.order()[at];
                self.read(next, what);
                let is_left = self.is_parcel
                    && what == Reading::HeldMessage
                    && next.holders[0] != 0
                    && !is_held(next, Word::Message);
                if is_left && self.broken != Broken::LeavesParcels {
                    Some(Sweep::Decide(at, 0))
                } else {
                    Some(after(at))
                }
            }
            Sweep::Decide(at, step) => {
                let is_first = step == 0;
                Some(match next.slot {
                    // In one step: nobody opens it from here on.
                    Slot::Free | Slot::Ready if is_first => {
                        next.slot = Slot::TakenBack;
                        after(at)
                    }
                    Slot::Claimed if self.broken == Broken::ForgetsOpeners => after(at),
                    Slot::Claimed if is_first => Sweep::Decide(at, 1),
                    _ if step == 1 => {
                        self.read(next, Reading::HeldMessage);
                        if is_held(next, Word::Message) { after(at) } else { Sweep::Decide(at, 2) }
                    }
                    Slot::MovedOn => {
                        // Whoever has adopted it may have done so after its bundle was read.
                        name_contents(next);
                        next.is_scan_due = true;
                        after(at)
                    }
                    // Who opened it is dead, or nobody will.
                    _ => after(at),
                })
            }
            Sweep::Clear(at) => {
                if !next.named[at] {
                    next.holders[at] &= !SUSPECT;
                }
                (at + 1 < WORDS.len()).then_some(Sweep::Clear(at + 1))
            }
        };
    }

    fn read(&self, next: &mut State, what: Reading) {
        let names = match what {
            Reading::Ring => !self.is_parcel && matches!(next.slot, Slot::Ready | Slot::Claimed),
            Reading::HeldMessage => is_held(next, Word::Message),
            Reading::HeldBundle => is_held(next, Word::Bundle),
        };
        if names {
            let inside = what == Reading::HeldBundle || self.broken != Broken::NotInside;
            next.named[0] |= what == Reading::Ring;
            next.named[1] |= what != Reading::HeldBundle;
            next.named[2] |= inside;
        }
    }

    fn is_over(state: &State) -> bool {
        state.to_sweep == 0
            && state.sweep.is_none()
            && state.other_scan.is_none()
            && matches!(state.maker, Maker::Over | Maker::Dead)
            && matches!(state.taker, Taker::Over | Taker::Dead)
    }

    fn is_on_its_way(&self, state: &State) -> bool {
        !self.is_parcel && matches!(state.slot, Slot::Ready | Slot::Claimed)
    }
}

fn is_held(state: &State, word: Word) -> bool {
    state.holders[word as usize] & !SUSPECT & !state.dead != 0
}

fn name_contents(next: &mut State) {
    next.named[1] = true;
    next.named[2] = true;
}

/// What a scan does after the reading with this number.
fn after(at: usize) -> Sweep {
    if at < 2 { Sweep::Read(at + 1) } else { Sweep::Clear(0) }
}

/// Whoever lets go of a message or a bundle, or is the last one before a mark, asks for a scan.
fn let_go(next: &mut State, word: Word, bit: u8) {
    let others = &mut next.holders[word as usize];
    *others &= !bit;
    next.is_scan_due |= next.dead != 0 && (word != Word::Block || *others == SUSPECT);
}

impl Model for Bundling {
    type State = State;

    fn start(&self) -> State {
        State {
            slot: Slot::Free,
            holders: [MAKER, MAKER, MAKER | OTHER],
            maker: Maker::Put,
            taker: if self.is_parcel { Taker::HoldMessage } else { Taker::Claim },
            dead: 0,
            to_sweep: 0,
            sweep: None,
            named: [false; 3],
            is_scan_due: false,
            is_exclusive: false,
            kills_left: self.kills,
            other_scan: None,
            other_named: [false; 3],
            other_scans_left: 1,
        }
    }

    fn steps(&self, state: &State) -> Vec<State> {
        let mut steps = Vec::new();
        let can_kill = state.kills_left > 0;
        if !matches!(state.maker, Maker::Over | Maker::Dead) {
            let mut next = state.clone();
            self.make(&mut next);
            steps.push(next);
            if can_kill {
                let mut next = state.clone();
                next.maker = Maker::Dead;
                killed(&mut next, MAKER);
                steps.push(next);
            }
        }
        if !matches!(state.taker, Taker::Over | Taker::Dead) {
            let mut next = state.clone();
            self.take(&mut next);
            steps.push(next);
            if can_kill {
                let mut next = state.clone();
                next.taker = Taker::Dead;
                killed(&mut next, TAKER);
                steps.push(next);
            }
        }
        if !state.is_exclusive && state.holders[2] == OTHER {
            let mut next = state.clone();
            next.is_exclusive = true;
            steps.push(next);
        }
        if state.to_sweep != 0 || state.sweep.is_some() {
            let mut next = state.clone();
            self.sweep(&mut next);
            steps.push(next);
        } else if state.is_scan_due {
            let mut next = state.clone();
            (next.named, next.is_scan_due, next.sweep) = ([false; 3], false, Some(Sweep::Read(0)));
            steps.push(next);
        }
        if state.to_sweep == 0 {
            let mut next = state.clone();
            if state.other_scan.is_some() {
                change_scans(&mut next);
                self.sweep(&mut next);
                change_scans(&mut next);
                steps.push(next);
            } else if state.other_scans_left > 0 && state.dead != 0 {
                next.other_scans_left -= 1;
                (next.other_named, next.other_scan) = ([false; 3], Some(Sweep::Read(0)));
                steps.push(next);
            }
        }
        steps
    }

    fn fault(&self, state: &State) -> Option<String> {
        let free = |word: Word| match word {
            Word::Block => state.holders[2] & !OTHER == 0,
            word => state.holders[word as usize] == 0,
        };
        let uses_by_bundle = matches!(state.taker, Taker::DropMessage | Taker::HoldBlock | Taker::DropBundle)
            && (self.broken != Broken::TakesOutLate || state.taker != Taker::DropBundle);
        let comes = self.is_on_its_way(state);
        // Of a parcel it has only what it could hold.
        let has_message =
            !self.is_parcel && state.taker == Taker::HoldBundle || state.taker == Taker::FreeSlot;
        let uses = [
            (Word::Message, comes || has_message || state.taker == Taker::DropMessage),
            (Word::Bundle, comes || has_message || uses_by_bundle),
            (Word::Block, comes || has_message || uses_by_bundle || state.taker == Taker::DropBlock),
        ];
        let is_adopting = state.taker == Taker::FreeSlot;
        if state.is_exclusive && (uses_by_bundle || is_adopting || state.taker == Taker::DropBlock) {
            return Some("the block is written while it is read".to_owned());
        }
        let lost = uses.into_iter().find(|(word, is_used)| *is_used && free(*word));
        lost.map(|(word, _)| format!("{word:?} can be reused while it is used or on its way"))
    }

    fn is_settled(&self, state: &State) -> bool {
        Self::is_over(state)
            && !state.is_scan_due
            && (state.holders == [0, 0, OTHER] || self.is_on_its_way(state))
    }
}

/// A death ends a scan that is in progress: it may have missed what the dead one was doing.
fn killed(next: &mut State, bit: u8) {
    next.kills_left -= 1;
    next.dead |= bit;
    next.to_sweep |= bit;
    (next.sweep, next.other_scan) = (None, None);
}

fn change_scans(state: &mut State) {
    std::mem::swap(&mut state.sweep, &mut state.other_scan);
    std::mem::swap(&mut state.named, &mut state.other_named);
}

#[test]
fn what_a_bundle_names_is_reused_only_when_nobody_has_the_bundle_and_then_surely() {
    for (is_parcel, is_bundle_first) in [(false, false), (false, true), (true, false), (true, true)] {
        for kills in 0..=2 {
            let bundling = Bundling { is_parcel, is_bundle_first, kills, broken: Broken::Nothing };
            let n_states = explore(&bundling).expect_holds();
            println!("parcel {is_parcel}, bundle first {is_bundle_first}, {kills} kills: {n_states} states");
        }
    }
}

#[test]
fn each_rule_of_bundles_is_needed() {
    for (is_parcel, broken) in [
        (false, Broken::BundlesBeforeRings),
        (false, Broken::NotInside),
        (false, Broken::KeepsNothing),
        (false, Broken::TakesOutLate),
        (true, Broken::LeavesParcels),
        (true, Broken::ForgetsOpeners),
        (true, Broken::BundlesBeforeParcels),
    ] {
        for is_bundle_first in [false, true] {
            let verdict = explore(&Bundling { is_parcel, is_bundle_first, kills: 2, broken });
            assert!(verdict.is_broken(), "{broken:?} was not noticed");
        }
    }
}
