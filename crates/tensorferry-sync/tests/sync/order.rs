//! What a waiting thread is told when two things happen, one shortly after the other. Other members change
//! the words of a monitor as docs/WIRE.md says, so these tests do too.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use tensorferry_storage::{Monitor, MonitorView};
use tensorferry_sync::{Barrier, BarrierError, BrokenBy, Event, WaitError};

use crate::{heap, sent};

const LONG: Duration = Duration::from_secs(60);
/// Where the words are read in the wrong order, a few of these show it, or more, as the machine has it.
const N_TURNS: u32 = 20_000;

/// Purposes of monitors, as docs/WIRE.md numbers them.
const EVENT: u64 = 2;
const BARRIER: u64 = 4;
/// The first word of state, which an event sets.
const SET: usize = 0;
/// A barrier has its rounds in the second word of state, and what broke it in the third.
const ROUNDS: usize = 1;
const BROKEN: usize = 2;
const ABORTED: u64 = 3;

/// A monitor, whatever it is used for.
struct Raw<const PURPOSE: u64>(Monitor);

impl<'de, const PURPOSE: u64> Deserialize<'de> for Raw<PURPOSE> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let index = tensorferry_reduce::HandleIndex::deserialize(deserializer)?;
        let received = tensorferry_reduce::take_monitor(index).map_err(D::Error::custom)?;
        received.open(PURPOSE).map(Raw).map_err(D::Error::custom)
    }
}

impl<const PURPOSE: u64> Raw<PURPOSE> {
    fn view(&self) -> MonitorView<'_> {
        self.0.view().unwrap()
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.view().state()[index]
    }
}

/// Spins, so that both threads are in the middle of their work when it ends, but not where the other thread
/// has no processor.
fn spin_until(is_so: impl Fn() -> bool) {
    static HAS_OTHERS: LazyLock<bool> = LazyLock::new(|| available_parallelism().unwrap().get() > 1);
    let start = Instant::now();
    let mut n_looks = 0;
    while !is_so() {
        n_looks += 1;
        if n_looks > 10_000 || !*HAS_OTHERS {
            assert!(start.elapsed() < 2 * LONG, "the other thread has failed");
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

/// Runs `waits` on a thread in each turn, and at the same time `happens` here, which gets a pause that
/// differs from turn to turn. Before each turn `prepare` runs alone.
fn in_turns(prepare: impl Fn(), waits: impl Fn() + Sync, happens: impl Fn(&dyn Fn())) {
    let (begun, done) = (AtomicU32::new(0), AtomicU32::new(0));
    let reaches = |count: &AtomicU32, turn| spin_until(|| count.load(Ordering::SeqCst) >= turn);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 1..=N_TURNS {
                reaches(&begun, turn);
                waits();
                done.store(turn, Ordering::SeqCst);
            }
        });
        for turn in 1..=N_TURNS {
            prepare();
            begun.store(turn, Ordering::SeqCst);
            happens(&|| (0..turn % 64).for_each(|_| std::hint::spin_loop()));
            reaches(&done, turn);
        }
    });
}

#[test]
fn a_round_that_was_completed_before_the_barrier_broke_is_completed() {
    let heap = heap();
    let barrier = Barrier::new_in(&heap, 2).unwrap();
    let raw: Raw<BARRIER> = sent(&heap, &barrier).unwrap();
    let n_wrong = AtomicU32::new(0);
    let waits = || {
        if let Err(error) = barrier.wait_timeout(LONG) {
            assert!(matches!(error, BarrierError::Broken { by: BrokenBy::Abort }), "{error}");
            n_wrong.fetch_add(1, Ordering::SeqCst);
        }
    };
    let happens = |pause: &dyn Fn()| {
        spin_until(|| barrier.n_waiting() > 0);
        pause();
        // The last one comes and ends the round. Then somebody aborts.
        let rounds = raw.word(ROUNDS).load(Ordering::SeqCst);
        let n_ended = (rounds >> 32) + 1;
        raw.word(ROUNDS).store(n_ended << 32 | rounds << 1 & u64::from(u32::MAX), Ordering::SeqCst);
        raw.word(BROKEN).store(ABORTED, Ordering::SeqCst);
        barrier.abort().unwrap(); // wakes
    };
    in_turns(|| barrier.reset().unwrap(), waits, happens);
    assert_eq!(n_wrong.into_inner(), 0, "of {N_TURNS} were told of an abort after their round had ended");
}

#[test]
fn an_event_that_was_set_before_its_setter_died_is_set() {
    let heap = heap();
    let event = Event::new_in(&heap).unwrap();
    let raw: Raw<EVENT> = sent(&heap, &event).unwrap();
    let n_wrong = AtomicU32::new(0);
    let waits = || {
        if let Err(error) = event.wait_timeout(LONG) {
            assert!(matches!(error, WaitError::PeerDied), "{error}");
            n_wrong.fetch_add(1, Ordering::SeqCst);
        }
    };
    let prepare = || {
        event.clear();
        // Told of the last turn's death, so that this turn's is another one.
        let _ = event.wait_timeout(Duration::ZERO);
    };
    let happens = |pause: &dyn Fn()| {
        pause();
        // It is set, and whoever has set it dies and is swept.
        raw.word(SET).store(1, Ordering::SeqCst);
        raw.view().count_death();
        event.set(); // wakes
    };
    in_turns(prepare, waits, happens);
    assert_eq!(n_wrong.into_inner(), 0, "of {N_TURNS} were told of a death although the event was set");
}
