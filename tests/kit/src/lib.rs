//! What the tests of tensorferry share that need several processes.
//!
//! ```text
//! test process                                    child process (tests/src/bin/child.rs)
//! with_family(|family| {
//!   let child = family.start(Task { .. });  ──▶   joins the domain, opens its task, runs it
//!   child.hear() / child.say(..)            ◀─▶   context.say(..) / context.hear()
//!   child.finish() / child.kill()
//! })  nothing may be left: members, blocks, descriptors, mappings, children
//! ```
//!
//! - A [`Family`] is a domain that the test made and the children that it started in it. [`with_family`] runs
//!   one test and compares what is there before and after it.
//! - A [`Task`] is what a child does: a `serde` type with queues and tensors inside, and a function. The
//!   tasks are in [`tasks`], because the test names them and the child runs them.
//! - A [`Child`] is killed and reaped when it is dropped. Every wait ends at [`DEADLINE`] and says what was
//!   waited for.
//! - A [`Machine`] has simulated GPUs; each [`Process`] on it is a child that loads the software driver.
//! - [`Audit`] reads the domain's file byte by byte, as docs/WIRE.md describes it and without the library,
//!   and [`Scribbler`] writes into it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    clippy::print_stdout,
    reason = "the kit fails a test by panicking, as tests do, and says why one was not run"
)]

mod answers;
mod audit;
mod chaos;
mod child;
mod container;
pub mod decoders;
mod device;
mod family;
mod gate;
mod hardware;
mod item;
pub mod kill;
mod last_words;
mod leftovers;
mod link;
mod loner;
mod python;
mod raw_driver;
mod shared_bytes;
mod silence;
mod slots;
mod soak;
mod steps;
mod task;
pub mod tasks;
mod wait;

pub use answers::{Record, consumer_killed};
pub use audit::{Audit, LiveBlock, Scribbler};
pub use chaos::Chaos;
pub use child::{Child, Limit};
pub use container::{MemoryGroup, container_filter, forbid};
pub use device::{
    Machine, Process, has_semaphores, may_lack_events, needs_memory_of_the_killed, strategies_of_run,
};
pub use family::{Family, alone, uncounted, with_family, with_family_of};
pub use hardware::{is_real, needs_devices, needs_software_driver, not_here, where_possible};
pub use item::{Choices, Item, Random};
pub use leftovers::{Leftovers, leaving_nothing};
pub use link::Link;
pub use loner::{Loner, RootTask};
pub use python::start_python;
pub use raw_driver::in_fork;
pub use shared_bytes::SharedBytes;
pub use silence::lose_what_arrives;
pub use slots::assert_all_slots_work;
pub use soak::{Soak, SoakReport};
pub use steps::{Stepper, Stop};
pub use task::{Context, Task, run_child};
pub use wait::{DEADLINE, until};
