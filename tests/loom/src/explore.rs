//! How a model is run.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::atomic::{Weakening, weaken};

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug)]
pub enum Weakened {
    /// Nothing.
    Nothing,
    /// These accesses are relaxed, these fences are not there.
    Orderings(Weakening),
    /// A holder clears its bit before it marks the block as returned.
    ClearsBeforeMark,
}

/// What a run has shown.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How many executions there were.
    pub n_executions: usize,
    /// Before how many accesses a process was killed, each in every execution; 0 without kills.
    pub n_positions: usize,
    /// What failed first.
    pub failure: Option<String>,
}

thread_local! {
    static CLEARS_FIRST: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn clears_first() -> bool {
    CLEARS_FIRST.get()
}

/// Runs a model in every way with at most so many preemptions in one execution, as loom counts them. A wait
/// that blocks is none.
pub(crate) fn explore(
    n_preemptions: u8,
    weakened: Weakened,
    model: impl Fn() + Send + Sync + 'static,
) -> Outcome {
    let n_executions = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&n_executions);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(n_preemptions.into());
    builder.max_branches = 20_000;
    weaken(if let Weakened::Orderings(weakening) = weakened { Some(weakening) } else { None });
    CLEARS_FIRST.set(matches!(weakened, Weakened::ClearsBeforeMark));
    let run = catch_unwind(AssertUnwindSafe(|| {
        builder.check(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            model();
        });
    }));
    weaken(None);
    CLEARS_FIRST.set(false);
    let text = |payload: Box<dyn std::any::Any + Send>| {
        let borrowed = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        borrowed.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
    };
    Outcome {
        n_executions: n_executions.load(Ordering::Relaxed),
        n_positions: 0,
        failure: run.err().map(text),
    }
}

/// Runs a model in every way, with its victim killed before its first access, then before its second, and so
/// on until it lives in every execution. The model is told where to kill and says whether it did.
pub(crate) fn explore_kills(
    n_preemptions: u8,
    weakened: Weakened,
    model: impl Fn(usize) -> bool + Copy + Send + Sync + 'static,
) -> Outcome {
    let mut all = Outcome::default();
    loop {
        let any_killed = Arc::new(AtomicBool::new(false));
        let killed = Arc::clone(&any_killed);
        let position = all.n_positions;
        let outcome = explore(n_preemptions, weakened, move || {
            if model(position) {
                killed.store(true, Ordering::Relaxed);
            }
        });
        all.n_executions += outcome.n_executions;
        all.failure = outcome.failure.map(|failure| format!("killed before access {position}: {failure}"));
        if all.failure.is_some() || !any_killed.load(Ordering::Relaxed) {
            return all;
        }
        all.n_positions += 1;
    }
}
