//! Children that work through many items.

use serde::{Deserialize, Serialize};
use tensorferry::queue::{Connection, Queue, Receiver, Sender, SoleReceiver, channel_in};
use tensorferry::tensor::{SharedTensor, Tensor, TensorMut};

use crate::{Context, Item, Task};

/// Puts items, then leaves the channel and waits for the test to end it. Says `done`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Produce {
    /// Where to.
    pub to: Sender<Item>,
    /// Which sender the items name.
    pub sender: u32,
    /// How many.
    pub n_items: u64,
    /// The lengths of the tensors in each.
    pub lengths: Vec<usize>,
    /// Bytes beside the tensors in each.
    pub note_len_bytes: usize,
}

impl Task for Produce {
    const NAME: &'static str = "produce";

    fn run(self, context: &Context) {
        for sequence in 0..self.n_items {
            let item = Item::new(&context.heap, self.sender, sequence, &self.lengths);
            self.to.put(item.with_note(self.note_len_bytes)).unwrap();
        }
        drop(self.to);
        context.say("done");
        let _ = context.hear();
    }
}

/// What a [`Consume`] got.
#[derive(Debug, Serialize, Deserialize)]
pub struct Heard {
    /// Sender and sequence of each item, in the order in which they came.
    pub items: Vec<(u32, u64)>,
    /// Why no more came.
    pub end: String,
}

/// Gets and checks items until no more can come. Says a [`Heard`].
#[derive(Debug, Serialize, Deserialize)]
pub struct Consume {
    /// Where from.
    pub from: Receiver<Item>,
}

impl Task for Consume {
    const NAME: &'static str = "consume";

    fn run(self, context: &Context) {
        let mut items = Vec::new();
        let mut all = self.from.iter();
        for item in all.by_ref() {
            item.check();
            items.push((item.sender, item.sequence));
        }
        let end = super::name_of(all.end().unwrap());
        context.say(serde_json::to_string(&Heard { items, end }).unwrap());
    }
}

/// Passes on what it gets, untouched, until no more can come. Says how many.
#[derive(Debug, Serialize, Deserialize)]
pub struct Forward {
    /// Where from.
    pub from: Receiver<Item>,
    /// Where to.
    pub to: Sender<Item>,
}

impl Task for Forward {
    const NAME: &'static str = "forward";

    fn run(self, context: &Context) {
        let mut n_items = 0_u64;
        for item in &self.from {
            self.to.put(item).unwrap();
            n_items += 1;
        }
        context.say(n_items.to_string());
    }
}

/// Gets jobs until it gets `None`, and answers each in the queue that came with it. Says how many.
#[derive(Debug, Serialize, Deserialize)]
pub struct Worker {
    /// Items, each with the queue for the sum of its elements.
    pub jobs: Queue<Option<(Item, Queue<u64>)>>,
}

impl Task for Worker {
    const NAME: &'static str = "worker";

    fn run(self, context: &Context) {
        let mut n_jobs = 0_u64;
        while let Some((item, answers)) = self.jobs.get().unwrap() {
            answers.put(item.sum()).unwrap();
            n_jobs += 1;
        }
        context.say(n_jobs.to_string());
    }
}

/// Something to count in.
#[derive(Debug, Serialize, Deserialize)]
pub enum Count {
    /// Memory that everybody adds to.
    Shared(SharedTensor<i64>),
    /// Memory that whoever has it adds to.
    Exclusive(TensorMut<i64>),
}

/// Adds one to every element of what comes and passes it on, until no more can come.
#[derive(Debug, Serialize, Deserialize)]
pub struct Adder {
    /// Where from.
    pub from: Receiver<Count>,
    /// Where to.
    pub to: Sender<Count>,
}

impl Task for Adder {
    const NAME: &'static str = "adder";

    fn run(self, _: &Context) {
        for mut count in &self.from {
            match &mut count {
                Count::Shared(shared) => {
                    for index in 0..shared.n_elements() {
                        shared.fetch_add([index], 1).unwrap();
                    }
                }
                Count::Exclusive(exclusive) => {
                    exclusive.as_mut_slice().iter_mut().for_each(|element| *element += 1);
                }
            }
            self.to.put(count).unwrap();
        }
    }
}

