//! A sweep that is broken off, or stands still, at any moment.

use std::time::{Duration, Instant};

use tensorferry_kit::tasks::{Host, Puppet};
use tensorferry_kit::{Child, Loner, Random, Stepper, alone, until};

use crate::steps::{may_trace, n_places};

/// A domain in which one member begins to sweep another alone, with its sweeping thread under control: a
/// root, a witness and another member that are stopped, a victim, and the sweeper.
struct Sweeping {
    root: Child,
    witness: Child,
    other: Child,
    sweeper: Child,
    stepper: Stepper,
}

impl Sweeping {
    /// Up to where the victim is dead and the sweep can begin. The victim has left two items in the queue,
    /// the second one too long for a slot; the witness holds a third.
    fn prepare() -> Option<Self> {
        let root = Loner::start(&Host::Puppets { maxsize: 4 }, &[]);
        // All others stand still when the victim dies: each looks at all members now and then.
        let [victim, witness, other, sweeper] = [(); 4].map(|()| Loner::start_in::<Puppet>(&root));
        assert_eq!(victim.ask("put 1 0 50"), "put");
        assert_eq!(witness.ask("get"), "got 1/0");
        assert_eq!(victim.ask("put 1 1 50"), "put");
        assert_eq!(victim.ask("make 1 2 50"), "made");
        assert_eq!(victim.ask("note 300"), "noted");
        assert_eq!(victim.ask("pass"), "put");
        assert_eq!(sweeper.ask("members"), "5");
        root.stop();
        let stepper = may_trace(Stepper::interrupt(&sweeper, "tensorferry"))?;
        witness.stop();
        other.stop();
        victim.kill();
        Some(Self { root, witness, other, sweeper, stepper })
    }

    /// About how long a sweep takes.
    fn measure() -> Option<Duration> {
        let Self { root, witness, other, sweeper, stepper } = Self::prepare()?;
        let start = Instant::now();
        stepper.let_run();
        witness.go_on();
        other.go_on();
        until("the victim is swept", || witness.ask("members") == "4");
        let length = start.elapsed();
        println!("a sweep: {length:?}");
        root.go_on();
        [root, witness, other, sweeper].into_iter().for_each(Child::finish);
        Some(length)
    }

    /// Lets the sweep go on to a random place.
    fn go_on(&self, random: &mut Random, length: Duration) {
        let ns = u64::try_from(length.as_nanos()).unwrap();
        self.stepper.run_for(Duration::from_nanos(random.below(ns)));
        self.witness.go_on();
        self.other.go_on();
    }
}

/// Runs the rest of a test with sweeps that stand at random places, and checks that the witness gets these
/// items and that nothing but them is held.
fn at_random_places(rest: impl Fn(Sweeping) -> [Child; 2], items: &[&str]) {
    let mut random = Random::from_environment();
    println!("seed {}", random.seed());
    alone(|| {
        let Some(length) = Sweeping::measure() else { return };
        for _ in 0..20 * n_places() {
            let Some(sweeping) = Sweeping::prepare() else { return };
            sweeping.go_on(&mut random, length);
            let [root, witness] = rest(sweeping);
            for item in items {
                assert_eq!(witness.ask("get"), format!("got {item}"));
            }
            assert_eq!(witness.ask("let_go"), "let go");
            root.go_on();
            // The queue, and the parcel for the last one who came.
            until("memory comes back", || witness.ask("held") == "2");
            [root, witness].into_iter().for_each(Child::finish);
        }
    });
}

#[test]
fn a_sweeper_is_killed_and_the_next_one_finishes_its_sweep() {
    let kill_sweeper = |sweeping: Sweeping| {
        let Sweeping { root, witness, other, sweeper, stepper } = sweeping;
        stepper.kill(sweeper);
        until("both are swept", || witness.ask("members") == "3");
        other.finish();
        [root, witness]
    };
    at_random_places(kill_sweeper, &["1/1", "1/2"]);
}

#[test]
fn a_sweeper_that_stood_still_takes_nothing_that_was_sent_meanwhile() {
    let kill_other = |sweeping: Sweeping| {
        let Sweeping { root, witness, other, sweeper, stepper } = sweeping;
        let is_there = format!("is_member {}", other.member().slot);
        assert_eq!(other.ask("put 2 0 50 60"), "put");
        assert_eq!(other.ask("put 2 1 50 60"), "put");
        other.kill();
        // And the victim with it, if the sweeper has not taken that on yet.
        until("the other is swept", || witness.ask(&is_there) == "false");
        stepper.let_run();
        until("the victim is swept", || witness.ask("members") == "3");
        sweeper.finish();
        [root, witness]
    };
    at_random_places(kill_other, &["1/1", "1/2", "2/0", "2/1"]);
}
