//! Visiting every state of a model.

use std::fmt::Debug;
use std::hash::Hash;

use rustc_hash::FxHashMap;

/// A system that moves from state to state.
pub(crate) trait Model {
    /// Everything that decides what can happen next, and what must have happened before.
    type State: Clone + Debug + Eq + Hash;

    /// Where it begins.
    fn start(&self) -> Self::State;

    /// Every state that one step of one process leads to.
    fn steps(&self, state: &Self::State) -> Vec<Self::State>;

    /// What is wrong with a state, if anything is.
    fn fault(&self, state: &Self::State) -> Option<String>;

    /// Whether everything that had to happen has happened.
    fn is_settled(&self, state: &Self::State) -> bool;
}

/// What an exploration found.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Every state is right and leads to a settled one.
    Holds {
        /// How many states there are.
        n_states: usize,
    },
    /// A state is wrong: how, and which.
    Fault { fault: String, state: String },
    /// From this state nothing leads to a settled one.
    Stuck { state: String },
}

impl Verdict {
    /// The number of states of a model that holds.
    pub(crate) fn expect_holds(&self) -> usize {
        match self {
            Self::Holds { n_states } => *n_states,
            Self::Fault { fault, state } => panic!("{fault} in {state}"),
            Self::Stuck { state } => panic!("nothing more happens that settles {state}"),
        }
    }

    /// Whether something was found wrong.
    pub(crate) fn is_broken(&self) -> bool {
        !matches!(self, Self::Holds { .. })
    }
}

/// No model here is this large; a mistake that makes one endless ends here.
const MAX_STATES: usize = 20_000_000;

/// Visits every state that `model` can reach.
pub(crate) fn explore<M: Model>(model: &M) -> Verdict {
    let start = model.start();
    let mut numbers: FxHashMap<M::State, u32> = FxHashMap::from_iter([(start.clone(), 0)]);
    let mut open = vec![start];
    let mut edges: Vec<(u32, u32)> = Vec::new();
    let mut settled: Vec<u32> = Vec::new();
    while let Some(state) = open.pop() {
        let number = numbers[&state];
        if let Some(fault) = model.fault(&state) {
            return Verdict::Fault { fault, state: format!("{state:?}") };
        }
        if model.is_settled(&state) {
            settled.push(number);
        }
        for next in model.steps(&state) {
            let n_known = u32::try_from(numbers.len()).expect("fewer states than MAX_STATES");
            let next_number = *numbers.entry(next.clone()).or_insert_with(|| {
                open.push(next);
                n_known
            });
            edges.push((next_number, number));
        }
        assert!(numbers.len() < MAX_STATES, "the model has too many states");
    }
    match first_stuck(numbers.len(), edges, settled) {
        None => Verdict::Holds { n_states: numbers.len() },
        Some(number) => {
            let stuck = numbers.iter().find(|(_, n)| **n == number).map(|(state, _)| format!("{state:?}"));
            Verdict::Stuck { state: stuck.unwrap_or_default() }
        }
    }
}

/// A state from which no settled one can be reached: walks the edges backwards from the settled ones.
fn first_stuck(n_states: usize, mut edges: Vec<(u32, u32)>, settled: Vec<u32>) -> Option<u32> {
    edges.sort_unstable();
    let mut reaches = vec![false; n_states];
    let mut open = settled;
    while let Some(number) = open.pop() {
        if std::mem::replace(&mut reaches[number as usize], true) {
            continue;
        }
        let from = edges.partition_point(|edge| edge.0 < number);
        open.extend(edges[from..].iter().take_while(|edge| edge.0 == number).map(|edge| edge.1));
    }
    reaches.iter().position(|reaches| !reaches).and_then(|number| u32::try_from(number).ok())
}
