//! How a worker gets at the parameters: in shared memory, or by value through queues.

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tensorferry::{Queue, SharedTensor, Tensor};

/// What workers tell the parent while they train.
#[derive(Debug, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "messages are few, and this one is what the mode is about")]
pub(crate) enum Message {
    /// The worker waits for the start.
    Ready,
    /// By value only: a change for the parameters. The worker waits for the new parameters.
    Change { rank: usize, change: Tensor<f32> },
    /// There are no batches left.
    Done,
}

/// One worker's access to the parameters.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Exchange {
    /// Everybody reads and adds to the same memory, and nobody waits for anybody: Hogwild.
    Shared(SharedTensor<f32>),
    /// The parent has the parameters; changes go there and parameters come back, both as private tensors, which the
    /// transport has to copy. This is what it costs without shared memory.
    ByValue { changes: Queue<Message>, parameters: Vec<Queue<Tensor<f32>>> },
}

/// The parameters as a worker sees them during one step.
#[derive(Debug)]
pub(crate) struct Snapshot {
    numbers: Vec<f32>,
    received: Option<Tensor<f32>>,
    /// How many bytes were copied into `numbers`.
    pub(crate) bytes: u64,
}

impl Snapshot {
    pub(crate) fn new(n_parameters: usize) -> Self {
        Self { numbers: vec![0.0; n_parameters], received: None, bytes: 0 }
    }

    pub(crate) fn as_slice(&self) -> anyhow::Result<&[f32]> {
        Ok(match &self.received {
            Some(received) => received.as_slice()?,
            None => &self.numbers,
        })
    }
}

impl Exchange {
    /// Takes what the parameters are now.
    ///
    /// In shared memory others are adding meanwhile: each number is whole, but some may be from before an addition
    /// and some from after it. There is no `&[f32]` into such memory, hence the snapshot.
    pub(crate) fn read(&self, rank: usize, into: &mut Snapshot) -> anyhow::Result<()> {
        match self {
            Self::Shared(parameters) => {
                parameters.read_into(&mut into.numbers)?;
                into.bytes += size_of_val(into.numbers.as_slice()) as u64;
            }
            Self::ByValue { parameters, .. } => {
                let own = parameters.get(rank).context("there is no queue for this worker")?;
                into.received = Some(own.get()?);
            }
        }
        Ok(())
    }

    /// Adds a change; no addition is lost, whoever adds at the same time.
    pub(crate) fn add(&self, rank: usize, change: &[f32]) -> anyhow::Result<()> {
        match self {
            Self::Shared(parameters) => parameters.add_from(change)?,
            Self::ByValue { changes, .. } => {
                changes.put(Message::Change { rank, change: Tensor::from(change.to_vec()) })?;
            }
        }
        Ok(())
    }
}
