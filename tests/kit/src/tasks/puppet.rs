//! A child that does one thing after another, as the test tells it.

use serde::{Deserialize, Serialize};
use tensorferry::queue::{GetError, JoinError, Queue, Receiver, Sender};
use tensorferry::tensor::TensorMut;

use crate::{Audit, Context, Item, Task};

/// Puts, gets and holds items on command. A command that begins with `halt` stops the thread first, for a
/// [`Stepper`](crate::Stepper) that runs it. To each command it answers `on it`, and then with the outcome:
///
/// | command | outcome |
/// | --- | --- |
/// | `put SENDER SEQUENCE LENGTHS..`, `try_put ..` | `put`, or the error's name |
/// | `get`, `try_get` | `got SENDER/SEQUENCE`, or the error's name; the item was checked and is held |
/// | `lease` | `leased SENDER/SEQUENCE`, which is never acknowledged, or the error's name |
/// | `pass` | as `put`, with the oldest item that is held |
/// | `make SENDER SEQUENCE LENGTHS..` | `made` an item, which is held |
/// | `try_make LENGTH` | `made` a tensor, which is not held, or the error |
/// | `note LENGTH` | `noted` so many bytes beside the tensors of the last item that is held |
/// | `bundle` | `bundled` the tensors of the last item that is held |
/// | `unbundle` | `unbundled` the tensors of the last item that is held |
/// | `check` | `right`, once every byte of what is held was checked |
/// | `let_go` | `let go` of every item that is held |
/// | `leave` | `left` every queue |
/// | `join` | `joined` the queue that it puts to, or the error |
/// | `close` | `closed` the queue |
/// | `members` | how many members the domain has |
/// | `is_member SLOT` | whether somebody has this slot |
/// | `held` | how many blocks of the domain are held by anybody |
/// | `sum` | the elements of all tensors that are held, added up |
/// | `live` | how many blocks in extents of this process are held by anybody |
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Puppet {
    /// Used where there is no end for one role.
    pub queue: Option<Queue<Item>>,
    /// Where to put.
    pub to: Option<Sender<Item>>,
    /// Where to get.
    pub from: Option<Receiver<Item>>,
}

impl Task for Puppet {
    const NAME: &'static str = "puppet";

    fn run(mut self, context: &Context) {
        let (mut held, mut leases) = (Vec::new(), Vec::new());
        while let Some(command) = context.hear() {
            let mut words = command.split(' ').peekable();
            let halts = words.next_if_eq(&"halt").is_some();
            let verb = words.next().unwrap_or_default();
            let numbers: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
            // Made before the answer, so that the child is inside of the call when it sleeps.
            let made = matches!(verb, "put" | "try_put").then(|| item(context, &numbers));
            context.say("on it");
            if halts {
                nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP).unwrap();
            }
            let outcome = match (verb, made) {
                ("put", Some(item)) => self.put(item, true),
                ("try_put", Some(item)) => self.put(item, false),
                ("pass", _) => self.put(held.remove(0), true),
                ("get", _) => self.get(true, &mut held),
                ("try_get", _) => self.get(false, &mut held),
                ("lease", _) => match self.queue.as_ref().map(Queue::get_leased) {
                    Some(Ok(lease)) => {
                        let outcome = format!("leased {}/{}", lease.sender, lease.sequence);
                        leases.push(lease);
                        outcome
                    }
                    Some(Err(error)) => super::name_of(&error),
                    None => panic!("nowhere to lease from"),
                },
                ("make" | "try_make" | "note" | "bundle" | "unbundle" | "check" | "let_go", _) => {
                    change(context, verb, &numbers, &mut held)
                }
                ("leave", _) => {
                    self = Self::default();
                    "left".to_owned()
                }
                ("join", _) => match self.to.as_ref().map(Sender::join) {
                    Some(Ok(())) => "joined".to_owned(),
                    Some(Err(JoinError::PeerDied)) => "PeerDied".to_owned(),
                    Some(Err(error)) => error.to_string(),
                    None => panic!("nothing to join"),
                },
                ("close", _) => {
                    self.close();
                    "closed".to_owned()
                }
                ("live", _) => {
                    context.heap.collect();
                    context.heap.stats().own.live_blocks.to_string()
                }
                ("members", _) => context.heap.domain().members().len().to_string(),
                ("is_member", _) => {
                    let members = context.heap.domain().members();
                    members.iter().any(|known| u64::from(known.member.slot) == numbers[0]).to_string()
                }
                ("held", _) => {
                    context.heap.collect();
                    Audit::of(context.heap.domain()).live().len().to_string()
                }
                ("sum", _) => held.iter().map(Item::sum).fold(0, u64::wrapping_add).to_string(),
                _ => panic!("what is {command:?}?"),
            };
            context.say(outcome);
        }
    }
}

