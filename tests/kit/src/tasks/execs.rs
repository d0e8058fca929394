//! A child that becomes another program.
#![expect(clippy::disallowed_methods, reason = "becomes another program, which is the point")]

use std::os::unix::process::CommandExt;
use std::process::Command;

use serde::{Deserialize, Serialize};
use tensorferry::queue::Queue;

use crate::{Context, Item, Task};

/// Puts an item, gets another one and holds it, says `ready`, and when it is told anything becomes `tail`,
/// which stays until it is killed.
#[derive(Debug, Serialize, Deserialize)]
pub struct Execs {
    /// To which queue.
    pub queue: Queue<Item>,
}

impl Task for Execs {
    const NAME: &'static str = "execs";

    fn run(self, context: &Context) {
        self.queue.put(Item::new(&context.heap, 1, 0, &[100])).unwrap();
        let held = self.queue.get().unwrap();
        self.queue.put(Item::new(&context.heap, 1, 1, &[100])).unwrap();
        context.say("ready");
        let _ = context.hear();
        let error = Command::new("tail").args(["-f", "/dev/null"]).exec();
        panic!("{error}, with {held:?}");
    }
}
