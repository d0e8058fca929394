//! How a worker gets at the parameters: in shared memory, or by value through queues.
//!
//! A worker computes with a snapshot. When it has a change, it adds the change to the parameters and takes a
//! new snapshot of them.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use tensorferry::{Queue, SharedTensor, Tensor};

/// How many parameters a worker exchanges in one go: 16 cache lines of 64 bytes.
const BLOCK: usize = 256;

/// What workers tell the parent while they train.
#[derive(Debug, Serialize, Deserialize)]
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
    /// The parent has the parameters; changes go there and parameters come back, both as private tensors,
    /// which the transport has to copy. This is what it costs without shared memory.
    ByValue { changes: Queue<Message>, parameters: Vec<Queue<Tensor<f32>>> },
}

/// One worker's access to the parameters.
#[derive(Debug)]
pub(crate) enum Access {
    Shared {
        /// Views of the parameters, in the order in which this worker goes through them.
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
                Access::Shared { blocks, snapshot: vec![0.0; n], bytes_snapshot: 0 }
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
/// Two workers that go the same way at the same time meet in a block and then stay together, each waiting for
/// the other's cache lines, five times slower than alone. Two that go opposite ways meet once and part. So
/// every second worker goes backwards, and the pairs begin at different places.
fn order(n_blocks: usize, rank: usize, n_workers: usize) -> impl Iterator<Item = usize> {
    let first = rank / 2 * n_blocks / n_workers.div_ceil(2);
    (0..n_blocks).map(move |i| {
        let place = (first + i) % n_blocks;
        if rank.is_multiple_of(2) { place } else { n_blocks - 1 - place }
    })
}

impl Access {
    /// Takes the first snapshot.
    pub(crate) fn begin(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Shared { .. } => self.each_block(|_, _| Ok(())),
            Self::ByValue { parameters, received, .. } => {
                *received = parameters.get()?;
                Ok(())
            }
        }
    }

    /// The parameters as they were at the last exchange. There is no `&[f32]` into memory to which others
    /// add, hence the snapshot.
    pub(crate) fn snapshot(&self) -> anyhow::Result<&[f32]> {
        match self {
            Self::Shared { snapshot, .. } => Ok(snapshot),
            Self::ByValue { received, .. } => Ok(received.as_slice()?),
        }
    }

    /// Adds `rate` times `change` to the parameters and takes a new snapshot. No addition is lost, whoever
    /// adds at the same time; some numbers of the snapshot may be from before an addition of others, and some
    /// from after it.
    pub(crate) fn exchange(&mut self, change: &[f32], rate: f32) -> anyhow::Result<()> {
        match self {
            Self::Shared { .. } => {
                self.each_block(|range, block| Ok(block.add_scaled_from(&change[range], rate)?))
            }
            Self::ByValue { rank, changes, parameters, received } => {
                let change: Vec<_> = change.iter().map(|value| rate * value).collect();
                changes.put(Message::Change { rank: *rank, change: Tensor::from(change) })?;
                *received = parameters.get()?;
                Ok(())
            }
        }
    }

    /// Changes each block and reads it at once, while its cache lines are still here.
    fn each_block(
        &mut self,
        change: impl Fn(Range<usize>, &SharedTensor<f32>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        if let Self::Shared { blocks, snapshot, bytes_snapshot } = self {
            for (range, block) in blocks {
                change(range.clone(), block)?;
                block.read_into(&mut snapshot[range.clone()])?;
            }
            *bytes_snapshot += size_of_val(snapshot.as_slice()) as u64;
        }
        Ok(())
    }

    /// How many bytes this worker has copied into its snapshots.
    pub(crate) fn bytes_snapshot(&self) -> u64 {
        match self {
            Self::Shared { bytes_snapshot, .. } => *bytes_snapshot,
            Self::ByValue { .. } => 0,
        }
    }
}
