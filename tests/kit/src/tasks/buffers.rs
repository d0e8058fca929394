//! Buffers that go round.

use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};
use tensorferry::queue::Queue;
use tensorferry::storage::Heap;
use tensorferry::tensor::{Tensor, TensorMut};

use crate::{Context, Task};

/// What a process has used up so far. In a steady state none of it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// How often fresh memory was populated.
    pub populate_calls: u64,
    /// Blocks in extents of the process that somebody holds.
    pub live_blocks: u64,
    /// Bytes that the process keeps populated.
    pub populated_bytes: u64,
    /// Pages that it touched for the first time (getrusage(2)).
    pub minor_faults: i64,
}

impl Spent {
    /// Checks that nothing was spent since `before`.
    #[track_caller]
    pub fn assert_nothing_since(&self, before: &Self) {
        let faults = self.minor_faults - before.minor_faults;
        assert!(faults <= MAX_STRAY_FAULTS, "{faults} pages were touched for the first time");
        assert_eq!(Self { minor_faults: before.minor_faults, ..*self }, *before);
    }

    /// Looks now.
    #[must_use]
    pub fn by(heap: &Heap) -> Self {
        let own = heap.stats().own;
        Self {
            populate_calls: own.populate_calls,
            live_blocks: own.live_blocks,
            populated_bytes: own.populated_bytes,
            minor_faults: getrusage(UsageWho::RUSAGE_SELF).unwrap().minor_page_faults(),
        }
    }
}

/// A process may run code for the first time at any moment, a way through a wait that it had not taken yet
/// for example, and touches a page of the program then. A buffer that was not used before would cost many
/// more.
const MAX_STRAY_FAULTS: i64 = 8;

/// A buffer on its way, with the number of the round that it was filled in.
#[derive(Debug, Serialize, Deserialize)]
pub struct Filled {
    /// Who filled it.
    pub sender: u64,
    /// When.
    pub round: u64,
    /// Every element is `sender << 32 | round`.
    pub buffer: TensorMut<u64>,
}

impl Filled {
    fn fill(sender: u64, round: u64, mut buffer: TensorMut<u64>) -> Self {
        buffer.as_mut_slice().fill(sender << 32 | round);
        Self { sender, round, buffer }
    }

    /// The buffer, after a look at its contents.
    #[track_caller]
    pub fn into_checked(mut self) -> TensorMut<u64> {
        let expected = self.sender << 32 | self.round;
        assert!(self.buffer.as_slice().iter().all(|&element| element == expected));
        self.buffer
    }
}

/// Fills buffers that come back from the receiver and sends them again. On command:
///
/// - `make N`: makes so many buffers and sends them;
/// - `round N`: so many times, waits for a buffer, fills it and sends it;
/// - `spent`: says [`Spent`] as JSON.
///
/// The first two are answered with `done`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Refiller {
    /// The number of this sender.
    pub sender: u64,
    /// How many elements a buffer has.
    pub n_elements: usize,
    /// Where filled buffers go.
    pub filled: Queue<Filled>,
    /// Where they come back.
    pub returned: Queue<TensorMut<u64>>,
}

impl Task for Refiller {
    const NAME: &'static str = "refiller";

    fn run(self, context: &Context) {
        let mut round = 0;
        while let Some(command) = context.hear() {
            let (verb, number) = command.split_once(' ').unwrap_or((&command, "0"));
            for _ in 0..number.parse().unwrap() {
                let buffer = match verb {
                    "make" => TensorMut::empty_in(&context.heap, [self.n_elements]).unwrap(),
                    _ => self.returned.get().unwrap(),
                };
                self.filled.put(Filled::fill(self.sender, round, buffer)).unwrap();
                round += 1;
            }
            match verb {
                "spent" => {
                    context.heap.collect();
                    context.say(serde_json::to_string(&Spent::by(&context.heap)).unwrap());
                }
                _ => context.say("done"),
            }
        }
    }
}

/// Makes a new tensor for each round, sends it frozen, and drops its own handle. Commands as [`Refiller`],
/// without `make`; so memory is reused only if what the receiver dropped comes back to its owner.
#[derive(Debug, Serialize, Deserialize)]
pub struct Streamer {
    /// How many elements a tensor has.
    pub n_elements: usize,
    /// Where they go.
    pub to: Queue<Tensor<u64>>,
}

impl Task for Streamer {
    const NAME: &'static str = "streamer";

    fn run(self, context: &Context) {
        while let Some(command) = context.hear() {
            let (verb, number) = command.split_once(' ').unwrap_or((&command, "0"));
            for round in 0..number.parse().unwrap() {
                let mut tensor = TensorMut::empty_in(&context.heap, [self.n_elements]).unwrap();
                tensor.as_mut_slice().fill(round);
                self.to.put(tensor.freeze()).unwrap();
            }
            match verb {
                "spent" => {
                    context.heap.collect();
                    context.say(serde_json::to_string(&Spent::by(&context.heap)).unwrap());
                }
                _ => context.say("done"),
            }
        }
    }
}
