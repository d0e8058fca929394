//! Buffers that are used again: in a steady state nothing is allocated, nothing populated, and no page
//! touched for the first time, in any process.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod returned;
mod streamed;

use tensorferry_kit::{Child, tasks::Spent};

#[track_caller]
fn spent(child: &Child) -> Spent {
    child.say("spent");
    serde_json::from_str(&child.hear()).unwrap()
}
