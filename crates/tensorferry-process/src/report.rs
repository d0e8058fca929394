//! Why an entry failed, in a form that can be sent.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tensorferry_os::child::monotonic_now;

/// Limits of the parts of a report, in bytes. Together they stay below the longest frame and below the
/// capacity of a socket. So a child never waits for a parent that does not read.
const MAX_MESSAGE_LEN_BYTES: usize = 16 << 10;
const MAX_BACKTRACE_LEN_BYTES: usize = 32 << 10;
const MAX_LINK_LEN_BYTES: usize = 1 << 10;
const MAX_LINKS: usize = 16;
const MAX_NAME_LEN_BYTES: usize = 1 << 10;

/// How an entry failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ReportKind {
    /// It panicked.
    Panic,
    /// It returned an error.
    Error,
    /// It was not run, because the parent's request cannot be carried out.
    Refused,
}

/// A location in source code.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Location {
    /// The path as the compiler was given it.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// A child's report of its failure.
///
/// `Display` writes one line, then one line for each cause. The alternate form (`{:#}`) adds the backtrace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// Panic, error or refusal.
    pub kind: ReportKind,
    /// The message of the panic or error, cut at 16 KiB.
    pub message: String,
    /// Where it panicked. `None` for an error, which does not record a location.
    pub location: Option<Location>,
    /// The name of the thread that failed.
    pub thread: String,
    /// The causes of an error, nearest first. For a panic, earlier panics on other threads.
    pub chain: Vec<String>,
    /// The stack of the panicking thread, cut at 64 frames and 32 KiB. Captured unless `RUST_BACKTRACE` or
    /// `RUST_LIB_BACKTRACE` is `0`.
    pub backtrace: Option<String>,
    /// When it failed, on a clock that all processes of the machine share (`CLOCK_MONOTONIC`).
    pub raised_at: Duration,
}

impl Report {
    /// A report with `message` and nothing else.
    pub(crate) fn new(kind: ReportKind, message: &str) -> Self {
        Self {
            kind,
            message: cut(message, MAX_MESSAGE_LEN_BYTES),
            location: None,
            thread: String::from("main"),
            chain: Vec::new(),
            backtrace: None,
            raised_at: monotonic_now(),
        }
    }

    /// The report of work that was not begun.
    #[must_use]
    pub fn refused(message: &str) -> Self {
        Self::new(ReportKind::Refused, message)
    }

    /// The report of a returned error: its message and those of its sources.
    pub(crate) fn of_error(error: &(dyn Error + 'static)) -> Self {
        let mut report = Self::new(ReportKind::Error, &error.to_string());
        let mut source = error.source();
        while let Some(cause) = source {
            if !report.add_link(&cause.to_string()) {
                break;
            }
            source = cause.source();
        }
        report
    }

    /// Adds the location and the thread of a panic.
    pub(crate) fn at(mut self, location: Option<&std::panic::Location<'_>>, thread: &str) -> Self {
        self.location = location.map(|l| Location {
            file: cut(l.file(), MAX_NAME_LEN_BYTES),
            line: l.line(),
            column: l.column(),
        });
        self.thread = cut(thread, MAX_NAME_LEN_BYTES);
        self
    }

    /// The same report with a shorter message.
    pub(crate) fn with_message_cut_to(&self, limit_bytes: usize) -> Self {
        Self { message: cut(&self.message, limit_bytes), ..self.clone() }
    }

    /// Adds one cause. Returns false when there is no room for another.
    pub(crate) fn add_link(&mut self, text: &str) -> bool {
        if self.chain.len() >= MAX_LINKS {
            return false;
        }
        self.chain.push(cut(text, MAX_LINK_LEN_BYTES));
        true
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ReportKind::Panic => {
                write!(f, "thread '{}' panicked", self.thread)?;
                if let Some(location) = &self.location {
                    write!(f, " at {location}")?;
                }
                write!(f, ": {}", self.message)?;
            }
            ReportKind::Error => write!(f, "returned an error: {}", self.message)?,
            ReportKind::Refused => write!(f, "was not run: {}", self.message)?,
        }
        for cause in &self.chain {
            write!(f, "\n  caused by: {cause}")?;
        }
        match &self.backtrace {
            Some(backtrace) if f.alternate() => write!(f, "\n  backtrace:\n{}", backtrace.trim_end()),
            _ => Ok(()),
        }
    }
}

/// The first `limit_bytes` of a text, cut at a character boundary, with a note of how much is missing.
fn cut(text: &str, limit_bytes: usize) -> String {
    if text.len() <= limit_bytes {
        return text.to_owned();
    }
    let kept = text.floor_char_boundary(limit_bytes);
    format!("{} ... ({} more bytes)", &text[..kept], text.len() - kept)
}

