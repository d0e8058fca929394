//! A child that leases items and deals with them when it is told to.

use serde::{Deserialize, Serialize};
use tensorferry::queue::{GetError, Lease, Queue};

use crate::{Context, Item, Task};

/// Does what each line says, and says how it went. A line that begins with `halt` stops the child before.
///
/// | line | answer |
/// | --- | --- |
/// | `put SENDER SEQUENCE LENGTHS..` | `put` |
/// | `lease`, `try_lease` | `leased SENDER/SEQUENCE DELIVERIES`, or the error; the item was checked |
/// | `get`, `try_get` | `got SENDER/SEQUENCE`, or the error; the item was checked and is let go |
/// | `ack` | `acked SENDER/SEQUENCE`, the oldest that is leased |
/// | `give_back` | `gave back` the oldest that is leased |
/// | `close` | `closed` the queue |
/// | `join` | `joined` the queue, or the error |
#[derive(Debug, Serialize, Deserialize)]
pub struct Lessee {
    /// From where.
    pub queue: Queue<Item>,
}

impl Task for Lessee {
    const NAME: &'static str = "lessee";

    fn run(self, context: &Context) {
        let queue = self.queue;
        let mut leases: Vec<Lease<Item>> = Vec::new();
        while let Some(command) = context.hear() {
            let mut words = command.split(' ').peekable();
            let halts = words.next_if_eq(&"halt").is_some();
            let verb = words.next().unwrap_or_default();
            let numbers: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
            context.say("on it");
            if halts {
                nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP).unwrap();
            }
            let outcome = match verb {
                "put" => {
                    let lengths: Vec<usize> =
                        numbers[2..].iter().map(|&n| usize::try_from(n).unwrap()).collect();
                    let sender = u32::try_from(numbers[0]).unwrap();
                    queue.put(Item::new(&context.heap, sender, numbers[1], &lengths)).unwrap();
                    "put".to_owned()
                }
                "lease" => leased(queue.get_leased(), &mut leases),
                "try_lease" => leased(queue.get_leased_nowait(), &mut leases),
                "get" => got(queue.get()),
                "try_get" => got(queue.get_nowait()),
                "ack" => {
                    let item = leases.remove(0).ack().unwrap();
                    item.check();
                    format!("acked {}/{}", item.sender, item.sequence)
                }
                "give_back" => {
                    leases.remove(0).give_back();
                    "gave back".to_owned()
                }
                "join" => match queue.join() {
                    Ok(()) => "joined".to_owned(),
                    Err(error) => error.to_string(),
                },
                "close" => {
                    queue.close();
                    "closed".to_owned()
                }
                _ => panic!("what is {command:?}?"),
            };
            context.say(outcome);
        }
    }
}

fn leased(outcome: Result<Lease<Item>, GetError>, leases: &mut Vec<Lease<Item>>) -> String {
    match outcome {
        Ok(lease) => {
            lease.check();
            let outcome = format!("leased {}/{} {}", lease.sender, lease.sequence, lease.deliveries());
            leases.push(lease);
            outcome
        }
        Err(error) => super::name_of(&error),
    }
}

fn got(outcome: Result<Item, GetError>) -> String {
    match outcome {
        Ok(item) => {
            item.check();
            format!("got {}/{}", item.sender, item.sequence)
        }
        Err(error) => super::name_of(&error),
    }
}
