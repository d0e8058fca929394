//! What has to be reached, as ratios within a round.

use std::io::Write as _;
use std::process::ExitCode;

use tensorferry_benches::{Ask, Row, Way, median, number};

use crate::calls::Counter;
use crate::catalogue::{Column, rows};
use crate::options::Options;
use crate::programs::Programs;
use crate::results::Results;

/// A figure of a row in a column.
type Cell = (&'static str, Column, &'static str);

/// What is compared: a ratio of two figures, or one figure alone.
#[derive(Clone, Copy, Debug)]
enum Quantity {
    Ratio(Cell, Cell),
    Figure(Cell),
    /// The most of any round.
    Most(Cell),
    /// Shared and private bytes of a live tensor, both sides.
    Memory(&'static str),
}

#[derive(Clone, Copy, Debug)]
enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

#[derive(Clone, Debug)]
struct Bound {
    what: String,
    quantity: Quantity,
    limit: Limit,
}

/// How often a bound may be tried; the best counts.
const TRIES: usize = 3;
/// Nobody is so many times as fast as the limit of the machine: then the limit's program was disturbed, by
/// two processes that look without end on one processor, say, and the measurement does not count.
const BEYOND_BELIEF: f64 = 2.0;
/// System calls for each message, both sides together.
const MAX_CALLS: f64 = 1e-4;

fn at_most(what: impl Into<String>, above: Cell, below: Cell, limit: f64) -> Bound {
    Bound { what: what.into(), quantity: Quantity::Ratio(above, below), limit: Limit::AtMost(limit) }
}

fn at_least(what: impl Into<String>, above: Cell, below: Cell, limit: f64) -> Bound {
    Bound { what: what.into(), quantity: Quantity::Ratio(above, below), limit: Limit::AtLeast(limit) }
}

fn against(what: &str, column: Column) -> String {
    format!("{what}, against {}", column.title())
}

const fn us(row: &'static str, column: Column) -> Cell {
    (row, column, "one_way_us")
}

const fn rate(row: &'static str, column: Column) -> Cell {
    (row, column, "messages_per_s")
}

fn bounds() -> Vec<Bound> {
    [of_latency(), of_fresh(), of_the_rest()].concat()
}

fn of_latency() -> Vec<Bound> {
    use Column::{Ferry, Floor, Iceoryx2, IpcChannel};
    let mut bounds = Vec::new();
    for (row, polling, limit) in [
        ("latency-4", "latency-4-polling", 0.8),
        ("latency-1m", "latency-1m-polling", 1.05),
        ("latency-64m", "latency-64m-polling", 1.05),
    ] {
        for row in [row, polling] {
            bounds.push(at_most("existing, busy, against the limit", us(row, Ferry), us(row, Floor), 1.5));
            bounds.push(at_most(
                "existing, busy, against iceoryx2",
                us(row, Ferry),
                us(row, Iceoryx2),
                limit,
            ));
        }
    }
    for row in ["asleep-4", "asleep-4-pinned"] {
        bounds.push(at_most("asleep, against a bare futex", us(row, Ferry), us(row, Floor), 1.2));
        for column in [IpcChannel, Iceoryx2] {
            bounds.push(at_most(against("asleep", column), us(row, Ferry), us(row, column), 1.0));
        }
    }
    bounds
}

fn of_fresh() -> Vec<Bound> {
    use Column::{Ferry, Floor, Iceoryx2, IpcChannel, Payload, Socket, TorchFd};
    let mut bounds = Vec::new();
    for row in ["fresh-1m", "fresh-16m"] {
        for column in [Floor, Iceoryx2] {
            bounds.push(at_least(
                against("fresh, written and summed", column),
                rate(row, Ferry),
                rate(row, column),
                0.9,
            ));
        }
        let faults = (row, Ferry, "faults_per_message");
        bounds.push(Bound {
            what: "page faults for each message".to_owned(),
            quantity: Quantity::Figure(faults),
            limit: Limit::AtMost(0.001),
        });
    }
    bounds.extend([
        at_least("fresh 1 MiB, against torch fd", rate("fresh-1m", Ferry), rate("fresh-1m", TorchFd), 25.0),
        at_least("fresh 1 MiB, torch fd again", rate("again-1m", Ferry), rate("again-1m", TorchFd), 10.0),
        at_least("fresh 4 KiB, against the limit", rate("fresh-4k", Ferry), rate("fresh-4k", Floor), 0.6),
        at_least("fresh 4 KiB, against torch fd", rate("fresh-4k", Ferry), rate("fresh-4k", TorchFd), 500.0),
    ]);
    for column in [Payload, Socket, IpcChannel] {
        bounds.push(at_least(
            against("fresh 4 KiB", column),
            rate("fresh-4k", Ferry),
            rate("fresh-4k", column),
            3.0,
        ));
    }
    bounds
}

fn of_the_rest() -> Vec<Bound> {
    use Column::{Ferry, Floor};
    vec![
        at_most("time of 100 tensors against 1", rate("one", Ferry), rate("hundred", Ferry), 20.0),
        at_most("time of a bundle of 100 tensors against 1", rate("one", Ferry), rate("bundle", Ferry), 20.0),
        at_least("2 and 2 against 1 and 1", rate("pairs-2", Ferry), rate("pairs-1", Ferry), 0.7),
        at_most("spawn against Command", ("spawn-1", Ferry, "spawn_us"), ("spawn-1", Floor, "spawn_us"), 1.2),
        at_most("4 processes against 1", ("spawn-4", Ferry, "spawn_us"), ("spawn-1", Ferry, "spawn_us"), 2.5),
        at_most(
            "a live tensor of 1,000,000 against 10,000",
            ("live-1m", Ferry, "both_ns"),
            ("live-10k", Ferry, "both_ns"),
            4.0,
        ),
        at_most("30 idle members", us("members-32", Ferry), us("members-2", Ferry), 1.2),
        Bound {
            what: "the lesser consumer's share".to_owned(),
            quantity: Quantity::Figure(("pairs-2", Ferry, "least_share")),
            limit: Limit::AtLeast(0.25),
        },
        Bound {
            what: "bytes of a live tensor".to_owned(),
            quantity: Quantity::Memory("live-1m"),
            limit: Limit::AtMost(512.0),
        },
        Bound {
            what: "descriptors more than before".to_owned(),
            quantity: Quantity::Most(("live-1m", Ferry, "descriptors")),
            limit: Limit::AtMost(0.0),
        },
    ]
}

impl Quantity {
    fn cells(&self) -> Vec<Cell> {
        match *self {
            Self::Ratio(above, below) => vec![above, below],
            Self::Figure(cell) | Self::Most(cell) => vec![cell],
            Self::Memory(row) => ["shared_bytes", "private_bytes", "receiver_private_bytes"]
                .map(|name| (row, Column::Ferry, name))
                .into(),
        }
    }

