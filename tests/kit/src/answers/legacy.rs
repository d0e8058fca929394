//! Legacy IPC: `cuIpcGetMemHandle` and what opens it.

use std::time::Duration;

use super::{Probe, all_say, ask, one, process, told, two};
use crate::wait::{deadline, holds_within};
use crate::{Machine, Process};

const MIB: u64 = 1 << 20;
/// What of the memory in use may be somebody else's, in MiB.
const SLACK_MIB: u64 = 64;

/// An exporter with 8 MiB that begin with a 7, an importer, and the handle.
fn exported() -> (Process, Process, String) {
    let (exporter, importer) = two();
    told(&exporter, &["alloc a 8388608", "fill a 7"]);
    let handle = ask(&exporter, "handle a");
    (exporter, importer, handle)
}

/// As [`exported`], opened.
fn opened() -> (Process, Process) {
    let (exporter, importer, handle) = exported();
    told(&importer, &[&format!("open b {handle} 1")]);
    assert_eq!(ask(&importer, "read b"), "7");
    (exporter, importer)
}

/// Whether the memory of an exporter comes back within this time that a killed importer had open.
///
/// It is compared with what was in use before there was an importer, because what a context takes, which may
/// be more than the exporter's memory, comes back with the importer's death.
#[must_use]
pub fn consumer_killed(machine: &Machine, patience: Duration) -> String {
    let exporter = process(machine);
    let used = || ask(&exporter, "used").parse::<u64>().unwrap();
    let alone = used();
    told(&exporter, &[&format!("alloc a {}", 256 * MIB)]);
    let handle = ask(&exporter, "handle a");
    let importer = process(machine);
    told(&importer, &[&format!("open b {handle} 1")]);
    importer.kill();
    told(&exporter, &["free a"]);
    let is_back = holds_within(patience, || used() <= alone + SLACK_MIB);
    if is_back { "comes back" } else { "does not come back" }.to_owned()
}

pub(super) const PROBES: &[Probe] = &[
    ("ipc-same-process", || {
        let process = one();
        told(&process, &["alloc a 4194304"]);
        let handle = ask(&process, "handle a");
        ask(&process, &format!("open b {handle} 1"))
    }),
    ("ipc-small-blocks", || {
        let (exporter, importer) = two();
        told(&exporter, &["alloc a 512", "alloc b 512"]);
        let block = |name: &str| {
            let range = ask(&exporter, &format!("range {name}"));
            range.rsplit(' ').next().map(str::to_owned)
        };
        if block("a") != block("b") {
            return "apart".to_owned();
        }
        let handle = ask(&exporter, "handle a");
        told(&importer, &[&format!("open a {handle} 1")]);
        // Allocations of 512 bytes lie side by side.
        match ask(&importer, "read a+512").as_str() {
            "CUDA_ERROR_INVALID_VALUE" => {
                "shared; the whole block is mapped, copies are checked by allocation".to_owned()
            }
            other => format!("shared; the importer reads {other} behind its allocation"),
        }
    }),
    ("ipc-interior", || {
        let process = one();
        told(&process, &["alloc a 8388608"]);
        let (base, inside) = (ask(&process, "handle a"), ask(&process, "handle a+4194304"));
        if base == inside { "the handle of the allocation".to_owned() } else { inside }
    }),
    ("ipc-open-after-free", || {
        let (exporter, importer, handle) = exported();
        told(&exporter, &["free a"]);
        ask(&importer, &format!("open b {handle} 1"))
    }),
    ("ipc-open-after-death", || {
        let (exporter, importer, handle) = exported();
        exporter.kill();
        ask(&importer, &format!("open b {handle} 1"))
    }),
    ("ipc-read-after-free", || {
        let (exporter, importer) = opened();
        told(&exporter, &["free a"]);
        ask(&importer, "read b")
    }),
    ("ipc-read-after-death", || {
        let (exporter, importer) = opened();
        exporter.kill();
        ask(&importer, "read b")
    }),
    ("ipc-small-blocks-closed", || {
        let (exporter, importer) = two();
        told(&exporter, &["alloc a 4096", "alloc b 4096", "fill a 7", "fill b 8"]);
        for name in ["a", "b"] {
            let handle = ask(&exporter, &format!("handle {name}"));
            told(&importer, &[&format!("open {name} {handle} 1")]);
        }
        assert_eq!(ask(&importer, "read a"), "7");
        told(&importer, &["close a"]);
        let other = match ask(&importer, "read b").as_str() {
            "8" => "the other stays".to_owned(),
            other => other.to_owned(),
        };
        format!("{other}; {}", ask(&importer, "close b"))
    }),
    ("ipc-consumer-killed", || consumer_killed(&Machine::new(""), deadline())),
    ("ipc-free-while-open", || {
        let (exporter, _importer) = opened();
        match ask(&exporter, "free a").as_str() {
            "ok" => "works".to_owned(),
            other => other.to_owned(),
        }
    }),
    ("ipc-forward", || {
        let (_exporter, importer) = opened();
        ask(&importer, "handle b")
    }),
    ("ipc-second-open", || {
        let (_exporter, importer, handle) = exported();
        told(&importer, &[&format!("open a {handle} 1"), &format!("open b {handle} 1")]);
        let (first, second) = (ask(&importer, "name a"), ask(&importer, "name b"));
        let is_same = if first == second { "same address" } else { "another address" };
        let closes = [(); 3].map(|()| ask(&importer, "close a"));
        format!("{is_same}; {}", closes.join(", "))
    }),
    ("ipc-flags", || {
        let (_exporter, importer, handle) = exported();
        ask(&importer, &format!("open b {handle} 0"))
    }),
    ("ipc-free-imported", || {
        let (_exporter, importer) = opened();
        all_say([ask(&importer, "free b")])
    }),
];
