//! Datasets that are read from front to back, and their loader.

mod dataset;
mod epoch;
mod here;
mod loader;
mod shards;
mod shuffled;
mod state;
mod turns;
mod worker;

pub use dataset::{IterableBatch, IterableDataset, Shard};
pub use epoch::IterableEpoch;
pub(crate) use here::Here;
pub use loader::IterableLoader;
pub(crate) use loader::Source;
pub use shuffled::Shuffled;
pub use state::IterableState;
pub(crate) use worker::{ShardRequest, fetch, open};
