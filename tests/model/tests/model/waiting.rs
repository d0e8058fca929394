//! The wait protocol of `tensorferry-domain/src/wait.rs`: producers publish an item and wake, consumers look,
//! announce that they will sleep, look again, and sleep. Any process may be stopped for ever before any of
//! its steps.
//!
//! What must hold: when nothing can move any more, no consumer that is not stopped sleeps while an item lies
//! there whose producer has returned from its put.

use crate::explore::{Model, explore};

/// A process's private copy of the word. The epoch never comes back to an old value, so all that can matter
/// is whether the word has moved since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Copied {
    StillThere,
    Outdated,
}

/// Where a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    // A producer.
    Publish,
    LookAtFlag,
    MoveEpoch,
    Wake { moved: Copied },
    ClearFlag { moved: Copied },
    // A consumer.
    FirstLook,
    ReadWord,
    Announce { seen: Copied },
    SecondLook { expected: Copied },
    Sleep { expected: Copied },
    Asleep,
    // Either.
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// The flag; of the epoch only changes matter.
    flag: bool,
    /// Items that nobody has taken.
    items: u8,
    /// Puts that have returned.
    returned: u8,
    /// Items taken.
    taken: u8,
    at: Vec<At>,
    stopped: Vec<bool>,
    /// How many more processes may be stopped.
    stops_left: u8,
}

/// A rule to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// The waker clears the flag before it wakes instead of after finding nobody.
    FlagClearedFirst,
    /// The waker wakes one sleeper instead of all.
    WakesOne,
    /// A sleeper does not move the epoch when the flag is set already.
    SleeperKeepsEpoch,
    /// A sleeper does not look again after announcing.
    NoSecondLook,
}

struct Waiting {
    n_producers: usize,
    n_consumers: usize,
    stops: u8,
    broken: Broken,
}

impl Model for Waiting {
    type State = State;

    fn start(&self) -> State {
        let n = self.n_producers + self.n_consumers;
        let at = (0..n).map(|i| if i < self.n_producers { At::Publish } else { At::FirstLook }).collect();
        State {
            flag: false,
            items: 0,
            returned: 0,
            taken: 0,
            at,
            stopped: vec![false; n],
            stops_left: self.stops,
        }
    }

    fn steps(&self, state: &State) -> Vec<State> {
        let mut steps = Vec::new();
        for process in 0..state.at.len() {
            if state.stopped[process] || state.at[process] == At::Done {
                continue;
            }
            if state.stops_left > 0 {
                let mut next = state.clone();
                next.stopped[process] = true;
                next.stops_left -= 1;
                steps.push(next);
            }
            self.step(state, process, &mut steps);
        }
        steps
    }

    fn fault(&self, state: &State) -> Option<String> {
        let cannot_move = |i: usize| state.stopped[i] || matches!(state.at[i], At::Asleep | At::Done);
        if !(0..state.at.len()).all(cannot_move) {
            return None;
        }
        let sleeps = (0..state.at.len()).any(|i| !state.stopped[i] && state.at[i] == At::Asleep);
        let promised = state.returned > state.taken;
        (sleeps && state.items > 0 && promised).then(|| "a consumer sleeps beside a promised item".to_owned())
    }

    fn is_settled(&self, state: &State) -> bool {
        self.fault(state).is_none() && self.steps(state).iter().all(|next| next.stopped != state.stopped)
    }
}

