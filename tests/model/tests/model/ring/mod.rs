//! The owner-stamped slot ring of `tensorferry-storage/src/ring.rs` (`ring/put.rs`, `ring/take.rs`) with its
//! recovery in `sweep_ring.rs`: every shared access is a step, any process may be killed before any step, a
//! sweep may be broken off and started over, somebody may close the ring, and a living process may wrongly be
//! declared dead (which proof by pidfd rules out; what the fences are for). Receivers that find nothing sleep
//! until somebody wakes them; senders look again and again.
//!
//! What must hold: a message whose put has returned is taken once or lies ready; none is taken twice or taken
//! without having been committed; who is told that nothing comes any more has missed nothing; nobody sleeps
//! for ever; when all is done no slot is stuck; without a death each sender's order is kept.

mod put;
mod sweep;
mod take;

use crate::explore::{Model, explore};
use sweep::Sweep;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Tag {
    Free,
    Writing,
    Ready,
    Claimed,
}

/// The largest ring, and the most processes; places that a case does not use count as done.
const MAX_SLOTS: usize = 4;
const MAX_PROCESSES: usize = 5;

/// A slot: its state word, and which message its data holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Slot {
    lap: u8,
    tag: Tag,
    owner: u8,
    message: u8,
}

impl Slot {
    fn free(lap: u8) -> Self {
        Self { lap, tag: Tag::Free, owner: 0, message: u8::MAX }
    }

    /// Whether the state word is this one.
    fn is(&self, lap: u8, tag: Tag, owner: u8) -> bool {
        (self.lap, self.tag, self.owner) == (lap, tag, owner)
    }
}

/// Where a process is, with the private variables that it still needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    // Put.
    LookWhetherOver,
    ReadTail,
    Claim { position: u8 },
    HelpTail { position: u8 },
    MoveTail { position: u8 },
    Commit { position: u8 },
    LookAgainWhetherClosed { position: u8 },
    TakeBack { position: u8 },
    WakeForMessage,
    WakeForRefusal,
    Leave,
    WakeForLeaving,
    // Take.
    Prepare,
    ReadHead,
    Scan { head: u8, position: u8, holes: u8 },
    HelpHead { head: u8 },
    LookBack { head: u8, position: u8, holes: u8, next: u8 },
    Take { position: u8 },
    Free { position: u8, message: u8 },
    WakeTheLast,
    AskWhetherMoreCanCome,
    SearchForMore { slot: u8 },
    Sleep,
    // Close.
    Close,
    WakeForClosing,
    // Anybody.
    Done,
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    slots: [Slot; MAX_SLOTS],
    head: u8,
    tail: u8,
    closed: bool,
    /// Bits of processes: who sends, and which receivers were woken since they last prepared to sleep.
    senders: u8,
    woken: u8,
    /// First senders, then receivers, then who closes.
    at: [At; MAX_PROCESSES],
    /// How many messages each sender has committed.
    sent: [u8; MAX_PROCESSES],
    /// Bits of messages: made ready, told to its sender as put, given to a receiver.
    committed: u16,
    promised: u16,
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
    /// Who put into a ring that was closed meanwhile leaves the message there.
    NoTakeBack,
    /// A receiver that finds the ring closed does not search the slots once more.
    NoSearch,
    /// A message is not in the hands of others while they claim it.
    ClaimedIsNothing,
    // Somebody wakes nobody.
    SilentPut,
    SilentTakeBack,
    SilentLeaving,
    SilentClosing,
    SilentLast,
    SilentSweep,
}

struct Ring {
    n_slots: u8,
    /// How many messages each sender puts.
    messages: Vec<u8>,
    n_receivers: u8,
    closes: bool,
    kills: u8,
    restarts: u8,
    false_deaths: u8,
    broken: Broken,
}

impl Ring {
    fn n_senders(&self) -> usize {
        self.messages.len()
    }

    fn receivers(&self) -> std::ops::Range<usize> {
        self.n_senders()..self.n_senders() + usize::from(self.n_receivers)
    }

    /// The bit of a sender's message.
    fn message(&self, sender: usize, index: u8) -> u8 {
        self.messages[..sender].iter().sum::<u8>() + index
    }

    /// Whether no receiver is left.
    fn nobody_receives(&self, state: &State) -> bool {
        self.receivers().all(|receiver| match state.at[receiver] {
            At::Done => true,
            At::Dead => state.to_sweep >> receiver & 1 == 0,
            _ => false,
        })
    }

    fn slot(&self, position: u8) -> (usize, u8) {
        (usize::from(position % self.n_slots), position / self.n_slots)
    }

    /// Wakes whoever sleeps for a message, unless that is what is broken.
    fn wake(&self, next: &mut State, silent: Broken) {
        if self.broken != silent {
            next.woken = u8::MAX;
        }
    }

