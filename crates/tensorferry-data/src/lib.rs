//! Datasets, samplers, and a data loader whose workers are processes.
//!
//! [`DataLoader`] is PyTorch's: it makes batches of samples, in this process or in workers, and hands them
//! out in order. What is better than there:
//!
//! - Batches are made in shared memory that is used again. A batch travels as a handle, whatever its size.
//! - What comes depends on the dataset, the sampler, the batch size and the seed, not on the number of the
//!   workers, their speed or their deaths. A sample has random numbers of its own in each epoch
//!   ([`SampleRng`]).
//! - A worker that is killed is reported at once, with process ID, signal and the sample that it was at
//!   ([`LoadError`]), and another one takes its place. With
//!   [`max_tries`](DataLoaderBuilder::max_tries) its batch is made again.
//! - An epoch can be resumed at any batch ([`LoaderState`]), with another number of workers too.
//! - Workers stay from one epoch to the next. What they still make for an epoch that was given up, they give
//!   up too.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use tensorferry_data::rand_core::Rng as _;
//! use tensorferry_data::{BoxedError, DataLoader, Dataset, SampleRng, dataset};
//!
//! /// Points with noise, and the class of each.
//! #[derive(Serialize, Deserialize)]
//! struct Points {
//!     n_points: usize,
//! }
//!
//! #[dataset]
//! impl Dataset for Points {
//!     type Sample = ([f32; 2], i64);
//!
//!     fn len(&self) -> usize {
//!         self.n_points
//!     }
//!
//!     fn get(&self, index: usize, rng: &mut SampleRng) -> Result<Self::Sample, BoxedError> {
//!         let class = index % 2;
//!         let mut noise = || rng.next_u32() as f32 / u32::MAX as f32;
//!         Ok(([class as f32 + noise(), noise()], class as i64))
//!     }
//! }
//!
//! let loader = DataLoader::builder(Points { n_points: 1_000 })
//!     .batch_size(64)
//!     .shuffle()
//!     .seed(7)
//!     .workers(2)
//!     .start()?;
//! for epoch in 0..3 {
//!     for batch in loader.epoch(epoch) {
//!         let (points, classes) = batch?;
//!         assert_eq!(points.shape(), &[classes.n_elements(), 2]);
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Samples without an index, which are read from front to back, are an [`IterableDataset`]; an
//! [`IterableLoader`] has batches of them, with the same promises. Structs become batches by
//! `#[derive(Collate)]` ([`Collate`]).
//!
//! # How it works
//! The workers are those of a [`Pool`](tensorferry_pool::Pool). Each gets the dataset when it starts. A
//! request has the indices of one batch. The worker makes the samples one after the other ([`Dataset::get`]),
//! copies each into its row of the batch ([`Collate`]), and notes in shared memory which one it is at. The
//! workers of an [`IterableLoader`] are a pool each, because what was read of a shard lies in one process; a
//! request says how many samples of the shard are done, so that any process can go on with it.

#![forbid(unsafe_code)]

mod ahead;
mod builder;
mod collate;
mod dataset;
mod epoch;
mod error;
mod iterable;
mod loader;
mod padded;
mod places;
mod random;
mod requests;
mod rows;
mod sampler;
mod samples;
mod tensor_dataset;
mod worker;

pub use builder::{DataLoaderBuilder, InTurn, Sampled};
pub use collate::{Collate, CollateError};
pub use dataset::{Batch, Dataset};
pub use epoch::{Epoch, LoaderState};
pub use error::{LoadError, LoadErrorKind, LoaderError, RaisedError, ResumeError};
pub use iterable::{
    IterableBatch, IterableDataset, IterableEpoch, IterableLoader, IterableState, Shard, Shuffled,
};
pub use loader::DataLoader;
pub use padded::{Padded, PaddedBatch, PaddedRows};
pub use random::{EpochKey, SampleRng, rand_core};
pub use rows::TensorRows;
pub use sampler::{
    BatchSampler, BucketBatchSampler, BucketsError, DistributedSampler, IndexBatches, Indices, RandomSampler,
    Sampler, SequentialSampler, SubsetSampler, WeightedRandomSampler, WeightsError,
};
pub use samples::Samples;
pub use tensor_dataset::{Columns, ColumnsError, TensorDataset};
pub use tensorferry_macros::{Collate, dataset};
pub use tensorferry_spawn::BoxedError;
pub use worker::{WorkerInfo, worker_info};

#[doc(hidden)]
pub mod hidden;
