//! Killing a process at every position of a call at which the memory that it shares can differ.
//!
//! A child is run instruction by instruction through one [`Operation`]. A *position* is where its next
//! instruction finds other shared bytes than the one before did, or where a system call has just returned; at
//! all other instructions a kill would leave the same as at one of these. The child is killed at one
//! position, and then the survivors have to find everything in order: every message that was promised, every
//! block, extent, process slot and descriptor; and a newcomer joins and works. Then the next child comes in a
//! fresh domain and is killed at the next position, until one reaches the end.
//!
//! Positions are counted anew in each run, because no two runs are alike to the instruction.

mod cast;
mod operation;
mod plan;
mod plant;
mod run;
mod subject;
mod sweeping;

pub use operation::Operation;
pub use plan::Plan;
pub use plant::{PLANTS, Plant};
pub use run::{Coverage, cover};
pub use subject::Subject;
