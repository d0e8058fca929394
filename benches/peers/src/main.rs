//! Measures the peers for `cargo xtask bench table`: one measurement, one line of JSON.

#[path = "../../src/answer.rs"]
#[expect(dead_code, reason = "the other programs need more of it")]
mod answer;
#[path = "../../src/ask.rs"]
#[expect(dead_code, reason = "the other programs need more of it")]
mod ask;
#[path = "../../src/control.rs"]
mod control;
#[path = "../../src/files.rs"]
mod files;
#[path = "../../src/process.rs"]
#[expect(dead_code, reason = "the other programs need more of it")]
mod process;
#[path = "../../src/rows.rs"]
mod rows;
#[path = "../../src/work.rs"]
mod work;

mod ice;
mod ipc;

use anyhow::bail;

use crate::answer::{Answer, Samples, median};
use crate::ask::{Ask, Row, Way};
use crate::control::{Control, Other};
use crate::files::{files_of, remove_files_of};
use crate::process::{minor_faults, now_ns};
use crate::rows::{Far, Near, Read, Received, Sink, Source, measure, serve};
use crate::work::{fill, sum, touch};

fn main() -> anyhow::Result<()> {
    let ask = Ask::from_arguments()?;
    if let Some(name) = Other::argument() {
        return match ask.way {
            Way::IpcShm | Way::IpcBytes => ipc::far(&ask, name),
            _ => ice::far(&ask, &name),
        };
    }
    let answer = match ask.way {
        Way::IpcShm | Way::IpcBytes => ipc::near(&ask),
        Way::IcePoll | Way::IceEvent => ice::near(&ask),
        way => bail!("{way:?} is not measured here"),
    };
    answer?.print()
}

fn read_of(elements: &[f32], read: Read) -> f32 {
    if read == Read::Sum { sum(elements) } else { touch(elements) }
}
