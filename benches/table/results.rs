//! Rounds of measurements, and what follows from them.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::time::Instant;

use serde_json::json;
use tensorferry_benches::{Answer, Ask, Row, Way, median};

use crate::calls::Calls;
use crate::catalogue::{COLUMNS, Column, Entry};
use crate::near::{Asked, Nearness};
use crate::options::Options;
use crate::programs::Programs;

/// One round: every row in every column, one after the other.
#[derive(Debug)]
pub(crate) struct Round {
    nearness: Nearness,
    left_out: Vec<(&'static str, Column)>,
    answers: BTreeMap<(&'static str, Column), (Way, Answer)>,
}

/// All rounds.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) rows: Vec<Entry>,
    pub(crate) rounds: Vec<Round>,
    pub(crate) calls: Vec<Calls>,
}

/// Least, median and most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Self { min, median: median(values), max })
    }
}

/// What a cache line took from one processor to the other around the measurements that count, and how many
/// did not.
impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Nearness { near_ns, n_again, .. } = &self.nearness;
        match near_ns.as_slice() {
            [] => f.write_str("no time that counts")?,
            near_ns => write!(f, "{:.0} ns", median(near_ns))?,
        }
        write!(f, " ({n_again} again, {} left out)", self.left_out.len())
    }
}

impl Round {
    fn figure(&self, row: &str, column: Column, figure: &str) -> Option<f64> {
        let found = self.answers.iter().find(|((id, other), _)| *id == row && *other == column)?;
        found.1.1.0.get(figure).copied()
    }
}

impl Results {
    pub(crate) fn measure(
        options: &Options,
        programs: &mut Programs,
        rows: Vec<Entry>,
    ) -> anyhow::Result<Self> {
        let rounds = (1..=options.rounds).map(|number| one_round(options, programs, &rows, number));
        let rounds = rounds.collect::<anyhow::Result<_>>()?;
        Ok(Self { rows, rounds, calls: Vec::new() })
    }

    /// The figure in every round that has it.
    pub(crate) fn values(&self, row: &str, column: Column, figure: &str) -> Vec<f64> {
        self.rounds.iter().filter_map(|round| round.figure(row, column, figure)).collect()
    }

    /// Whether it was measured in vain in some round.
    pub(crate) fn was_left_out(&self, row: &str, column: Column) -> bool {
        self.rounds.iter().flat_map(|round| &round.left_out).any(|(id, other)| *id == row && *other == column)
    }

    pub(crate) fn spread(&self, row: &str, column: Column, figure: &str) -> Option<Spread> {
        Spread::of(&self.values(row, column, figure))
    }

    /// The median of the ratios within each round.
    pub(crate) fn ratio(&self, above: (&str, Column, &str), below: (&str, Column, &str)) -> Option<f64> {
        let ratio = |round: &Round| {
            Some(round.figure(above.0, above.1, above.2)? / round.figure(below.0, below.1, below.2)?)
        };
        let ratios: Vec<_> = self.rounds.iter().filter_map(ratio).collect();
        Spread::of(&ratios).map(|spread| spread.median)
    }

    /// How many times as long as tensorferry a column takes.
    pub(crate) fn times_ferry(&self, row: &Entry, column: Column) -> Option<f64> {
        let (theirs, ours) = ((row.id, column, row.figure), (row.id, Column::Ferry, row.figure));
        if row.is_time() { self.ratio(theirs, ours) } else { self.ratio(ours, theirs) }
    }

    /// The way that was best most often.
    pub(crate) fn best_way(&self, row: &str, column: Column) -> Option<Way> {
        let mut seen = BTreeMap::new();
        for round in &self.rounds {
            if let Some((way, _)) = round
                .answers
                .iter()
                .find(|((id, other), _)| *id == row && *other == column)
                .map(|found| found.1)
            {
                *seen.entry(*way).or_insert(0) += 1;
            }
        }
        seen.into_iter().max_by_key(|(_, n_rounds)| *n_rounds).map(|(way, _)| way)
    }

    /// Everything, for programs.
    pub(crate) fn json(&self, programs: &Programs) -> serde_json::Value {
        let rounds: Vec<_> = self
            .rounds
            .iter()
            .map(|round| {
                let answers = round.answers.iter().map(|((row, column), (way, answer))| {
                json!({ "row": row, "column": column.title(), "way": way, "figures": answer })
            });
                let answers: Vec<_> = answers.collect();
                let Nearness { near_ns, n_again, .. } = &round.nearness;
                let n_left_out = round.left_out.len();
                json!({ "line_ns": median(near_ns), "again": n_again, "left_out": n_left_out, "answers": answers })
            })
            .collect();
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|row| json!({ "row": row.id, "title": row.title, "figure": row.figure, "ask": row.ask }))
            .collect();
        let calls: Vec<_> = self.calls.iter().map(Calls::json).collect();
        json!({ "machine": crate::machine::facts(programs), "rows": rows, "rounds": rounds, "calls": calls })
    }
}

fn one_round(
    options: &Options,
    programs: &mut Programs,
    rows: &[Entry],
    number: usize,
) -> anyhow::Result<Round> {
    let mut out = std::io::stdout();
    let nearness = Nearness::look(programs)?;
    let mut round = Round { nearness, left_out: Vec::new(), answers: BTreeMap::new() };
    writeln!(out, "round {number}")?;
    for row in rows {
        write!(out, "  {}", row.id)?;
        for column in COLUMNS {
            // A process with torch takes seconds to start.
            let is_slow = row.ask.row == Row::Spawn && matches!(column, Column::TorchFd | Column::TorchFs);
            if is_slow && number > 2 {
                continue;
            }
            let mut best: Option<(Way, Answer)> = None;
            for way in row.ways(column) {
                let seconds = row.ask.seconds / 0.3 * options.seconds;
                let begin = Instant::now();
                let ask = Ask { way, seconds, ..row.ask.clone() };
                let answer = match round.nearness.ask(programs, &ask)? {
                    Asked::Counts(answer) => answer,
                    Asked::NotHere => continue,
                    // The better of several ways is not known then.
                    Asked::LeftOut => {
                        round.left_out.push((row.id, column));
                        best = None;
                        break;
                    }
                };
                write!(out, " {way:?} {:.1} s", begin.elapsed().as_secs_f64())?;
                out.flush()?;
                if best.as_ref().is_none_or(|(_, best)| is_better(row, &answer, best)) {
                    best = Some((way, answer));
                }
            }
            if let Some((way, answer)) = best {
                // The limit of starting is measured in turn with it.
                if let Some(command) = answer.0.get("command_us") {
                    let limit = Answer::default().with("spawn_us", *command);
                    round.answers.insert((row.id, Column::Floor), (Way::Floor, limit));
                }
                round.answers.insert((row.id, column), (way, answer));
            }
        }
        writeln!(out)?;
    }
    writeln!(out, "{round}")?;
    Ok(round)
}

fn is_better(row: &Entry, one: &Answer, other: &Answer) -> bool {
    let figure = |answer: &Answer| answer.0.get(row.figure).copied().unwrap_or(f64::NAN);
    if row.is_time() { figure(one) < figure(other) } else { figure(one) > figure(other) }
}
