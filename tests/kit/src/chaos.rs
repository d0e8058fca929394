//! Producers, forwarders and consumers that are killed at random moments, and what must hold all the same.
//!
//! Every producer counts in shared memory what it has put, every consumer marks there what it got. A message
//! is promised once `put` has returned and got by exactly one process; so the only ones that may be missing
//! are those that a forwarder or consumer had in its hands when it was killed, at most one for each kill.

use serde::{Deserialize, Serialize};
use tensorferry::queue::{GetError, Receiver, Sender, channel_in};
use tensorferry::tensor::SharedTensor;

use crate::{Child, Context, Family, Item, Random, Task, until};

/// No producer puts more.
const MAX_ITEMS: usize = 4_000;
const CAPACITY_ITEMS: usize = 5;

/// Kills and replaces children for so many rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Chaos {
    /// How many rounds.
    pub n_rounds: u64,
    /// Where the random numbers start.
    pub seed: u64,
}

/// Says `done`, or fails. For a child that joined somebody else's domain.
impl Task for Chaos {
    const NAME: &'static str = "chaos";

    fn run(self, context: &Context) {
        let family = Family::of(&context.heap);
        self.rage(&family);
        family.wait_alone();
        family.wait_no_blocks();
        context.say("done");
    }
}

/// What producers and consumers note down in shared memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ledger {
    /// How many items each producer has put.
    n_put: SharedTensor<i64>,
    /// How often each item of each producer came, by producer and sequence.
    came: SharedTensor<i32>,
    /// How many items came in all.
    n_came: SharedTensor<i64>,
}

/// Puts items until it is killed, or until it has put as many as the ledger has room for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ChaosProducer {
    to: Sender<Item>,
    ledger: Ledger,
    sender: u32,
}

impl Task for ChaosProducer {
    const NAME: &'static str = "chaos-producer";

    fn run(self, context: &Context) {
        for sequence in 0..MAX_ITEMS as u64 {
            let n_elements = usize::try_from(sequence % 200).unwrap();
            // Every tenth one does not fit into a slot.
            let note_len_bytes = if sequence.is_multiple_of(10) { 1000 } else { 5 };
            let item = Item::new(&context.heap, self.sender, sequence, &[n_elements, 7]);
            self.to.put(item.with_note(note_len_bytes)).unwrap();
            self.ledger.n_put.store([usize::try_from(self.sender).unwrap()], sequence as i64 + 1).unwrap();
        }
        let _ = context.hear();
    }
}

/// Passes items on until no more can come.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ChaosForwarder {
    from: Receiver<Item>,
    to: Sender<Item>,
}

impl Task for ChaosForwarder {
    const NAME: &'static str = "chaos-forwarder";

    fn run(self, _: &Context) {
        let mut all = self.from.iter();
        for item in all.by_ref() {
            self.to.put(item).unwrap();
        }
        assert_end(all.end());
    }
}

/// Checks and marks items until no more can come.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ChaosConsumer {
    from: Receiver<Item>,
    ledger: Ledger,
}

impl Task for ChaosConsumer {
    const NAME: &'static str = "chaos-consumer";

    fn run(self, _: &Context) {
        let mut all = self.from.iter();
        for item in all.by_ref() {
            item.check();
            let at = [usize::try_from(item.sender).unwrap(), usize::try_from(item.sequence).unwrap()];
            self.ledger.came.fetch_add(at, 1).unwrap();
            self.ledger.n_came.fetch_add([0], 1).unwrap();
        }
        assert_end(all.end());
    }
}

/// It is over when all senders are gone, one way or the other, and for no other reason.
fn assert_end(end: Option<&GetError>) {
    assert!(matches!(end, Some(GetError::Disconnected | GetError::PeerDied)), "{end:?}");
}

/// The cast of one run.
struct Cast<'a> {
    family: &'a Family,
    ledger: Ledger,
    first: (Sender<Item>, Receiver<Item>),
    second: (Sender<Item>, Receiver<Item>),
    n_producers: u32,
}

struct Producer {
    sender: u32,
    child: Child,
}

