//! Virtual memory management: `cuMemCreate` and descriptors.

use std::os::fd::AsFd;

use super::{Probe, all_say, ask, one, process, told, two, with_fd};
use crate::{Machine, Process, until};

const LEN: &str = "4194304";
/// What of the memory in use may be somebody else's, in MiB.
const SLACK_MIB: u64 = 64;

/// Maps a handle, with access.
#[track_caller]
fn map(process: &Process, at: &str, handle: &str) {
    told(
        process,
        &[
            &format!("reserve {at} {LEN}"),
            &format!("map {at} {LEN} 0 {handle}"),
            &format!("access {at} {LEN} 3"),
        ],
    );
}

/// A process with memory that is mapped and begins with a 7.
fn mapped() -> Process {
    let process = one();
    make(&process);
    process
}

#[track_caller]
fn make(process: &Process) {
    told(process, &[&format!("create h {LEN} 1")]);
    map(process, "a", "h");
    told(process, &["fill a 7"]);
}

/// An exporter, and an importer that has the same memory mapped.
fn shared() -> (Process, Process) {
    let (exporter, importer) = two();
    make(&exporter);
    assert_eq!(with_fd(&exporter, "export h", &importer, "import h"), "ok");
    map(&importer, "a", "h");
    assert_eq!(ask(&importer, "read a"), "7");
    (exporter, importer)
}

/// Whether memory can still be read and written.
fn stays(process: &Process) -> String {
    match [ask(process, "read a"), ask(process, "fill a 8"), ask(process, "read a")]
        .each_ref()
        .map(String::as_str)
    {
        ["7", "ok", "8"] => "stays".to_owned(),
        answers => answers.join("; "),
    }
}

/// What each function answers to a process without a current context: the first that refuses, if one does.
fn without_context(process: &Process) -> String {
    let first = format!("create h {LEN} 1");
    let (map, access) = (format!("map a {LEN} 0 i"), format!("access a {LEN} 3"));
    let (reserve, unmap, unreserve) =
        (format!("reserve a {LEN}"), format!("unmap a {LEN}"), format!("unreserve a {LEN}"));
    let lines = [&*first, "export h", "import i", &*reserve, &*map, &*access, &*unmap, &*unreserve];
    let mut fd = None;
    for line in lines.into_iter().chain(["release i", "release h"]) {
        match &fd {
            Some(fd) if line == "import i" => process.say_with(line, &[AsFd::as_fd(fd)]),
            _ => process.say(line),
        }
        match process.hear().as_str() {
            "ok" => {}
            "close-on-exec" | "kept" => fd = Some(process.take_fd()),
            error => return format!("{}: {error}", line.split(' ').next().unwrap_or_default()),
        }
    }
    "works".to_owned()
}

