//! Interprocess events, and streams.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Probe, all_say, ask, one, process, told, two};
use crate::{Machine, Process};

/// A process whose event is recorded behind work that is held, one that has opened the event, and its handle.
fn pending() -> (Process, Process, String) {
    let (exporter, importer) = two();
    told(&exporter, &["alloc a 4194304", "event e 6", "hold", "queue-fill a 7", "record e"]);
    let handle = ask(&exporter, "event-handle e");
    told(&importer, &[&format!("open-event e {handle}")]);
    assert_eq!(ask(&importer, "query e"), "CUDA_ERROR_NOT_READY");
    (exporter, importer, handle)
}

/// How long a probe waits for what may never come.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a line is answered that may never end.
fn ends(process: &Process, line: &str) -> String {
    process.say(line);
    process.hear_within(PATIENCE).unwrap_or_else(|| "does not end".to_owned())
}

/// What another thread, in this mode, is told during a capture in global mode, and how the capture ends.
fn met_elsewhere(mode: &str) -> String {
    let process = one();
    told(&process, &["event e 6", "capture global"]);
    let met = ask(&process, &format!("query-elsewhere e {mode}"));
    format!("{met}; {}", ask(&process, "end-capture"))
}

/// What lies in `/dev/shm` and looks like a driver's.
fn names() -> BTreeSet<String> {
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("cuda") || name.contains("nvidia")).collect()
}

pub(super) const PROBES: &[Probe] = &[
    ("event-recorder-killed", || {
        let (exporter, importer, _) = pending();
        told(&importer, &["wait e"]);
        exporter.kill();
        ends(&importer, "synchronize")
    }),
    ("event-recorded-twice", || {
        let (exporter, importer, _) = pending();
        told(&importer, &["record e"]);
        importer.say("synchronize");
        let is_waiting = importer.hear_within(PATIENCE).is_none();
        told(&exporter, &["run", "synchronize"]);
        match (is_waiting, importer.hear().as_str()) {
            (true, "ok") => "waits for the other's".to_owned(),
            (false, answer) | (true, answer) => format!("{is_waiting}, {answer}"),
        }
    }),
    ("event-recorder-killed-again", || {
        let (exporter, importer, _) = pending();
        exporter.kill();
        told(&importer, &["record e"]);
        ends(&importer, "synchronize")
    }),
    ("event-destroyed", || {
        let (exporter, importer, handle) = pending();
        told(&exporter, &["run", "synchronize", "destroy e"]);
        let used = ask(&importer, "query e");
        format!("{used}; {}", ask(&importer, &format!("open-event f {handle}")))
    }),
    ("event-same-process", || {
        let process = one();
        told(&process, &["event e 6"]);
        let handle = ask(&process, "event-handle e");
        ask(&process, &format!("open-event f {handle}"))
    }),
    ("event-names", || {
        let before = names();
        let (exporter, importer, _) = pending();
        importer.kill();
        exporter.kill();
        match names().difference(&before).count() {
            0 => "nothing".to_owned(),
            n => format!("{n} names"),
        }
    }),
    ("event-flags", || {
        let process = one();
        told(&process, &["event local 0"]);
        all_say([ask(&process, "event e 4"), ask(&process, "event e 8"), ask(&process, "event-handle local")])
    }),
    ("event-other-device", || {
        let process = process(&Machine::new("devices=2"));
        told(&process, &["event e 6", "stream-of 1"]);
        ask(&process, "record e")
    }),
    ("event-unrecorded", || {
        let process = one();
        told(&process, &["event e 6"]);
        match all_say([ask(&process, "query e"), ask(&process, "wait e"), ask(&process, "synchronize")])
            .as_str()
        {
            "ok" => "done".to_owned(),
            other => other.to_owned(),
        }
    }),
    ("event-binds", || {
        let process = one();
        // The other stream waits before the record, which is held.
        told(
            &process,
            &["alloc a 4194304", "event e 6", "wait-other e", "hold", "queue-fill a 7", "record e"],
        );
        match all_say([ask(&process, "synchronize-other"), ask(&process, "run")]).as_str() {
            "ok" => "bound at the call".to_owned(),
            other => other.to_owned(),
        }
    }),
    ("capture-refused", || {
        let process = one();
        told(&process, &["alloc a 4194304", "event e 6", "capture relaxed"]);
        all_say([
            ask(&process, "record e"),
            ask(&process, "wait e"),
            ask(&process, "queue-fill a 7"),
            ask(&process, "synchronize"),
        ])
    }),
    ("capture-global", || met_elsewhere("global")),
    ("capture-relaxed-thread", || met_elsewhere("relaxed")),
];
