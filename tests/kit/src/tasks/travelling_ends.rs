//! Children that handle ends of channels which travel in messages.

use serde::{Deserialize, Serialize};
use tensorferry::queue::{Receiver, Sender, channel_in};

use crate::{Context, Item, Task};

/// Makes a channel, and sends its receiver to one place and its only sender to another. Says `passed`, and
/// waits.
#[derive(Debug, Serialize, Deserialize)]
pub struct Passer {
    /// Where the sender goes.
    pub senders: Sender<Sender<Item>>,
    /// Where the receiver goes.
    pub receivers: Sender<Receiver<Item>>,
}

impl Task for Passer {
    const NAME: &'static str = "passer";

    fn run(self, context: &Context) {
        let (sender, receiver) = channel_in::<Item>(&context.heap, 4).unwrap();
        self.receivers.put(receiver).unwrap();
        self.senders.put(sender).unwrap();
        context.say("passed");
        let _ = context.hear();
    }
}

/// Told `go`, lets go of a channel with whatever is in it, says `gone`, and stops at once (SIGSTOP).
#[derive(Debug, Serialize, Deserialize)]
pub struct Dropper {
    /// The last end of the channel.
    pub carrier: Receiver<Sender<Item>>,
}

impl Task for Dropper {
    const NAME: &'static str = "dropper";

    fn run(self, context: &Context) {
        context.wait_for("go");
        drop(self.carrier);
        context.say("gone");
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP).unwrap();
        let _ = context.hear();
    }
}
