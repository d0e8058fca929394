//! Whether the two processors are near each other, before and after each measurement.
//!
//! A virtual machine's processors may be moved on their host at any time, three times a second where it was
//! watched: a cache line then takes 28 ns from one to the other, or 230. What is measured across such a move
//! compares nothing.

use tensorferry_benches::{Answer, Ask, Row, Way};

use crate::programs::Programs;

/// Above this a cache line takes so long between the two processors that nothing can be compared.
const MAX_LINE_NS: f64 = 150.0;
/// How often one measurement is made again, and how often all those of a round together.
const AGAIN: usize = 10;
const AGAIN_IN_A_ROUND: usize = 200;
/// How many lines before a measurement may be too slow, and how many before all those of a round; each takes
/// 0.1 s then.
const SLOW_LINES: usize = 50;
const SLOW_LINES_IN_A_ROUND: usize = 1000;

/// How near the processors are in the course of a round.
#[derive(Debug)]
pub(crate) struct Nearness {
    line_ns: f64,
    n_slow_lines: usize,
    /// What the lines took that count.
    pub(crate) near_ns: Vec<f64>,
    /// Measurements that were made again.
    pub(crate) n_again: usize,
}

/// What came of a measurement.
#[derive(Debug)]
pub(crate) enum Asked {
    Counts(Answer),
    /// The processors were never near each other for as long.
    LeftOut,
    /// There is no such program.
    NotHere,
}

impl Nearness {
    pub(crate) fn look(programs: &mut Programs) -> anyhow::Result<Self> {
        let line_ns = line_ns(programs)?;
        Ok(Self { line_ns, n_slow_lines: 0, near_ns: Vec::new(), n_again: 0 })
    }

    /// One measurement, again where a line took too long before or after it.
    pub(crate) fn ask(&mut self, programs: &mut Programs, ask: &Ask) -> anyhow::Result<Asked> {
        for attempt in 0..=AGAIN {
            // Of messages that take hundreds of microseconds, a line is nothing.
            let is_slow = is_slow(ask.way);
            if !is_slow {
                self.wait_until_near(programs)?;
            }
            let Some(answer) = programs.ask(ask)? else { return Ok(Asked::NotHere) };
            if is_slow {
                return Ok(Asked::Counts(answer));
            }
            let before_ns = std::mem::replace(&mut self.line_ns, line_ns(programs)?);
            if before_ns <= MAX_LINE_NS && self.line_ns <= MAX_LINE_NS {
                self.near_ns.push(self.line_ns);
                return Ok(Asked::Counts(answer));
            }
            if self.n_again >= AGAIN_IN_A_ROUND {
                break;
            }
            if attempt < AGAIN {
                self.n_again += 1;
            }
        }
        Ok(Asked::LeftOut)
    }

    /// Looks until a line is fast, or for long enough.
    fn wait_until_near(&mut self, programs: &mut Programs) -> anyhow::Result<()> {
        for _ in 0..SLOW_LINES {
            if self.line_ns <= MAX_LINE_NS || self.n_slow_lines >= SLOW_LINES_IN_A_ROUND {
                break;
            }
            self.n_slow_lines += 1;
            self.line_ns = line_ns(programs)?;
        }
        Ok(())
    }
}

fn is_slow(way: Way) -> bool {
    matches!(way, Way::TorchFd | Way::TorchFs | Way::TorchFdAgain | Way::TorchFsAgain)
}

fn line_ns(programs: &mut Programs) -> anyhow::Result<f64> {
    let line = Ask { way: Way::Floor, pinned: true, ..Ask::new(Row::Line, 4, 1) };
    Ok(programs.ask(&line)?.and_then(|answer| answer.0.get("line_ns").copied()).unwrap_or(f64::NAN))
}
