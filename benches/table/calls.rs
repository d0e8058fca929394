//! System calls for each message, counted by strace(1) in runs of their own that nobody times.

use std::path::Path;

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
}

impl Calls {
    pub(crate) fn json(&self) -> serde_json::Value {
        json!({ "row": self.row, "way": self.way, "calls_per_message": self.per_message })
    }
}

/// Counts for a few rows; nothing when there is no strace.
pub(crate) fn count(options: &Options, programs: &Programs) -> anyhow::Result<Vec<Calls>> {
    let rows = [
        ("latency-4", Ask::new(Row::Latency, 4, 16), 200_000),
        ("stream-4", Ask::new(Row::Stream, 4, 256), 200_000),
        ("fresh-1m", Ask::new(Row::Fresh, 1 << 20, 4), 20_000),
    ];
    let ways = [Way::Ferry, Way::Floor, Way::IcePoll, Way::IpcShm, Way::Socket];
    let mut all = Vec::new();
    for (row, ask, n_messages) in rows.iter().filter(|(row, ..)| options.wants(row)) {
        for way in ways {
            let Some(program) = programs.program(way) else { continue };
            // Ways that call for each message are slow under strace, and need fewer to be counted.
            let n_messages = if matches!(way, Way::IpcShm | Way::Socket) { FEW * 3 } else { *n_messages };
            let with = |exactly| Ask { way, exactly: Some(exactly), ..ask.clone() };
            let (Some(few), Some(many)) =
                (calls_of(&program, &with(FEW))?, calls_of(&program, &with(n_messages))?)
            else {
                return Ok(Vec::new());
            };
            // A round trip is two messages.
            let n_each = if ask.row == Row::Latency { 2 } else { 1 };
            let per_message = (many as f64 - few as f64).max(0.0) / ((n_messages - FEW) * n_each) as f64;
            all.push(Calls { row, way, per_message });
        }
    }
    Ok(all)
}

/// All system calls of a program and its children; `None` when there is no strace.
pub(crate) fn calls_of(program: &Path, ask: &Ask) -> anyhow::Result<Option<u64>> {
    let file = std::env::temp_dir().join(format!("tensorferry-calls-{}", std::process::id()));
    let mut strace = command("strace");
    strace.args(["-f", "-c", "-o"]).arg(&file).arg(program).arg(serde_json::to_string(ask)?);
    let Ok(output) = strace.output() else { return Ok(None) };
    anyhow::ensure!(output.status.success(), "under strace: {}", String::from_utf8_lossy(&output.stderr));
    let summary = std::fs::read_to_string(&file)?;
    std::fs::remove_file(&file)?;
    let total = summary.lines().rev().find(|line| line.trim_end().ends_with("total")).context("no total")?;
    // Share, seconds, microseconds per call, calls, perhaps errors, "total".
    Ok(Some(total.split_ascii_whitespace().nth(3).context("no number of calls")?.parse()?))
}
