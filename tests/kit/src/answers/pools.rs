//! Memory pools between processes.

use super::{Probe, ask, one, told, two, with_fd};
use crate::Process;

/// An exporter with pool memory that begins with a 7, and an importer that has it.
fn shared() -> (Process, Process, String) {
    let (exporter, importer) = two();
    told(&exporter, &["pool p", "pool-alloc a p", "fill a 7"]);
    assert_eq!(with_fd(&exporter, "pool-export p", &importer, "pool-import p"), "ok");
    let data = ask(&exporter, "pointer a");
    told(&importer, &[&format!("pool-open a p {data}")]);
    assert_eq!(ask(&importer, "read a"), "7");
    (exporter, importer, data)
}

pub(super) const PROBES: &[Probe] = &[
    ("pool-legacy", || {
        let process = one();
        told(&process, &["default-pool p", "pool-alloc a p", "synchronize"]);
        let (handle, capable) = (ask(&process, "handle a"), ask(&process, "is-capable a"));
        format!("{handle}, {capable}; {}", ask(&process, "pool-export p"))
    }),
    ("pool-import-twice", || {
        let (_exporter, importer, data) = shared();
        let again = ask(&importer, &format!("pool-open b p {data}"));
        if again != "ok" {
            return again;
        }
        let is_same = if ask(&importer, "name a") == ask(&importer, "name b") { "same" } else { "another" };
        told(&importer, &["pool-free a", "synchronize"]);
        match ask(&importer, "read b").as_str() {
            "7" => format!("{is_same} address; there after the first free"),
            _ => format!("{is_same} address; gone with the first free"),
        }
    }),
    ("pool-exporter-first", || {
        let (exporter, importer, _) = shared();
        told(&exporter, &["pool-free a", "synchronize"]);
        ask(&importer, "read a")
    }),
    ("pool-imported-alloc", || {
        let (_exporter, importer, _) = shared();
        ask(&importer, "pool-alloc b p")
    }),
    ("pool-pointer-first", || {
        let process = one();
        told(&process, &["pool p", "pool-alloc a p"]);
        let before = ask(&process, "pointer a");
        let _ = ask(&process, "pool-export p");
        drop(process.take_fd());
        let after = if ask(&process, "pointer a").len() == 128 { "works" } else { "does not work" };
        format!("{before}; {after}")
    }),
    ("pool-descriptor", || {
        let process = one();
        told(&process, &["pool p"]);
        ask(&process, "pool-export p")
    }),
    ("pool-re-export", || {
        let (_exporter, importer, data) = shared();
        let pointer = match ask(&importer, "pointer a") {
            same if same == data => "works".to_owned(),
            hex if hex.len() == data.len() => "other data".to_owned(),
            error => error,
        };
        format!("{pointer}; {}", ask(&importer, "pool-export p"))
    }),
];
