//! The children of a soak. Each ends when the director says anything, or when nothing can come any more.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tensorferry::queue::{GetError, Receiver, Sender};
use tensorferry::tensor::SharedTensor;

use super::books::{Hand, Ledger, MAX_ITEMS};
use crate::{Context, Item, Random, Task};

/// How long a taker waits before it looks whether it should leave.
const LOOK: Duration = Duration::from_millis(20);

/// What travels: an item, and where to mark that it came.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Message {
    item: Item,
    came: SharedTensor<u8>,
}

/// Puts items of random sizes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SoakProducer {
    pub(super) to: Sender<Message>,
    pub(super) ledger: Ledger,
    pub(super) sender: u32,
    pub(super) random_seed: u64,
}

impl Task for SoakProducer {
    const NAME: &'static str = "soak-producer";

    fn run(self, context: &Context) {
        let mut random = Random::from_seed(self.random_seed);
        for sequence in 0..MAX_ITEMS {
            if context.link.has_more() {
                return;
            }
            let n_tensors = random.below(4);
            let lengths: Vec<usize> = (0..n_tensors).map(|_| random_length(&mut random)).collect();
            let item = Item::new(&context.heap, self.sender, sequence as u64, &lengths);
            // Every eighth does not fit into a slot.
            let item = item.with_note(if random.below(8) == 0 { 1000 } else { 5 });
            self.to.put(Message { item, came: self.ledger.came.clone() }).unwrap();
            self.ledger.note_put(sequence + 1);
        }
    }
}

/// Mostly small, now and then larger than any slab's block.
fn random_length(random: &mut Random) -> usize {
    let most = 1 << random.below(14);
    usize::try_from(random.below(most)).unwrap()
}

/// Passes items on.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SoakForwarder {
    pub(super) from: Receiver<Message>,
    pub(super) to: Sender<Message>,
    pub(super) hand: Hand,
}

impl Task for SoakForwarder {
    const NAME: &'static str = "soak-forwarder";

    fn run(self, context: &Context) {
        take_all(&self.from, &self.hand, context, |message| self.to.put(message).unwrap());
    }
}

/// Checks and marks items.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SoakConsumer {
    pub(super) from: Receiver<Message>,
    pub(super) hand: Hand,
    /// How many came in all.
    pub(super) n_came: SharedTensor<i64>,
}

impl Task for SoakConsumer {
    const NAME: &'static str = "soak-consumer";

    fn run(self, context: &Context) {
        take_all(&self.from, &self.hand, context, |Message { item, came }| {
            came.fetch_add([usize::try_from(item.sequence).unwrap()], 1).unwrap();
            self.n_came.fetch_add([0], 1).unwrap();
        });
    }
}

fn take_all(from: &Receiver<Message>, hand: &Hand, context: &Context, mut done_with: impl FnMut(Message)) {
    while !context.link.has_more() {
        match from.get_timeout(LOOK) {
            Ok(message) => {
                hand.take(message.item.sender, message.item.sequence);
                message.item.check();
                done_with(message);
                hand.give_away();
            }
            Err(GetError::Empty) => {}
            Err(GetError::Disconnected | GetError::PeerDied) => return,
            Err(error) => panic!("{error}"),
        }
    }
}