/// Answers each item with the same item, in the channel that came with it. Says `done`.
#[derive(Debug, Serialize, Deserialize)]
pub struct SoleEcho {
    /// Where from, and nobody else.
    pub from: SoleReceiver<(Item, Sender<Item>)>,
    /// How many.
    pub n_items: u64,
}

impl Task for SoleEcho {
    const NAME: &'static str = "sole-echo";

    fn run(mut self, context: &Context) {
        for _ in 0..self.n_items {
            let (item, back) = self.from.get().unwrap();
            item.check();
            back.put(item).unwrap();
        }
        context.say("done");
    }
}

/// Sends back what it receives, until the other end is gone; then tells how many, and how it ended.
#[derive(Debug, Serialize, Deserialize)]
pub struct Partner {
    /// With whom it talks.
    pub connection: Connection<Item>,
}

impl Task for Partner {
    const NAME: &'static str = "partner";

    fn run(mut self, context: &Context) {
        let mut n_items = 0;
        let end = loop {
            match self.connection.recv() {
                Ok(item) => {
                    item.check();
                    self.connection.send(item).unwrap();
                    n_items += 1;
                }
                Err(error) => break super::name_of(&error),
            }
        };
        context.say(format!("{n_items} {end}"));
    }
}

/// Makes a queue, sends it, and lives on.
#[derive(Debug, Serialize, Deserialize)]
pub struct MakeQueue {
    /// Where the queue goes.
    pub back: Sender<Queue<Item>>,
    /// How many items it holds.
    pub maxsize: usize,
}

impl Task for MakeQueue {
    const NAME: &'static str = "make-queue";

    fn run(self, context: &Context) {
        let queue = Queue::new_in(&context.heap, self.maxsize).unwrap();
        self.back.put(queue.clone()).unwrap();
        let _ = context.hear();
    }
}

/// Sends a frozen tensor, says so and waits.
#[derive(Debug, Serialize, Deserialize)]
pub struct SendTensor {
    /// Where the tensor goes.
    pub to: Sender<Tensor<u64>>,
}

impl Task for SendTensor {
    const NAME: &'static str = "send-tensor";

    fn run(self, context: &Context) {
        self.to.put(TensorMut::full_in(&context.heap, [300], 7).unwrap().freeze()).unwrap();
        context.say("sent");
        let _ = context.hear();
    }
}

/// A queue that travels in a queue like itself, or a tensor.
#[derive(Debug, Serialize, Deserialize)]
struct Nested {
    queue: Option<Queue<Nested>>,
    tensor: Option<TensorMut<u64>>,
}

/// Puts a tensor into a queue, that queue into another, and so on; says so, lets go of nothing and waits.
#[derive(Debug, Serialize, Deserialize)]
pub struct Nest {
    /// How many queues.
    pub depth: usize,
    /// How many messages each of them has room for.
    pub maxsize: usize,
}

impl Task for Nest {
    const NAME: &'static str = "nest";

    fn run(self, context: &Context) {
        let tensor = TensorMut::zeros_in(&context.heap, [300]).unwrap();
        let mut nested = Nested { queue: None, tensor: Some(tensor) };
        for _ in 0..self.depth {
            let queue = Queue::new_in(&context.heap, self.maxsize).unwrap();
            queue.put(nested).unwrap();
            nested = Nested { queue: Some(queue), tensor: None };
        }
        context.say("nested");
        let _ = context.hear();
    }
}

/// Makes a channel, sends its two ends through two queues, says so and waits.
#[derive(Debug, Serialize, Deserialize)]
pub struct MakeChannel {
    /// Where the getting end goes.
    pub receivers: Sender<Receiver<u64>>,
    /// Where the putting end goes.
    pub senders: Sender<Sender<u64>>,
}

impl Task for MakeChannel {
    const NAME: &'static str = "make-channel";

    fn run(self, context: &Context) {
        let (sender, receiver) = channel_in(&context.heap, 4).unwrap();
        self.receivers.put(receiver).unwrap();
        self.senders.put(sender).unwrap();
        context.say("made");
        let _ = context.hear();
    }
}
