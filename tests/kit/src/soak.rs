//! A soak: many processes pass random tensors on for a given time, and are killed, stopped, sent away and
//! replaced at random all the while.
//!
//! ```text
//! producers ──▶ ring ──▶ forwarders ──▶ ring ──▶ consumers
//! ```
//!
//! Producers count what they have put; each message carries its producer's ledger along, where the consumer
//! that gets it makes a mark. A message is promised once `put` has returned. What a plain `get` took dies
//! with its taker, so each taker notes what it has in its hands. A message that is missing in the end must
//! stand in the note of a taker that was killed, or belong to a taker that was killed before it could write
//! the note: at most one for each of those.

mod actors;
mod books;
mod recovery;
mod report;
mod stage;

pub(crate) use actors::{SoakConsumer, SoakForwarder, SoakProducer};
pub use report::SoakReport;
pub use stage::Soak;
