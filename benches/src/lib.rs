//! What the programs behind `cargo xtask bench table` have in common: what is asked, what is answered, and
//! the rows themselves, written once for every way to another process.

mod answer;
mod ask;
mod bytes;
mod control;
mod files;
mod number;
mod process;
mod python;
mod rows;
mod work;

pub use answer::{Answer, Samples, median};
pub use ask::{Ask, Row, Way};
pub use bytes::Bytes;
pub use control::{Control, Other};
pub use files::{files_of, remove_files_of};
pub use number::number;
pub use process::{minor_faults, now_ns, open_descriptors, private_bytes};
pub use python::ask_python;
pub use rows::{Far, Near, Read, Received, Sink, Source, measure, serve};
pub use work::{fill, sum, touch};
