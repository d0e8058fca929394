//! A child that shares locks and the like, and does with them what it is told to.

use std::any::Any;

use serde::{Deserialize, Serialize};
use tensorferry::storage::Heap;
use tensorferry::sync::{
    Barrier, BarrierError, Condition, Event, Lock, LockError, RLock, RawValue, RwLock, Semaphore, WaitError,
};

use crate::{Context, Task};

/// One of each.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Primitives {
    /// Protects the count.
    pub lock: Lock,
    /// Notified when the count has changed.
    pub changed: Condition,
    /// Is changed in two steps, between which others may come.
    pub count: RawValue<u64>,
    /// Free at first.
    pub rlock: RLock,
    /// Free at first.
    pub rw_lock: RwLock,
    /// With two permits.
    pub semaphore: Semaphore,
    /// Not set.
    pub event: Event,
    /// For two.
    pub barrier: Barrier,
}

impl Primitives {
    /// How many blocks they lie in.
    pub const N_BLOCKS: usize = 8;

    /// Makes all of them.
    #[must_use]
    pub fn create(heap: &Heap) -> Self {
        Self {
            lock: Lock::new_in(heap).unwrap(),
            changed: Condition::new_in(heap).unwrap(),
            count: RawValue::new_in(heap, 0).unwrap(),
            rlock: RLock::new_in(heap).unwrap(),
            rw_lock: RwLock::new_in(heap).unwrap(),
            semaphore: Semaphore::new_in(heap, 2).unwrap(),
            event: Event::new_in(heap).unwrap(),
            barrier: Barrier::new_in(heap, 2).unwrap(),
        }
    }
}

/// Does what each line says, and says how it went. What it takes it keeps until it is told to let go.
///
/// | line | answer |
/// | --- | --- |
/// | `lock`, `rlock`, `read`, `write` | `taken`, or `told died` and the like, when it has the lock all the same |
/// | `acquire` | `taken`, a permit |
/// | `let_one_go` | `let one go`, the oldest that it has taken |
/// | `let_go` | `let go` of everything that it has taken |
/// | `add N` | `added` so many to the count, each under the lock, with a notification |
/// | `half` | `half`: has the lock, and the first of the two steps is done |
/// | `await N` | `came`, when the count is so high; waits at the condition |
/// | `set` | `set` the event |
/// | `wait` | `is set`, or the error's name |
/// | `meet` | `met` another one at the barrier, or what broke it |
#[derive(Debug, Serialize, Deserialize)]
pub struct Sharer {
    /// What it shares.
    pub shared: Primitives,
}

impl Task for Sharer {
    const NAME: &'static str = "sharer";

    fn run(self, context: &Context) {
        let shared = self.shared;
        // In the order in which they were taken.
        let mut taken: Vec<Box<dyn Any>> = Vec::new();
        while let Some(command) = context.hear() {
            let (verb, number) = command.split_once(' ').unwrap_or((&command, "0"));
            let number: u64 = number.parse().unwrap();
            context.say("on it");
            let outcome = match verb {
                "lock" => keep(shared.lock.lock(), &mut taken),
                "rlock" => keep(shared.rlock.lock(), &mut taken),
                "read" => keep(shared.rw_lock.read(), &mut taken),
                "write" => keep(shared.rw_lock.write(), &mut taken),
                "acquire" => match shared.semaphore.acquire() {
                    Ok(permit) => {
                        taken.push(Box::new(permit));
                        "taken".to_owned()
                    }
                    Err(error) => name_of_wait(&error),
                },
                "let_one_go" => {
                    drop(taken.remove(0));
                    "let one go".to_owned()
                }
                "let_go" => {
                    taken.clear();
                    "let go".to_owned()
                }
                "add" => {
                    for _ in 0..number {
                        let _guard = shared.lock.lock().unwrap();
                        let before = shared.count.get();
                        std::thread::yield_now();
                        shared.count.set(before + 1);
                        shared.changed.notify_one();
                    }
                    "added".to_owned()
                }
                "half" => {
                    let outcome = keep(shared.lock.lock(), &mut taken);
                    assert_eq!(outcome, "taken");
                    shared.count.set(shared.count.get() + 1);
                    "half".to_owned()
                }
                "await" => {
                    let mut guard = shared.lock.lock().unwrap();
                    match shared.changed.wait_while(&mut guard, || shared.count.get() < number) {
                        Ok(()) => "came".to_owned(),
                        Err(error) => name_of_wait(&error),
                    }
                }
                "set" => {
                    shared.event.set();
                    "set".to_owned()
                }
                "wait" => match shared.event.wait() {
                    Ok(()) => "is set".to_owned(),
                    Err(error) => name_of_wait(&error),
                },
                "meet" => match shared.barrier.wait() {
                    Ok(_) => "met".to_owned(),
                    Err(BarrierError::Broken { by }) => format!("{by:?}"),
                    Err(error) => error.to_string(),
                },
                _ => panic!("what is {command:?}?"),
            };
            context.say(outcome);
        }
    }
}

fn keep<G: Any>(locked: Result<G, LockError<G>>, taken: &mut Vec<Box<dyn Any>>) -> String {
    let (guard, outcome) = match locked {
        Ok(guard) => (guard, "taken".to_owned()),
        Err(LockError::Poisoned { guard, last_owner }) => (guard, format!("told {last_owner}")),
        Err(error) => return error.to_string(),
    };
    taken.push(Box::new(guard));
    outcome
}

fn name_of_wait(error: &WaitError) -> String {
    match error {
        WaitError::PeerDied => "PeerDied".to_owned(),
        WaitError::Poisoned { last_owner } => format!("told {last_owner}"),
        error => error.to_string(),
    }
}
