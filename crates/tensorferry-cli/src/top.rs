//! `tensorferry top`: which processes share what.

mod report;
mod text;

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use crate::options::Top;
use report::{AllEnded, Report};

/// How often a terminal is written again.
const USUAL_PERIOD: Duration = Duration::from_secs(2);
/// Clears the terminal and goes to its first column and line (ECMA-48: CUP, ED).
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Prints what there is, once or again and again. `size` is that of the terminal, if there is one.
pub(crate) fn run(
    options: &Top,
    out: &mut impl Write,
    size: impl Fn() -> Option<(usize, usize)>,
) -> anyhow::Result<()> {
    let is_terminal = size().is_some();
    let period = match options.every {
        Some(every) => Some(every),
        None => (is_terminal && !options.json && !options.once).then_some(USUAL_PERIOD),
    };
    let mut last: Option<Report> = None;
    loop {
        let next = period.map(|period| Instant::now() + period);
        let report = match Report::make(&options.pids) {
            Ok(report) => report,
            // All that were watched have ended.
            Err(error) if last.is_some() && error.is::<AllEnded>() => {
                if !options.json {
                    writeln!(out, "{error}")?;
                }
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if options.json {
            // A line for each time, for programs that read lines.
            writeln!(out, "{}", serde_json::to_string(&report)?)?;
        } else {
            let text = text::of(&report, last.as_ref());
            match size().filter(|_| period.is_some()) {
                Some(size) => write!(out, "{CLEAR}{}", text::cut_to(&text, size))?,
                None => write!(out, "{text}")?,
            }
        }
        out.flush()?;
        let Some(next) = next else { return Ok(()) };
        last = Some(report);
        while let Some(left) = next.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            thread::park_timeout(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Larger than any process number (proc_sys_kernel(5), `pid_max`).
    const NOBODY: u32 = (1 << 22) + 1;

    #[test]
    fn that_none_was_there_from_the_start_is_an_error_also_where_it_would_go_on() {
        for every in [None, Some(Duration::from_millis(50))] {
            let (options, mut out) = (Top { every, pids: vec![NOBODY], ..Top::default() }, Vec::new());
            let error = run(&options, &mut out, || None).unwrap_err();
            assert_eq!(error.to_string(), format!("there is no process {NOBODY}, or it has ended"));
            assert_eq!(out, b"");
        }
    }
}
