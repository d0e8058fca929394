//! For the code that the macros generate. Not for direct use; may change.

pub use serde;
use tensorferry_spawn::hidden::{Call, Signature, Task};
pub use tensorferry_spawn::hidden::{FUNCTIONS, Registered, linkme};
pub use tensorferry_storage::Heap;

use crate::iterable::{self, IterableDataset, ShardRequest};
use crate::worker::{Request, fetch, open};
use crate::{CollateError, Dataset};

/// The entry of the function that gives a worker its dataset.
#[must_use]
pub const fn registered_open<D: Dataset>() -> Registered {
    Registered::new(
        || Signature::of::<_, (D,)>(&open::<D>),
        |call| Call::run::<_, (D,)>(call, open::<D>),
        |task| Task::run::<_, (D,)>(task, open::<D>),
    )
}

/// The entry of the function that makes a batch.
#[must_use]
pub const fn registered_fetch<D: Dataset>() -> Registered {
    Registered::new(
        || Signature::of::<_, (Request,)>(&fetch::<D>),
        |call| Call::run::<_, (Request,)>(call, fetch::<D>),
        |task| Task::run::<_, (Request,)>(task, fetch::<D>),
    )
}

/// As [`registered_open`], of an iterable dataset.
#[must_use]
pub const fn registered_iterable_open<D: IterableDataset>() -> Registered {
    Registered::new(
        || Signature::of::<_, (D,)>(&iterable::open::<D>),
        |call| Call::run::<_, (D,)>(call, iterable::open::<D>),
        |task| Task::run::<_, (D,)>(task, iterable::open::<D>),
    )
}

/// As [`registered_fetch`], of an iterable dataset.
#[must_use]
pub const fn registered_iterable_fetch<D: IterableDataset>() -> Registered {
    Registered::new(
        || Signature::of::<_, (ShardRequest,)>(&iterable::fetch::<D>),
        |call| Call::run::<_, (ShardRequest,)>(call, iterable::fetch::<D>),
        |task| Task::run::<_, (ShardRequest,)>(task, iterable::fetch::<D>),
    )
}

/// Whether both entries of a dataset are in the table.
pub(crate) fn is_registered<D: Dataset>() -> bool {
    are_registered(&[Signature::of::<_, (D,)>(&open::<D>), Signature::of::<_, (Request,)>(&fetch::<D>)])
}

/// Whether both entries of an iterable dataset are in the table.
pub(crate) fn is_iterable_registered<D: IterableDataset>() -> bool {
    let open = Signature::of::<_, (D,)>(&iterable::open::<D>);
    are_registered(&[open, Signature::of::<_, (ShardRequest,)>(&iterable::fetch::<D>)])
}

fn are_registered(wanted: &[Signature]) -> bool {
    wanted.iter().all(|wanted| tensorferry_spawn::registered().any(|signature| signature == *wanted))
}

/// What happened to a field of a sample.
#[must_use]
pub fn of_field(field: &'static str, error: CollateError) -> CollateError {
    CollateError::Field { field, error: Box::new(error) }
}
