//! System calls for each message, counted in runs of their own that nobody times.
//!
//! perf(1) counts them while the programs run as fast as ever. strace(1) stops them at each, so that whoever
//! sleeps takes longer to wake than the others spin: it shows more calls than there are without it, and is
//! asked only where there is no perf.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use serde_json::json;
use tensorferry_benches::{Ask, Row, Way};

use crate::options::Options;
use crate::programs::{Programs, command};

/// The difference of two runs is what the messages cost, without starting and ending.
const FEW: u64 = 1_000;

/// What one way costs.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) row: &'static str,
    pub(crate) way: Way,
    pub(crate) per_message: f64,
    pub(crate) counter: Counter,
}

impl Calls {
    pub(crate) fn json(&self) -> serde_json::Value {
        json!({ "row": self.row, "way": self.way, "calls_per_message": self.per_message, "counted_by": self.counter.name() })
    }
}

/// Counts for a few rows; nothing when there is no counter.
pub(crate) fn count(options: &Options, programs: &Programs) -> anyhow::Result<Vec<Calls>> {
    let rows = [
        ("latency-4", Ask::new(Row::Latency, 4, 16), 200_000),
        ("stream-4", Ask::new(Row::Stream, 4, 256), 200_000),
        ("fresh-1m", Ask::new(Row::Fresh, 1 << 20, 4), 20_000),
    ];
    let Some(counter) = Counter::find() else { return Ok(Vec::new()) };
    let ways = [Way::Ferry, Way::Floor, Way::IcePoll, Way::IpcShm, Way::Socket];
    let mut all = Vec::new();
    for (row, ask, n_messages) in rows.iter().filter(|(row, ..)| options.wants(row)) {
        for way in ways {
            let Some(program) = programs.program(way) else { continue };
            // Ways that call for each message are slow under strace, and need fewer to be counted.
            let n_messages = if matches!(way, Way::IpcShm | Way::Socket) { FEW * 3 } else { *n_messages };
            let with = |exactly| Ask { way, exactly: Some(exactly), ..ask.clone() };
            let few = counter.calls_of(&program, &with(FEW))?;
            let many = counter.calls_of(&program, &with(n_messages))?;
            // A round trip is two messages.
            let n_each = if ask.row == Row::Latency { 2 } else { 1 };
            let per_message = (many as f64 - few as f64).max(0.0) / ((n_messages - FEW) * n_each) as f64;
            all.push(Calls { row, way, per_message, counter });
        }
    }
    Ok(all)
}

/// Who counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counter {
    Perf,
    Strace,
}

impl Counter {
    /// The one that works here, if any.
    pub(crate) fn find() -> Option<Self> {
        let of_nothing = |counter: &Self| matches!(counter.count(command("true")), Ok(Some(_)));
        [Self::Perf, Self::Strace].into_iter().find(of_nothing)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Perf => "perf(1)",
            Self::Strace => "strace(1)",
        }
    }

    /// All system calls of a program and its children.
    pub(crate) fn calls_of(self, program: &Path, ask: &Ask) -> anyhow::Result<u64> {
        let mut asked = command(program);
        asked.arg(serde_json::to_string(ask)?);
        self.count(asked)?.with_context(|| format!("{} counts no more", self.name()))
    }

    /// `None` when it cannot count.
    fn count(self, counted: Command) -> anyhow::Result<Option<u64>> {
        let file = std::env::temp_dir().join(format!("tensorferry-calls-{}", std::process::id()));
        let (program, options): (_, &[&str]) = match self {
            Self::Perf => ("perf", &["stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-o"]),
            Self::Strace => ("strace", &["-f", "-c", "-o"]),
        };
        let mut counting = command(program);
        counting.args(options).arg(&file).arg(counted.get_program()).args(counted.get_args());
        let Ok(output) = counting.output() else { return Ok(None) };
        let summary = std::fs::read_to_string(&file).unwrap_or_default();
        let _ = std::fs::remove_file(&file);
        let n_calls = self.read(&summary);
        anyhow::ensure!(
            n_calls.is_none() || output.status.success(),
            "under {}: {}",
            self.name(),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(n_calls)
    }

    fn read(self, summary: &str) -> Option<u64> {
        let mut lines = summary.lines();
        let number = match self {
            // The number, a unit (none), the event.
            Self::Perf => lines.find(|line| line.contains("raw_syscalls:sys_enter"))?.split(',').next()?,
            // Share, seconds, microseconds per call, calls, perhaps errors, "total".
            Self::Strace => {
                let total = lines.rfind(|line| line.trim_end().ends_with("total"))?;
                total.split_ascii_whitespace().nth(3)?
            }
        };
        number.trim().parse().ok()
    }
}