impl Waiting {
    fn step(&self, state: &State, process: usize, steps: &mut Vec<State>) {
        let mut next = state.clone();
        let at = &mut next.at[process];
        match state.at[process] {
            At::Publish => {
                next.items += 1;
                *at = At::LookAtFlag;
            }
            At::LookAtFlag if state.flag => *at = At::MoveEpoch,
            At::LookAtFlag => return put_returns(next, process, steps),
            At::MoveEpoch => {
                move_word(&mut next, self.broken != Broken::FlagClearedFirst);
                next.at[process] = At::Wake { moved: Copied::StillThere };
            }
            At::Wake { moved } => return self.wake(next, process, moved, steps),
            At::ClearFlag { moved } => {
                if moved == Copied::StillThere {
                    move_word(&mut next, false);
                }
                return put_returns(next, process, steps);
            }
            At::FirstLook | At::SecondLook { .. } if state.items > 0 => take(&mut next, process),
            At::FirstLook => *at = At::ReadWord,
            At::ReadWord => *at = At::Announce { seen: Copied::StillThere },
            At::Announce { seen: Copied::StillThere } => {
                if !(self.broken == Broken::SleeperKeepsEpoch && state.flag) {
                    move_word(&mut next, true);
                }
                let expected = Copied::StillThere;
                next.at[process] = if self.broken == Broken::NoSecondLook {
                    At::Sleep { expected }
                } else {
                    At::SecondLook { expected }
                };
            }
            At::Announce { seen: Copied::Outdated } => *at = At::ReadWord,
            At::SecondLook { expected } => *at = At::Sleep { expected },
            At::Sleep { expected: Copied::StillThere } => *at = At::Asleep,
            At::Sleep { expected: Copied::Outdated } => *at = At::FirstLook,
            At::Asleep | At::Done => return,
        }
        steps.push(next);
    }

    fn wake(&self, mut next: State, process: usize, moved: Copied, steps: &mut Vec<State>) {
        let sleepers: Vec<usize> = (0..next.at.len()).filter(|&i| next.at[i] == At::Asleep).collect();
        if sleepers.is_empty() {
            next.at[process] = At::ClearFlag { moved };
            steps.push(next);
        } else if self.broken == Broken::WakesOne {
            // The kernel chooses; a sleeper that is stopped can be chosen too.
            for &one in &sleepers {
                let mut woken = next.clone();
                woken.at[one] = At::FirstLook;
                put_returns(woken, process, steps);
            }
        } else {
            for &sleeper in &sleepers {
                next.at[sleeper] = At::FirstLook;
            }
            put_returns(next, process, steps);
        }
    }
}

/// Changes the word; nobody's copy is what stands there any more.
fn move_word(next: &mut State, flag: bool) {
    next.flag = flag;
    for at in &mut next.at {
        match at {
            At::Wake { moved: copy }
            | At::ClearFlag { moved: copy }
            | At::Announce { seen: copy }
            | At::SecondLook { expected: copy }
            | At::Sleep { expected: copy } => *copy = Copied::Outdated,
            _ => {}
        }
    }
}

fn put_returns(mut next: State, process: usize, steps: &mut Vec<State>) {
    next.returned += 1;
    next.at[process] = At::Done;
    steps.push(next);
}

fn take(next: &mut State, process: usize) {
    next.items -= 1;
    next.taken += 1;
    next.at[process] = At::Done;
}

fn waiting(n_producers: usize, n_consumers: usize, stops: u8, broken: Broken) -> Waiting {
    Waiting { n_producers, n_consumers, stops, broken }
}

#[test]
fn nobody_sleeps_beside_a_promised_item() {
    for (n_producers, n_consumers, stops) in
        [(1, 1, 0), (2, 1, 1), (1, 2, 1), (2, 2, 1), (2, 2, 2), (2, 3, 1)]
    {
        let n_states = explore(&waiting(n_producers, n_consumers, stops, Broken::Nothing)).expect_holds();
        println!("{n_producers} producers, {n_consumers} consumers, {stops} stopped: {n_states} states");
    }
}

#[test]
fn each_rule_is_needed() {
    for broken in
        [Broken::FlagClearedFirst, Broken::WakesOne, Broken::SleeperKeepsEpoch, Broken::NoSecondLook]
    {
        let sizes = [(1, 2, 1), (2, 2, 1), (2, 3, 1)];
        let noticed = sizes.into_iter().any(|(n_producers, n_consumers, stops)| {
            explore(&waiting(n_producers, n_consumers, stops, broken)).is_broken()
        });
        assert!(noticed, "{broken:?} was not noticed");
    }
}
