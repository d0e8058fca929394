//! How long to spin before sleeping.
//!
//! A spinning receiver answers in a cache line's travel time; a sleeping one costs a wake-up, tens of
//! microseconds on a virtual machine. Spinning pays only while the other side really runs on another
//! processor. The budget is therefore zero where the machine has only one processor (not where a quota allows no more: two
//! processes that spin for each other use it up several times as well as two that sleep, docs/bench/NOTES.md), and it adapts: a spin that
//! was rewarded doubles it, one that was not halves it (the rule is after folly's adaptive spinning, which
//! also measures time and not loop counts, because PAUSE takes 15 times longer on some processors).
//!
//! That rule alone has a second stable state: when both sides sleep, each waits for the other's wake-up, which is longer
//! than a small budget, and no spin is ever rewarded again. So one spin in a few has the whole budget, whatever the last
//! ones came to.

use std::hint::spin_loop;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tensorferry_os::limits;

const MAX_NS: u32 = 50_000;
const MIN_NS: u32 = 2_000;
/// One spin in so many has the whole budget: dear enough to be seldom, often enough that a stall is soon forgotten.
const PROBE_EVERY: u32 = 16;

/// An adaptive budget; one per waiting side of a queue, private to the process.
#[derive(Debug)]
pub struct Spin {
    budget_ns: AtomicU32,
    n_spins: AtomicU32,
}

impl Default for Spin {
    fn default() -> Self {
        Self { budget_ns: AtomicU32::new(MAX_NS), n_spins: AtomicU32::new(0) }
    }
}

impl Spin {
    /// Calls `look` until it finds something or the budget is used up.
    pub fn until<R>(&self, mut look: impl FnMut() -> Option<R>) -> Option<R> {
        if !spinning_pays() {
            return look();
        }
        let learnt_ns = self.budget_ns.load(Ordering::Relaxed);
        let budget_ns = if self.is_probe() { MAX_NS } else { learnt_ns };
        let budget = Duration::from_nanos(u64::from(budget_ns));
        let start = Instant::now();
        loop {
            // The clock costs about as much as a look, so it is read once in a few looks.
            for _ in 0..16 {
                if let Some(found) = look() {
                    self.budget_ns.store(budget_ns.saturating_mul(2).min(MAX_NS), Ordering::Relaxed);
                    return Some(found);
                }
                spin_loop();
            }
            if start.elapsed() >= budget {
                self.budget_ns.store((learnt_ns / 2).max(MIN_NS), Ordering::Relaxed);
                return None;
            }
        }
    }

    /// Whether the next spin has the whole budget, whatever was learnt.
    fn is_probe(&self) -> bool {
        self.n_spins.fetch_add(1, Ordering::Relaxed) % PROBE_EVERY == PROBE_EVERY - 1
    }
}

fn spinning_pays() -> bool {
    static PAYS: OnceLock<bool> = OnceLock::new();
    *PAYS.get_or_init(limits::others_run_beside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_shrinks_without_reward_and_grows_with_it() {
        let spin = Spin::default();
        for _ in 0..10 {
            assert_eq!(spin.until(|| None::<()>), None);
        }
        if spinning_pays() {
            assert_eq!(spin.budget_ns.load(Ordering::Relaxed), MIN_NS);
            assert_eq!(spin.until(|| Some(1)), Some(1));
            assert_eq!(spin.budget_ns.load(Ordering::Relaxed), 2 * MIN_NS);
        }
    }

    #[test]
    fn one_spin_in_a_few_is_a_probe_and_a_reward_found_by_it_is_learnt() {
        let spin = Spin::default();
        let probes: Vec<_> = (0..2 * PROBE_EVERY).filter(|_| spin.is_probe()).collect();
        assert_eq!(probes, [PROBE_EVERY - 1, 2 * PROBE_EVERY - 1]);
        if spinning_pays() {
            spin.budget_ns.store(MIN_NS, Ordering::Relaxed);
            spin.n_spins.store(PROBE_EVERY - 1, Ordering::Relaxed);
            assert_eq!(spin.until(|| Some(1)), Some(1));
            assert_eq!(spin.budget_ns.load(Ordering::Relaxed), MAX_NS);
        }
    }
}
