//! Locks and the like between processes, of which some are killed.

mod deaths;
mod sharing;

use tensorferry_kit::tasks::{Primitives, Sharer};
use tensorferry_kit::{Child, Family};

/// A child that shares these.
#[track_caller]
fn sharer(family: &Family, shared: &Primitives) -> Child {
    family.start(Sharer { shared: shared.clone() })
}

/// A child that is about to do this, and sleeps.
#[track_caller]
fn waiting(family: &Family, shared: &Primitives, command: &str) -> Child {
    let child = sharer(family, shared);
    child.begin(command);
    child.wait_until_asleep();
    child
}
