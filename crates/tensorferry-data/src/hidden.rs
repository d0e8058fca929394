//! For the code that [`dataset`](crate::dataset) generates. Not for direct use; may change.

use tensorferry_spawn::hidden::{Call, Signature, Task};
pub use tensorferry_spawn::hidden::{FUNCTIONS, Registered, linkme};

use crate::Dataset;
use crate::worker::{Request, fetch, open};

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

/// Whether both are in the table.
pub(crate) fn is_registered<D: Dataset>() -> bool {
    let wanted = [Signature::of::<_, (D,)>(&open::<D>), Signature::of::<_, (Request,)>(&fetch::<D>)];
    wanted.iter().all(|wanted| tensorferry_spawn::registered().any(|signature| signature == *wanted))
}
