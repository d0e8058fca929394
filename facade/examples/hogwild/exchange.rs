//! How a worker gets at the parameters: in shared memory, or by value through queues.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use tensorferry::{Queue, SharedTensor, Tensor};

/// How many parameters a worker adds to in one go: 16 cache lines of 64 bytes.
const BLOCK: usize = 256;

/// What workers tell the parent while they train.
#[derive(Debug, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "the largest is the usual one in the mode that has it")]
pub(crate) enum Message {
    /// The worker waits for the start.
    Ready,
    /// By value only: a change for the parameters. The worker waits for the new parameters.
    Change { rank: usize, change: Tensor<f32> },
    /// There are no batches left.
    Done,
}

/// Where the parameters are, as it is sent to one worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Exchange {
    /// Everybody reads and adds to the same memory, and nobody waits for anybody: Hogwild.
    Shared { parameters: SharedTensor<f32>, n_workers: usize },
    /// The parent has the parameters; changes go there and parameters come back, both as private tensors, which the
    /// transport has to copy. This is what it costs without shared memory.
    ByValue { changes: Queue<Message>, parameters: Vec<Queue<Tensor<f32>>> },
}

/// One worker's access to the parameters.
#[derive(Debug)]
pub(crate) enum Access {
    Shared {
        parameters: SharedTensor<f32>,
        /// Views of `parameters`, in the order in which this worker adds to them.
        blocks: Vec<(Range<usize>, SharedTensor<f32>)>,
        snapshot: Vec<f32>,
        bytes_snapshot: u64,
    },
    ByValue {
        rank: usize,
        changes: Queue<Message>,
        parameters: Queue<Tensor<f32>>,
        received: Tensor<f32>,
    },
}

impl Exchange {
    /// The access of the worker `rank`.
    pub(crate) fn open(self, rank: usize) -> anyhow::Result<Access> {
        Ok(match self {
            Self::Shared { parameters, n_workers } => {
                let n = parameters.n_elements();
                let blocks = order(n.div_ceil(BLOCK), rank, n_workers).map(|block| {
                    let range = block * BLOCK..n.min((block + 1) * BLOCK);
                    Ok((range.clone(), parameters.narrow(0, range.start, range.len())?))
                });
                let blocks = blocks.collect::<anyhow::Result<_>>()?;
                Access::Shared { parameters, blocks, snapshot: vec![0.0; n], bytes_snapshot: 0 }
            }
            Self::ByValue { changes, mut parameters } => {
                let parameters = parameters.swap_remove(rank);
                Access::ByValue { rank, changes, parameters, received: Tensor::from(Vec::new()) }
            }
        })
    }
}

/// The order in which a worker goes through the blocks.
///
/// Two workers that go the same way at the same time meet in a block and then stay together, each waiting for the
/// other's cache lines, five times slower than alone. Two that go opposite ways meet once and part. So every second
/// worker goes backwards, and the pairs begin at different places.
fn order(n_blocks: usize, rank: usize, n_workers: usize) -> impl Iterator<Item = usize> {
    let first = rank / 2 * n_blocks / n_workers.div_ceil(2);
    (0..n_blocks).map(move |i| {
        let place = (first + i) % n_blocks;
        if rank.is_multiple_of(2) { place } else { n_blocks - 1 - place }
    })
}

impl Access {
    /// Takes what the parameters are now.
    ///
    /// In shared memory others are adding meanwhile: each number is whole, but some may be from before an addition
    /// and some from after it. There is no `&[f32]` into such memory, hence the snapshot.
    pub(crate) fn read(&mut self) -> anyhow::Result<&[f32]> {
        match self {
            Self::Shared { parameters, snapshot, bytes_snapshot, .. } => {
                parameters.read_into(snapshot)?;
                *bytes_snapshot += size_of_val(snapshot.as_slice()) as u64;
                Ok(snapshot)
            }
            Self::ByValue { parameters, received, .. } => {
                *received = parameters.get()?;
                Ok(received.as_slice()?)
            }
        }
    }

    /// Adds `rate` times `change`. No addition is lost, whoever adds at the same time.
    pub(crate) fn add(&self, change: &[f32], rate: f32) -> anyhow::Result<()> {
        match self {
            Self::Shared { blocks, .. } => {
                for (range, block) in blocks {
                    block.add_scaled_from(&change[range.clone()], rate)?;
                }
            }
            Self::ByValue { rank, changes, .. } => {
                let change: Vec<_> = change.iter().map(|value| rate * value).collect();
                changes.put(Message::Change { rank: *rank, change: Tensor::from(change) })?;
            }
        }
        Ok(())
    }

    /// How many bytes this worker has copied into a snapshot.
    pub(crate) fn bytes_snapshot(&self) -> u64 {
        match self {
            Self::Shared { bytes_snapshot, .. } => *bytes_snapshot,
            Self::ByValue { .. } => 0,
        }
    }
}