/// An item of `SENDER SEQUENCE LENGTHS..`.
fn item(context: &Context, numbers: &[u64]) -> Item {
    let lengths: Vec<usize> = numbers[2..].iter().map(|&n| usize::try_from(n).unwrap()).collect();
    Item::new(&context.heap, u32::try_from(numbers[0]).unwrap(), numbers[1], &lengths)
}

/// Changes what is held, or checks it.
fn change(context: &Context, verb: &str, numbers: &[u64], held: &mut Vec<Item>) -> String {
    let length = || usize::try_from(numbers[0]).unwrap();
    match verb {
        "make" => {
            held.push(item(context, numbers));
            "made".to_owned()
        }
        "try_make" => match TensorMut::<u64>::empty_in(&context.heap, [length()]) {
            Ok(_) => "made".to_owned(),
            Err(error) => error.to_string(),
        },
        "note" => {
            let last = held.pop().unwrap();
            held.push(last.with_note(length()));
            "noted".to_owned()
        }
        "bundle" => {
            let last = held.pop().unwrap();
            held.push(last.bundled(&context.heap));
            "bundled".to_owned()
        }
        "unbundle" => {
            let last = held.pop().unwrap();
            held.push(last.unbundled());
            "unbundled".to_owned()
        }
        "check" => {
            held.iter().for_each(Item::check);
            "right".to_owned()
        }
        "let_go" => {
            held.clear();
            "let go".to_owned()
        }
        _ => panic!("what is {verb:?}?"),
    }
}

impl Puppet {
    fn put(&self, item: Item, wait: bool) -> String {
        let outcome = match (&self.to, &self.queue, wait) {
            (Some(to), _, true) => to.put(item),
            (Some(to), _, false) => to.put_nowait(item),
            (None, Some(queue), true) => queue.put(item),
            (None, Some(queue), false) => queue.put_nowait(item),
            (None, None, _) => panic!("nowhere to put"),
        };
        match outcome {
            Ok(()) => "put".to_owned(),
            Err(refused) => {
                refused.value.check();
                super::name_of_put(&refused.kind)
            }
        }
    }

    fn get(&self, wait: bool, held: &mut Vec<Item>) -> String {
        let outcome = match (&self.from, &self.queue, wait) {
            (Some(from), _, true) => from.get(),
            (Some(from), _, false) => from.get_nowait(),
            (None, Some(queue), true) => queue.get(),
            (None, Some(queue), false) => queue.get_nowait(),
            (None, None, _) => panic!("nowhere to get"),
        };
        match outcome {
            Ok(item) => {
                item.check();
                let outcome = format!("got {}/{}", item.sender, item.sequence);
                held.push(item);
                outcome
            }
            Err(GetError::Decode(error)) => format!("Decode: {error}"),
            Err(error) => super::name_of(&error),
        }
    }

    fn close(&self) {
        match (&self.queue, &self.to, &self.from) {
            (Some(queue), ..) => queue.close(),
            (_, Some(to), _) => to.close(),
            (.., Some(from)) => from.close(),
            _ => panic!("nothing to close"),
        }
    }
}