/// Keeps the frames of interest: without the panic machinery above and the process entry below them.
///
/// `text` is the output of `std::backtrace`. A frame begins with spaces, its number and a colon, then the
/// name. An indented line `at file:line` may follow it. The frames of this library begin at the first whose
/// name contains `entry_marker`.
pub(crate) fn trim_backtrace(text: &str, entry_marker: &str) -> String {
    const MAX_FRAMES: usize = 64;
    const MACHINERY: [&str; 6] = [
        "core::panicking::",
        "std::panicking::",
        "__rustc::rust_begin_unwind",
        "rust_begin_unwind",
        "core::result::unwrap_failed",
        "core::option::",
    ];
    let frames = frames(text);
    let end = frames.iter().position(|frame| frame.contains(entry_marker)).unwrap_or(frames.len());
    // The standard library places this function between the panic and its own handling of it.
    let hook_end = frames.iter().position(|frame| frame.contains("__rust_end_short_backtrace"));
    let mut start = hook_end.map_or(0, |at| at + 1);
    while frames.get(start).is_some_and(|f| MACHINERY.iter().any(|name| frame_name(f).starts_with(name))) {
        start += 1;
    }
    let wanted = frames.get(start..end).unwrap_or(&frames);
    let renumbered = |(number, frame): (usize, &&str)| {
        let rest = frame.split_once(':').map_or("", |(_, rest)| rest);
        format!("{number:4}:{rest}")
    };
    let mut kept: String = wanted.iter().take(MAX_FRAMES).enumerate().map(renumbered).collect();
    if wanted.len() > MAX_FRAMES {
        kept.push_str("  ... more frames\n");
    }
    cut(&kept, MAX_BACKTRACE_LEN_BYTES)
}

/// One slice per frame, including its `at` line.
fn frames(text: &str) -> Vec<&str> {
    let mut starts = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let number = line.trim_start().split(':').next().unwrap_or_default();
        if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) {
            starts.push(at);
        }
        at += line.len();
    }
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    starts.iter().zip(ends).filter_map(|(&start, end)| text.get(start..end)).collect()
}

/// The function's name in a frame's first line.
fn frame_name(frame: &str) -> &str {
    frame.lines().next().and_then(|line| line.split_once(": ")).map_or("", |(_, name)| name.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Nested {
        text: &'static str,
        source: Option<Box<Nested>>,
    }

    #[test]
    fn an_error_is_told_with_all_its_causes() {
        let root = Nested { text: "disk on fire", source: None };
        let middle = Nested { text: "cannot read", source: Some(Box::new(root)) };
        let report = Report::of_error(&Nested { text: "no data", source: Some(Box::new(middle)) });
        assert_eq!((report.kind, report.message.as_str()), (ReportKind::Error, "no data"));
        assert_eq!(report.chain, ["cannot read", "disk on fire"]);
        assert_eq!(
            report.to_string(),
            "returned an error: no data\n  caused by: cannot read\n  caused by: disk on fire"
        );
    }

    #[test]
    fn a_panic_is_told_with_thread_and_place_and_on_request_with_its_stack() {
        let mut report = Report::new(ReportKind::Panic, "boom");
        report.thread = "loader".into();
        report.location = Some(Location { file: "src/a.rs".into(), line: 3, column: 9 });
        report.backtrace = Some("   0: worker\n".into());
        assert_eq!(report.to_string(), "thread 'loader' panicked at src/a.rs:3:9: boom");
        assert!(format!("{report:#}").ends_with("backtrace:\n   0: worker"));
    }

    #[test]
    fn the_longest_report_fits_into_a_frame() {
        let mut report = Report::new(ReportKind::Panic, &"\u{20ac}".repeat(1 << 20));
        while report.add_link(&"x".repeat(1 << 20)) {}
        report.thread = cut(&"t".repeat(1 << 20), MAX_NAME_LEN_BYTES);
        let file = cut(&"f".repeat(1 << 20), MAX_NAME_LEN_BYTES);
        report.location = Some(Location { file, line: u32::MAX, column: u32::MAX });
        report.backtrace = Some(cut(&"b".repeat(1 << 20), MAX_BACKTRACE_LEN_BYTES));
        assert!(report.message.ends_with(" more bytes)"));
        let frame = crate::protocol::Frame::Raised(report).encode().unwrap();
        assert!(frame.len() < crate::protocol::MAX_FRAME_LEN_BYTES);
    }

    #[test]
    fn a_backtrace_begins_at_the_panic_and_ends_at_the_entry() {
        let text = "   0: tensorferry_process::hook::record\n             at hook.rs:1:2\n   \
            1: std::panicking::rust_panic_with_hook\n   \
            2: std::sys::backtrace::__rust_end_short_backtrace\n   \
            3: __rustc::rust_begin_unwind\n   4: core::panicking::panic_fmt\n   5: user::inner\n             \
            at src/lib.rs:8:1\n   6: std::panicking::catch_unwind\n   7: user::worker\n   8: entry_marker\n   9: main\n";
        assert_eq!(
            trim_backtrace(text, "entry_marker"),
            "   0: user::inner\n             at src/lib.rs:8:1\n   1: std::panicking::catch_unwind\n   2: user::worker\n"
        );
    }

    #[test]
    fn a_backtrace_without_landmarks_is_kept_but_not_for_ever() {
        let text: String = (0..100).map(|n| format!("{n:4}: f{n}\n")).collect();
        let kept = trim_backtrace(&text, "entry_marker");
        assert!(kept.starts_with("   0: f0\n"));
        assert!(kept.ends_with("  63: f63\n  ... more frames\n"), "{kept}");
        assert_eq!(trim_backtrace("disabled backtrace", "entry_marker"), "");
    }
}