    fn value(&self, results: &Results) -> Option<f64> {
        let median = |cell: &Cell| results.spread(cell.0, cell.1, cell.2).map(|spread| spread.median);
        match self {
            Self::Ratio(above, below) => results.ratio(*above, *below),
            Self::Figure(cell) => median(cell),
            Self::Most(cell) => results.spread(cell.0, cell.1, cell.2).map(|spread| spread.max),
            Self::Memory(_) => self.cells().iter().map(median).sum(),
        }
    }
}

impl Limit {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }

    fn better(self, one: f64, other: f64) -> f64 {
        match self {
            Self::AtMost(_) => one.min(other),
            Self::AtLeast(_) => one.max(other),
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtMost(limit) => format!("at most {}", number(limit)),
            Self::AtLeast(limit) => format!("at least {}", number(limit)),
        }
    }
}

impl Bound {
    /// Whether what was measured can be true.
    fn is_plausible(&self, value: f64) -> bool {
        match (self.quantity, self.limit) {
            (Quantity::Ratio(_, (_, Column::Floor, _)), Limit::AtMost(_)) => value >= 1.0 / BEYOND_BELIEF,
            (Quantity::Ratio(_, (_, Column::Floor, _)), Limit::AtLeast(_)) => value <= BEYOND_BELIEF,
            _ => true,
        }
    }
}

/// A bound in the tries.
struct Tried {
    bound: Bound,
    best: Option<f64>,
    /// In the last try.
    was_disturbed: bool,
}