pub(super) const PROBES: &[Probe] = &[
    ("vmm-same-process", || {
        let process = mapped();
        let flag = ask(&process, "export h");
        let fd = process.take_fd();
        process.say_with("import i", &[fd.as_fd()]);
        match process.hear().as_str() {
            "ok" => {}
            error => return error.to_owned(),
        }
        map(&process, "b", "i");
        let same = if ask(&process, "read b") == "7" { "the same memory" } else { "other memory" };
        format!("works, {same}, {flag}")
    }),
    ("vmm-re-export", || {
        let (_exporter, importer) = shared();
        ask(&importer, "export h")
    }),
    ("vmm-import-twice", || {
        let (exporter, importer) = shared();
        with_fd(&exporter, "export h", &importer, "import i")
    }),
    ("vmm-exporter-released", || {
        let (exporter, importer) = shared();
        told(&exporter, &[&format!("unmap a {LEN}"), &format!("unreserve a {LEN}"), "release h"]);
        stays(&importer)
    }),
    ("vmm-exporter-killed", || {
        let (exporter, importer) = shared();
        exporter.kill();
        stays(&importer)
    }),
    ("vmm-import-after-kill", || {
        let (exporter, importer) = two();
        make(&exporter);
        assert_eq!(ask(&exporter, "export h"), "close-on-exec");
        let fd = exporter.take_fd();
        exporter.kill();
        importer.say_with("import h", &[fd.as_fd()]);
        match importer.hear().as_str() {
            "ok" => {}
            error => return error.to_owned(),
        }
        map(&importer, "a", "h");
        match ask(&importer, "read a").as_str() {
            "7" => "works".to_owned(),
            other => format!("reads {other}"),
        }
    }),
    ("vmm-fd-alone", || {
        let process = one();
        let used = || ask(&process, "used").parse::<u64>().unwrap();
        let before = used();
        told(&process, &["create h 268435456 1"]);
        let _ = ask(&process, "export h");
        let fd = process.take_fd();
        told(&process, &["release h"]);
        // The descriptor is closed in the process, and open here.
        let counted = if used() + SLACK_MIB >= before + 256 { "counted" } else { "not counted" };
        process.say_with("import i", &[fd.as_fd()]);
        let importable = match process.hear().as_str() {
            "ok" => "importable".to_owned(),
            error => error.to_owned(),
        };
        if importable == "importable" {
            told(&process, &["release i"]);
        }
        drop(fd);
        until("memory goes with its last descriptor", || used() <= before + SLACK_MIB);
        format!("{counted}, {importable}, gone with the descriptor")
    }),
    ("vmm-no-context", || {
        let machine = Machine::new("");
        let (never, not_current) = (machine.respondent(&[]), process(&machine));
        told(&not_current, &["no-context"]);
        format!("{}; {}", without_context(&never), without_context(&not_current))
    }),
    ("vmm-unmap-queued", || {
        let process = mapped();
        told(&process, &["hold", "queue-fill a 9"]);
        let unmapped = ask(&process, &format!("unmap a {LEN}"));
        told(&process, &["run"]);
        match unmapped.as_str() {
            "ok" => format!("does not wait; the work fails with {}", ask(&process, "synchronize")),
            error => error.to_owned(),
        }
    }),
    ("vmm-granularity", || {
        let process = mapped();
        told(&process, &["reserve r 8388608", &format!("map r {LEN} 0 h")]);
        all_say([
            ask(&process, "create x 2101248 1"),
            ask(&process, "create x 0 1"),
            ask(&process, "reserve x 1048576"),
            ask(&process, &format!("map r {LEN} 0 h")),
            ask(&process, &format!("map r+4194304 {LEN} 2097152 h")),
            ask(&process, "map r+4198400 2097152 0 h"),
        ])
    }),
    ("vmm-not-exportable", || {
        let process = one();
        told(&process, &[&format!("create h {LEN} 0")]);
        ask(&process, "export h")
    }),
    ("vmm-no-access", || {
        let without = one();
        told(
            &without,
            &[&format!("create h {LEN} 1"), &format!("reserve a {LEN}"), &format!("map a {LEN} 0 h")],
        );
        let reading = mapped();
        told(&reading, &[&format!("access a {LEN} 1")]);
        all_say([ask(&without, "read a"), ask(&reading, "fill a 9")])
    }),
    ("vmm-free-mapped", || {
        let process = mapped();
        all_say([ask(&process, &format!("unreserve a {LEN}")), ask(&process, "unmap a 2097152")])
    }),
    ("vmm-not-visible", || {
        let machine = Machine::new("devices=2");
        let (exporter, importer) = (process(&machine), machine.respondent(&[("CUDA_VISIBLE_DEVICES", "1")]));
        told(&importer, &["context"]);
        make(&exporter);
        with_fd(&exporter, "export h", &importer, "import h")
    }),
    ("vmm-foreign-fd", || {
        let (exporter, importer) = two();
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        importer.say_with("import h", &[file.as_fd()]);
        let of_file = importer.hear();
        told(&exporter, &["pool p"]);
        all_say([of_file, with_fd(&exporter, "pool-export p", &importer, "import h")])
    }),
];
