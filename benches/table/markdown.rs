//! The table as Markdown.

use std::fmt::Write as _;

use tensorferry_benches::{Ask, Row, number};

use crate::catalogue::{COLUMNS, Column, Entry};
use crate::results::{Results, Spread};

const METHOD: &str = "\
Each cell: the median over the rounds (least .. most), and how many times as long as tensorferry it takes in the same
round (above 1: tensorferry is faster). In a round every row is measured in every column, one after the other; the other
process is up and both have warmed up before the clock starts, except in the rows of spawning. A bare cache line is passed from one
processor to the other before and after each measurement but torch's: where it takes more than 150 ns, that measurement is made again, and
left out if that does not help. Latency is half a round trip, the
median over batches; the receiver reads one line of every page. After a pause it is the time from before the send to
after the receipt. A stream is timed in 16 pieces, and the median piece counts. `written and summed`: the sender writes
every element of a tensor that it has just allocated, the receiver adds all of them up. The rows say how many messages
the sender may be ahead; every column has the same. Unless a row says `pinned`, the kernel places the processes.

`copying` is tensorferry's queue with the bytes in its payload, and a Unix stream socket; `ipc-channel` the better of a
shared memory segment for each message and copied bytes; `iceoryx2` polls where both sides are busy and waits for events
where the receiver sleeps. The limit looks for about 50 microseconds before it sleeps, tensorferry for up to 250 while that pays, and
both only in the rows `both polling` for as long as it takes (`set_busy_poll`), as iceoryx2 does wherever it polls. torch sends through `multiprocessing.Queue`, a fresh tensor each time unless
the row says that it sends four again. `limit` is a program of two processes with one mapping, a ring of 64-byte
descriptors, one contended set-and-clear on a block's header for each message, and preallocated buffers that cycle back;
in the rows of spawning it is `std::process::Command` with as many processes of the same executable, which exit at once.
";

pub(crate) fn table(results: &Results, machine: &[String]) -> String {
    let mut text = String::from("# Measured\n\n");
    for line in machine {
        let _ = writeln!(text, "- {line}");
    }
    let lines: Vec<_> = results.rounds.iter().map(ToString::to_string).collect();
    let _ =
        writeln!(text, "- {} rounds; a cache line passed in {}\n\n{METHOD}", lines.len(), lines.join(", "));
    head(&mut text, &COLUMNS.map(Column::title));
    for row in &results.rows {
        let _ = write!(text, "| {} ({}) |", row.title, setting(row));
        for column in COLUMNS {
            let _ = write!(text, " {} |", cell(results, row, column));
        }
        text.push('\n');
    }
    details(&mut text, results);
    text
}

fn head(text: &mut String, titles: &[&str]) {
    let _ = writeln!(text, "| row | {} |\n| --- |{}", titles.join(" | "), " --- |".repeat(titles.len()));
}

/// Working set, ring and processors of a row.
fn setting(row: &Entry) -> String {
    let Ask { depth, size_bytes, row: kind, .. } = row.ask;
    let unit = row.figure.trim_end_matches("_us").trim_end_matches("_ns");
    let unit = match row.figure {
        "messages_per_s" => "messages/s",
        figure if figure.ends_with("_us") => "us",
        figure if figure.ends_with("_ns") => "ns",
        _ => unit,
    };
    let set = match kind {
        Row::Fresh => format!(", ring {depth}, {} in flight", bytes(depth * size_bytes)),
        Row::Spawn | Row::Live | Row::Line => String::new(),
        _ => format!(", ring {depth}"),
    };
    format!("{unit}{set}")
}

fn bytes(n: usize) -> String {
    match n {
        0x10_0000.. => format!("{} MiB", n >> 20),
        0x400.. => format!("{} KiB", n >> 10),
        _ => format!("{n} B"),
    }
}

fn cell(results: &Results, row: &Entry, column: Column) -> String {
    let Some(spread) = results.spread(row.id, column, row.figure) else { return "-".to_owned() };
    let times = results.times_ferry(row, column).filter(|_| column != Column::Ferry);
    let times = times.map_or_else(String::new, |times| format!(" **{}x**", number(times)));
    format!("{}{times}", shown(spread))
}

fn shown(Spread { min, median, max }: Spread) -> String {
    format!("{} ({} .. {})", number(median), number(min), number(max))
}

/// Quantiles, bandwidth, page faults, memory, system calls.
fn details(text: &mut String, results: &Results) {
    text.push_str("\n## More of the same rounds\n\n| row | figure | column | median (least .. most) |\n| --- | --- | --- | --- |\n");
    for row in &results.rows {
        for figure in row.also {
            for column in COLUMNS {
                if let Some(spread) = results.spread(row.id, column, figure) {
                    let _ =
                        writeln!(text, "| {} | {figure} | {} | {} |", row.id, column.title(), shown(spread));
                }
            }
        }
    }
    if let Some(first) = results.calls.first() {
        let _ = writeln!(
            text,
            "\n## System calls for each message, of both sides, counted by {} in runs of their own\n",
            first.counter.name()
        );
        text.push_str("| row | way | calls |\n| --- | --- | --- |\n");
        for calls in &results.calls {
            let _ = writeln!(text, "| {} | {:?} | {} |", calls.row, calls.way, number(calls.per_message));
        }
    }
    let mut ways = Vec::new();
    for row in &results.rows {
        for column in [Column::IpcChannel, Column::Floor] {
            if row.ways(column).len() > 1
                && let Some(way) = results.best_way(row.id, column)
            {
                ways.push(format!("{} {}: {way:?}", row.id, column.title()));
            }
        }
    }
    if !ways.is_empty() {
        let _ = writeln!(text, "\nThe better way, most often: {}.", ways.join("; "));
    }
}
