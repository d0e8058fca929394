//! What a program is asked to measure, as one line of JSON.

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

/// A way to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// tensorferry: handles.
    Ferry,
    /// tensorferry's queue with the bytes in the payload.
    Payload,
    /// A Unix stream socket.
    Socket,
    /// ipc-channel with a shared memory segment for each message.
    IpcShm,
    /// ipc-channel with the bytes copied.
    IpcBytes,
    /// iceoryx2, the receiver polls.
    IcePoll,
    /// iceoryx2, the receiver sleeps until an event.
    IceEvent,
    /// The limit of the machine; buffers come back in the order in which they were sent.
    Floor,
    /// The limit of the machine; the buffer that came back last is used first.
    FloorLifo,
    /// torch, strategy `file_descriptor`.
    TorchFd,
    /// torch, strategy `file_system`.
    TorchFs,
    /// As `TorchFd`, four shared tensors filled again and again instead of a fresh one for each message.
    TorchFdAgain,
    /// As `TorchFs`, likewise.
    TorchFsAgain,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Row {
    /// An existing tensor to and fro without a pause; half a round trip.
    Latency,
    /// An existing tensor after a pause; from before the send to after the receipt.
    Asleep,
    /// An existing tensor in one direction, as fast as it goes.
    Stream,
    /// Fresh tensors, written by the sender and summed by the receiver.
    Fresh,
    /// As `Stream`, through one channel with several senders and receivers.
    Pairs,
    /// From the start of processes that do nothing to their end.
    Spawn,
    /// Many live tensors.
    Live,
    /// One cache line between two processors.
    Line,
}

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ask {
    /// How the messages go.
    pub way: Way,
    /// What is measured.
    pub row: Row,
    /// Bytes of one tensor.
    pub size_bytes: usize,
    /// How many messages the sender may be ahead.
    pub depth: usize,
    /// Tensors in one message; processes in `Spawn`; live tensors in `Live`.
    pub count: usize,
    /// The tensors of a message are a bundle.
    #[serde(default)]
    pub bundled: bool,
    /// Senders and receivers in `Pairs`.
    pub pairs: usize,
    /// Members of the domain that do nothing.
    pub idle: usize,
    /// The two sides on one processor each; otherwise where the kernel wants them.
    pub pinned: bool,
    /// Whoever waits looks all the time, as far as the way lets it choose, instead of sleeping after a while.
    pub polls: bool,
    /// About how long to measure.
    pub seconds: f64,
    /// Exactly so many messages instead, without warming up: for counting what they cost.
    pub exactly: Option<u64>,
}

impl Ask {
    /// One tensor of `size_bytes` in each message, unpinned.
    #[must_use]
    pub const fn new(row: Row, size_bytes: usize, depth: usize) -> Self {
        Self {
            way: Way::Ferry,
            row,
            size_bytes,
            depth,
            count: 1,
            bundled: false,
            pairs: 1,
            idle: 0,
            pinned: false,
            polls: false,
            seconds: 0.3,
            exactly: None,
        }
    }

    /// The measurement that the first argument of this program describes.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn from_arguments() -> anyhow::Result<Self> {
        let line = std::env::args().nth(1).context("the first argument is the measurement, as JSON")?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Elements of one tensor of `f32`: at least one.
    #[must_use]
    pub fn n_elements(&self) -> usize {
        (self.size_bytes / size_of::<f32>()).max(1)
    }

    /// Puts this thread on the processor of its side, 0 or 1, if that is asked for. Threads that it starts
    /// inherit it.
    ///
    /// # Errors
    /// The kernel's error of sched_setaffinity(2).
    pub fn pin(&self, side: usize) -> anyhow::Result<()> {
        if self.pinned {
            let mut cpus = rustix::thread::CpuSet::new();
            cpus.set(side);
            rustix::thread::sched_setaffinity(None, &cpus)?;
        }
        Ok(())
    }
}
