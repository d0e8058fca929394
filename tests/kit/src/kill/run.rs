//! One operation, killed at one position after the other.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use serde::Serialize;
use tensorferry::domain::Domain;
use tensorferry::reduce::Parcel;

use super::cast::Cast;
use super::plan::Struck;
use super::sweeping;
use super::{Operation, Plan};
use crate::{Child, SharedBytes, Stepper, Stop, with_family_of};

/// The name of a domain's thread.
pub(super) const SERVICE_THREAD: &str = "tensorferry";

/// What was tried of one operation.
#[derive(Clone, Debug, Serialize)]
pub struct Coverage {
    /// [`Operation::name`].
    pub operation: &'static str,
    /// Positions at which a child was killed.
    pub positions_covered: u64,
    /// Positions that the operation has.
    pub positions_in_all: u64,
    /// Instructions of the longest run.
    pub instructions: u64,
    /// How long all of it took.
    pub elapsed: Duration,
}

/// Kills children in `operation` and checks what is left each time.
///
/// # Errors
/// EPERM where this process may not trace its children.
///
/// # Panics
/// When something is wrong after a death; what was tried is printed before.
#[track_caller]
pub fn cover(operation: Operation, plan: &mut Plan) -> Result<Coverage, Errno> {
    let start = Instant::now();
    let mut instructions = 0;
    let mut refused = None;
    let (positions_covered, positions_in_all) = plan.carry_out(|position| {
        let struck = match operation {
            Operation::Sweep => sweeping::strike(position, &mut instructions),
            _ => strike(operation, position, &mut instructions),
        };
        struck.unwrap_or_else(|errno| {
            refused = Some(errno);
            Struck { position: 0, done: true }
        })
    });
    if let Some(errno) = refused {
        return Err(errno);
    }
    let elapsed = start.elapsed();
    Ok(Coverage { operation: operation.name(), positions_covered, positions_in_all, instructions, elapsed })
}

/// A child that is about to begin, with its threads under control.
struct Victim {
    child: Child,
    main: Stepper,
    services: Vec<Stepper>,
    /// Its arguments, while it may not have opened them.
    _parcel: Option<Parcel>,
}

/// Kills one child at this position, or at the last one there is. Every child gets a domain of its own: what
/// the one before has left would change the way of the next.
fn strike(operation: Operation, position: u64, instructions: &mut u64) -> Result<Struck, Errno> {
    let mut outcome = Ok(Struck { position: 0, done: true });
    // Small, so that all of it can be looked at after each instruction.
    let settings = Domain::builder().address_space_bytes(32 << 20).limit_bytes(16 << 20);
    with_family_of(settings, |family| {
        let cast = Cast::new(family, operation);
        outcome = strike_among(&cast, operation, position, instructions);
        cast.leave();
    });
    outcome
}

fn strike_among(
    cast: &Cast<'_>,
    operation: Operation,
    position: u64,
    instructions: &mut u64,
) -> Result<Struck, Errno> {
    let victim = Victim::prepare(cast, operation)?;
    let domain = cast.family.heap().domain();
    let mut shared = SharedBytes::of(domain, domain.layout());
    let struck = run_to(position, &victim.main, &mut shared, instructions, |_| victim.child.has_spoken());
    // Its descriptor is none that the check may find.
    drop(shared);
    let announced = Announced { operation, struck };
    if operation == Operation::GetStandingStill {
        victim.stand_still(cast);
    } else {
        victim.kill();
        cast.unfreeze();
        cast.check_death(operation, struck.done);
    }
    drop(announced);
    Ok(struck)
}

/// Runs a thread to a position, counting from its next instruction.
pub(super) fn run_to(
    position: u64,
    thread: &Stepper,
    shared: &mut SharedBytes,
    instructions: &mut u64,
    mut done: impl FnMut(&SharedBytes) -> bool,
) -> Struck {
    let (mut n_events, mut n_instructions) = (0, 0);
    let mut is_done = false;
    while n_events < position && !is_done {
        is_done = thread.step_to_event(shared, &mut n_instructions, &mut done) == Stop::Done;
        n_events += 1;
    }
    *instructions = (*instructions).max(n_instructions);
    Struck { position: n_events, done: is_done }
}

impl Victim {
    fn prepare(cast: &Cast<'_>, operation: Operation) -> Result<Self, Errno> {
        if operation == Operation::Join {
            let (child, parcel, main) = cast.family.start_halted(cast.subject(operation))?;
            cast.freeze(operation);
            return Ok(Self { child, main, services: Vec::new(), _parcel: Some(parcel) });
        }
        cast.greet(operation);
        let child = cast.family.start(cast.subject(operation));
        child.expect("warm");
        child.say(cast.set(operation, &child));
        child.expect("ready");
        cast.freeze(operation);
        let services = Stepper::interrupt_polling(&child, SERVICE_THREAD)?;
        let main = Stepper::seize(&child)?;
        child.say("go");
        main.wait_until_halted();
        Ok(Self { child, main, services, _parcel: None })
    }

    fn kill(self) {
        kill(self.child, self.services);
    }

    /// Stands still while the others go on, and goes on then. Between them they get each message once.
    fn stand_still(self, cast: &Cast<'_>) {
        let n_taken = cast.go_on_meanwhile();
        self.services.into_iter().for_each(Stepper::let_run);
        self.main.let_run();
        let outcome = self.child.hear();
        assert_eq!(outcome, if n_taken == 2 { "found nothing" } else { "got" });
        self.child.finish();
        cast.check_end();
    }
}

/// Kills a child of which these threads are traced beside the first.
pub(super) fn kill(child: Child, traced: Vec<Stepper>) {
    child.signal(Signal::SIGKILL);
    // A process is not gone before its tracer has seen all of its threads go.
    traced.into_iter().for_each(Stepper::wait_gone);
    child.kill();
}

/// Says where a child was killed when what follows fails.
pub(super) struct Announced {
    pub(super) operation: Operation,
    pub(super) struck: Struck,
}

impl Drop for Announced {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Struck { position, done } = self.struck;
            let when = if done { ", its last" } else { "" };
            let text = format!("killed in {} at position {position}{when}\n", self.operation.name());
            let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
        }
    }
}
