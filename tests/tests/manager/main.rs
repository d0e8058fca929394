//! Objects of one process that others call, of which some are killed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod deaths;
mod refused;
mod sharing;

use tensorferry::Queue;
use tensorferry_kit::tasks::manager::{Asker, Keeper, Number, Tensors};
use tensorferry_kit::{Child, Family};

/// A child that keeps a number and tensors, and handles on them.
#[track_caller]
fn keeper(family: &Family) -> (Child, Number, Tensors) {
    let queue = Queue::new_in(family.heap(), 1).unwrap();
    let child = family.start(Keeper { queue: queue.clone() });
    child.expect("here");
    let (number, tensors) = queue.get().unwrap();
    (child, number, tensors)
}

/// A child that calls what others keep.
#[track_caller]
fn asker(family: &Family, number: &Number, tensors: &Tensors) -> Child {
    family.start(Asker { number: number.clone(), tensors: tensors.clone() })
}