impl Cast<'_> {
    fn producer(&mut self) -> Producer {
        self.n_producers += 1;
        let (to, ledger, sender) = (self.first.0.clone(), self.ledger.clone(), self.n_producers - 1);
        Producer { sender, child: self.family.start(ChaosProducer { to, ledger, sender }) }
    }

    fn is_exhausted(&self, producer: &Producer) -> bool {
        let at = [usize::try_from(producer.sender).unwrap()];
        self.ledger.n_put.load(at).unwrap() == MAX_ITEMS as i64
    }

    fn forwarder(&self) -> Child {
        self.family.start(ChaosForwarder { from: self.first.1.clone(), to: self.second.0.clone() })
    }

    fn consumer(&self) -> Child {
        self.family.start(ChaosConsumer { from: self.second.1.clone(), ledger: self.ledger.clone() })
    }

    fn n_came(&self) -> i64 {
        self.ledger.n_came.load([0]).unwrap()
    }
}

impl Chaos {
    /// Runs it in `family` and checks that nothing was lost or doubled.
    pub fn rage(&self, family: &Family) {
        let mut random = Random::from_seed(self.seed);
        // A round replaces at most two.
        let max_producers = usize::try_from(self.n_rounds).unwrap() * 2 + 2;
        let heap = family.heap();
        let mut cast = Cast {
            family,
            ledger: Ledger {
                n_put: SharedTensor::zeros_in(heap, [max_producers]).unwrap(),
                came: SharedTensor::zeros_in(heap, [max_producers, MAX_ITEMS]).unwrap(),
                n_came: SharedTensor::zeros_in(heap, [1]).unwrap(),
            },
            first: channel_in(heap, CAPACITY_ITEMS).unwrap(),
            second: channel_in(heap, CAPACITY_ITEMS).unwrap(),
            n_producers: 0,
        };
        let mut producers = vec![cast.producer(), cast.producer()];
        let mut forwarders = vec![cast.forwarder(), cast.forwarder()];
        let mut consumers = vec![cast.consumer(), cast.consumer()];
        let mut n_hands_killed = 0;
        for round in 0..self.n_rounds {
            // The moment is an amount of work, so that it does not depend on how fast the machine is.
            let goal = cast.n_came() + i64::try_from(random.below(60)).unwrap();
            until(&format!("messages flow in round {round}"), || {
                let mut standing = producers.iter().map(|p| &p.child).chain(&forwarders).chain(&consumers);
                assert!(standing.all(Child::is_alive), "nobody ends before it is killed");
                cast.n_came() >= goal || producers.iter().any(|producer| cast.is_exhausted(producer))
            });
            for _ in 0..1 + random.below(3) {
                let index = usize::try_from(random.below(2)).unwrap();
                let (victim, has_hands) = match random.below(3) {
                    0 => (remove(&mut producers, index).map(|producer| producer.child), false),
                    1 => (remove(&mut forwarders, index), true),
                    _ => (remove(&mut consumers, index), true),
                };
                if let Some(victim) = victim {
                    if random.below(4) == 0 {
                        victim.stop();
                    }
                    victim.kill();
                    n_hands_killed += i64::from(has_hands);
                }
            }
            while let Some(index) = producers.iter().position(|producer| cast.is_exhausted(producer)) {
                producers.remove(index).child.finish();
            }
            while producers.len() < 2 {
                producers.push(cast.producer());
            }
            while forwarders.len() < 2 {
                forwarders.push(cast.forwarder());
            }
            while consumers.len() < 2 {
                consumers.push(cast.consumer());
            }
        }
        producers.into_iter().for_each(|producer| producer.child.kill());
        let Cast { ledger, first, second, n_producers, .. } = cast;
        drop((first, second));
        forwarders.into_iter().chain(consumers).for_each(Child::finish);
        ledger.check(n_producers, n_hands_killed);
    }
}

fn remove<T>(group: &mut Vec<T>, index: usize) -> Option<T> {
    (index < group.len()).then(|| group.remove(index))
}

impl Ledger {
    fn check(&self, n_producers: u32, n_hands_killed: i64) {
        let (put, came) = (self.n_put.to_vec(), self.came.to_vec());
        let (mut n_put, mut n_missing) = (0, 0);
        for sender in 0..usize::try_from(n_producers).unwrap() {
            let promised = usize::try_from(put[sender]).unwrap();
            n_put += promised;
            for (sequence, &times) in came[sender * MAX_ITEMS..][..MAX_ITEMS].iter().enumerate() {
                assert!(times <= 1, "item {sender}/{sequence} came {times} times");
                // The next one may have been put without its producer living to note it down.
                assert!(times == 0 || sequence <= promised, "item {sender}/{sequence} of {promised} came");
                n_missing += i64::from(times == 0 && sequence < promised);
            }
        }
        assert!(n_missing <= n_hands_killed, "{n_missing} of {n_put} missing after {n_hands_killed} kills");
        assert!(n_put > 0);
    }
}