impl Tried {
    fn note(&mut self, results: &Results) {
        let value = self.bound.quantity.value(results);
        let plausible = value.filter(|value| self.bound.is_plausible(*value));
        self.was_disturbed = value.is_some() && plausible.is_none();
        if let Some(value) = plausible {
            self.best = Some(self.best.map_or(value, |best| self.bound.limit.better(best, value)));
        }
    }

    /// What was not measured because there is no such program is settled; what was left out or disturbed is
    /// not.
    fn is_done(&self, results: &Results) -> bool {
        let was_left_out =
            || self.bound.quantity.cells().iter().any(|cell| results.was_left_out(cell.0, cell.1));
        let is_settled = || !self.was_disturbed && !was_left_out();
        self.best.map_or_else(is_settled, |value| self.bound.limit.holds(value))
    }
}

/// Measures the rows that have a bound, prints each ratio beside its bound, and fails when one falls short in
/// every try. What needs a peer that is not here is said to be open, and does not fail; what could not be
/// measured fails.
pub(crate) fn check(options: &Options, programs: &mut Programs) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout();
    let wanted = bounds().into_iter().filter(|bound| wants(options, bound));
    let tried = |bound| Tried { bound, best: None, was_disturbed: false };
    let (mut open, mut done): (Vec<_>, Vec<_>) = (wanted.map(tried).collect(), Vec::new());
    for attempt in 1..=TRIES {
        let wanted: Vec<_> = open.iter().flat_map(|tried| tried.bound.quantity.cells()).collect();
        let mut entries = rows();
        entries.retain(|row| wanted.iter().any(|cell| cell.0 == row.id));
        if entries.is_empty() {
            break;
        }
        writeln!(out, "try {attempt}: {} rows", entries.len())?;
        let results = Results::measure(options, programs, entries)?;
        open.iter_mut().for_each(|tried| tried.note(&results));
        done.extend(open.extract_if(.., |tried| tried.is_done(&results)));
    }
    let mut all_hold = open.is_empty();
    let verdicts =
        done.into_iter().map(|done| (true, done)).chain(open.into_iter().map(|open| (false, open)));
    for (is_done, Tried { bound, best, .. }) in verdicts {
        let verdict = match best {
            None if is_done => "open ",
            Some(_) if is_done => "holds",
            _ => "FAILS",
        };
        let shown = best.map_or_else(|| "not measured".to_owned(), number);
        let row = bound.quantity.cells().first().map_or("", |cell| cell.0);
        writeln!(out, "{verdict} {row}: {}: {shown}, {}", bound.what, bound.limit.text())?;
    }
    if options.wants("latency-4") {
        all_hold &= check_calls(programs, &mut out)?;
    }
    Ok(if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn wants(options: &Options, bound: &Bound) -> bool {
    bound.quantity.cells().iter().any(|cell| options.wants(cell.0))
}

fn check_calls(programs: &Programs, out: &mut impl std::io::Write) -> anyhow::Result<bool> {
    let Some(program) = programs.program(Way::Ferry) else { return Ok(true) };
    let Some(counter) = Counter::find() else {
        writeln!(out, "open  latency-4: system calls for each message: there is no perf and no strace")?;
        return Ok(true);
    };
    let calls = |exactly| {
        let ask = Ask { exactly: Some(exactly), ..Ask::new(Row::Latency, 4, 16) };
        counter.calls_of(&program, &ask)
    };
    let (few, many) = (1_000_u64, 300_000_u64);
    let mut all = Vec::new();
    for _ in 0..TRIES {
        let n_calls = calls(many)? as f64 - calls(few)? as f64;
        // A round trip is two messages.
        all.push(n_calls / (2 * (many - few)) as f64);
    }
    // Not the best: a short run that was disturbed would do for that.
    let per_message = median(&all).max(0.0);
    let verdict = if per_message <= MAX_CALLS { "holds" } else { "FAILS" };
    writeln!(
        out,
        "{verdict} latency-4: system calls for each message: {}, at most {MAX_CALLS}",
        number(per_message)
    )?;
    Ok(per_message <= MAX_CALLS)
}