    fn close(&self, next: &mut State, at: At) -> At {
        match at {
            At::Close => {
                next.closed = true;
                At::WakeForClosing
            }
            _ => {
                self.wake(next, Broken::SilentClosing);
                At::Done
            }
        }
    }
}

impl Model for Ring {
    type State = State;

    fn start(&self) -> State {
        let senders = self.messages.iter().map(|_| At::LookWhetherOver);
        let receivers = (0..self.n_receivers).map(|_| At::Prepare);
        let mut at = [At::Done; MAX_PROCESSES];
        at.iter_mut()
            .zip(senders.chain(receivers).chain(self.closes.then_some(At::Close)))
            .for_each(|(to, from)| *to = from);
        State {
            slots: [Slot::free(0); MAX_SLOTS],
            head: 0,
            tail: 0,
            closed: false,
            senders: (1 << self.n_senders()) - 1,
            woken: 0,
            at,
            sent: [0; MAX_PROCESSES],
            committed: 0,
            promised: 0,
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
            } else if self.receivers().contains(&process) {
                self.take(&mut next, process, at)
            } else {
                self.close(&mut next, at)
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
        if !self.is_settled(state) {
            return None;
        }
        let ready = state.slots.iter().filter(|s| s.tag == Tag::Ready);
        let waiting = ready.fold(0_u16, |bits, slot| bits | 1 << slot.message);
        if state.promised & !(state.taken | waiting) != 0 {
            return Some("a message that was put is lost".to_owned());
        }
        if state.taken & waiting != 0 {
            return Some("a message was taken and is still there".to_owned());
        }
        let told = self.receivers().any(|receiver| state.at[receiver] == At::Done);
        // After a close, a message may be claimed by somebody who then dies, when the others were told
        // already.
        let in_order = !state.any_death || (!state.closed && self.false_deaths == 0);
        if told && in_order && state.promised & waiting != 0 {
            return Some("a receiver was told that nothing comes any more, and missed a message".to_owned());
        }
        let stuck = state.slots.iter().any(|s| matches!(s.tag, Tag::Writing | Tag::Claimed));
        stuck.then(|| "a slot is stuck".to_owned())
    }

    fn is_settled(&self, state: &State) -> bool {
        state.to_sweep == 0 && state.at.iter().all(|at| matches!(at, At::Done | At::Dead))
    }
}

fn ring(n_slots: u8, messages: &[u8], n_receivers: u8) -> Ring {
    Ring {
        n_slots,
        messages: messages.to_vec(),
        n_receivers,
        closes: false,
        kills: 0,
        restarts: 0,
        false_deaths: 0,
        broken: Broken::Nothing,
    }
}

fn closing(n_slots: u8, messages: &[u8], n_receivers: u8) -> Ring {
    Ring { closes: true, ..ring(n_slots, messages, n_receivers) }
}

#[test]
fn nothing_is_lost_doubled_or_stuck() {
    let cases = [
        ("no death", ring(2, &[1, 1], 2)),
        ("no death, one slot", ring(1, &[2, 1], 2)),
        ("one kill, one slot", Ring { kills: 1, ..ring(1, &[1, 1], 2) }),
        ("one kill, three messages", Ring { kills: 1, ..ring(2, &[2, 1], 1) }),
        ("one kill, the sweep starts over", Ring { kills: 1, restarts: 1, ..ring(2, &[2], 2) }),
        ("two kills", Ring { kills: 2, restarts: 1, ..ring(2, &[1, 1], 1) }),
        ("a false death", Ring { false_deaths: 1, ..ring(2, &[2], 2) }),
        ("a false death, one slot", Ring { false_deaths: 1, ..ring(1, &[2, 1], 1) }),
        ("closed", closing(2, &[1, 1], 1)),
        ("closed, two receivers", closing(2, &[2], 2)),
        ("closed, one kill", Ring { kills: 1, ..closing(2, &[1], 2) }),
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
        Ring { broken: Broken::NoTakeBack, ..closing(2, &[1], 1) },
        Ring { broken: Broken::NoSearch, ..closing(2, &[1], 1) },
        Ring { broken: Broken::ClaimedIsNothing, ..Ring { kills: 1, ..ring(2, &[1], 2) } },
        Ring { broken: Broken::SilentPut, ..ring(1, &[2], 1) },
        Ring { broken: Broken::SilentTakeBack, ..closing(2, &[1], 1) },
        Ring { broken: Broken::SilentLeaving, ..ring(2, &[1], 1) },
        Ring { broken: Broken::SilentClosing, ..closing(2, &[1], 1) },
        Ring { broken: Broken::SilentLast, ..ring(2, &[1], 2) },
        Ring { broken: Broken::SilentSweep, ..killed() },
    ] {
        assert!(explore(&model).is_broken(), "{:?} was not noticed", model.broken);
    }
}
