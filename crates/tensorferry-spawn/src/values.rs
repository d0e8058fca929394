//! The values that processes send to their parent, each with its sender.

use std::cell::Cell;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use tensorferry_queue::{GetError, Queue};

/// The queue for the children's values.
pub(crate) type Results<T> = Queue<(Sender, T)>;

/// The index of the process that sent a value. It comes before the value, so it is known also when the value
/// cannot be read: see [`take`].
#[derive(Debug, Serialize)]
pub(crate) struct Sender(pub(crate) usize);

thread_local! {
    /// The sender whose value this thread reads, or has failed to read.
    static READING: Cell<Option<usize>> = const { Cell::new(None) };
}

impl<'de> Deserialize<'de> for Sender {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rank = usize::deserialize(deserializer)?;
        READING.set(Some(rank));
        Ok(Self(rank))
    }
}

/// Takes one value without waiting. Returns the index of its sender too, also if the value cannot be read:
/// the error of the queue does not name it. There is no index if there is no value.
pub(crate) fn take<T>(results: &Results<T>) -> (Option<usize>, Result<T, GetError>)
where
    T: Serialize + DeserializeOwned,
{
    READING.set(None);
    match results.get_nowait() {
        Ok((Sender(rank), value)) => (Some(rank), Ok(value)),
        Err(error) => (READING.take(), Err(error)),
    }
}
