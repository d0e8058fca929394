//! The report of `top` as tables.

use std::fmt::Write as _;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use tensorferry_inspect::{
    Amount, BlockKind, HeldByKind, LastOwner, MemberSnapshot, MemberState, MonitorSnapshot, QueueSnapshot,
    Snapshot,
};

use super::report::{Domain, Report, State};
use crate::bytes::{bytes, count};

/// Longer commands are cut.
const COMMAND_CHARS: usize = 60;
/// So many of the longest blocks are shown, if they are as long as this.
const LONGEST: usize = 5;
const LONG_BYTES: u64 = 1 << 20;

/// The whole report. Rates are those since `last`, if there is one.
pub(crate) fn of(report: &Report, last: Option<&Report>) -> String {
    let mut text = String::new();
    if report.domains.is_empty() && report.not_among_them.is_empty() {
        text.push_str("no process shares anything by tensorferry\n");
    }
    for domain in &report.domains {
        match (&domain.snapshot, &domain.error) {
            (Some(snapshot), _) => {
                let before = last.and_then(|last| before(last, snapshot.domain_id));
                let since = last.map(|last| report.made.saturating_duration_since(last.made));
                one(&mut text, domain, snapshot, before.zip(since));
            }
            (None, error) => {
                let pids = join(domain.processes.iter().map(|process| process.pid));
                let why = error.as_deref().unwrap_or("unknown");
                let _ = writeln!(text, "a domain of process {pids} cannot be read: {why}\n");
            }
        }
    }
    for line in &report.not_among_them {
        let _ = writeln!(text, "{line}");
    }
    if report.n_unreadable_processes > 0 {
        let n = things(report.n_unreadable_processes as u64, "process", "processes");
        let _ = writeln!(text, "{n} of others could not be asked; root may ask all");
    }
    text
}

fn before(last: &Report, id: u64) -> Option<&Snapshot> {
    last.domains.iter().filter_map(|domain| domain.snapshot.as_ref()).find(|other| other.domain_id == id)
}

fn one(text: &mut String, domain: &Domain, snapshot: &Snapshot, before: Option<(&Snapshot, Duration)>) {
    let (used, limit) = (bytes(snapshot.populated_bytes), snapshot.limit_bytes);
    let limit = if limit == u64::MAX { "no limit".to_owned() } else { format!("of {}", bytes(limit)) };
    let ended = things(snapshot.sweeps, "member has", "members have");
    let _ = writeln!(text, "domain {}: {used} {limit}; {ended} ended", snapshot.domain_id);
    let _ = writeln!(text, "held: {}", held(&snapshot.held, snapshot.in_doubt));
    for other in domain.others(snapshot) {
        let command = shortened(&other.command);
        let _ = writeln!(text, "process {} has the file and is no member: {command}", other.pid);
    }
    let _ = writeln!(text, "\n{}", members(domain, snapshot));
    if !snapshot.queues.is_empty() {
        let _ = writeln!(text, "\n{}", queues(&snapshot.queues, before));
    }
    if !snapshot.monitors.is_empty() {
        let _ = writeln!(text, "\n{}", monitors(&snapshot.monitors, &domain.monitor_kinds));
    }
    if snapshot.longest.first().is_some_and(|block| block.len_bytes >= LONG_BYTES) {
        let _ = writeln!(text, "\n{}", longest(snapshot));
    }
    text.push('\n');
}

fn held(held: &HeldByKind, in_doubt: Amount) -> String {
    let parts = [
        ("tensor or other data", "tensors and other data", held.data),
        ("queue", "queues", held.queues),
        ("long message", "long messages", held.long_messages),
        ("set of arguments", "sets of arguments", held.arguments),
        ("lock or the like", "locks and the like", held.monitors),
        ("bundle", "bundles", held.bundles),
        ("held by no member", "held by no member", in_doubt),
    ];
    let parts = parts.into_iter().filter(|(.., amount)| amount.blocks > 0);
    let parts = parts
        .map(|(one, many, amount)| format!("{} ({})", things(amount.blocks, one, many), bytes(amount.bytes)));
    let parts = parts.collect::<Vec<_>>();
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}

fn members(domain: &Domain, snapshot: &Snapshot) -> Table {
    let header = ["SLOT", "PID", "NAME", "STATE", "HOLDS", "BYTES", "ALONE", "OWNS", "CACHED", "COMMAND"];
    let mut table = table(&header, &[0, 1, 4, 5, 6, 7, 8]);
    for member in &snapshot.members {
        let process = member.pid.and_then(|pid| domain.process(pid));
        table.add_row([
            member.slot.to_string(),
            member.pid.map_or_else(|| "elsewhere".to_owned(), |pid| pid.to_string()),
            process.map_or_else(String::new, |process| shortened(&process.name)),
            state_of_member(member, process.map(|process| process.state)).to_owned(),
            count(member.holds.blocks),
            bytes(member.holds.bytes),
            bytes(member.holds_alone.bytes),
            bytes(member.owns_bytes),
            bytes(member.cached_bytes),
            process.map_or_else(String::new, |process| shortened(&process.command)),
        ]);
    }
    table
}

fn state_of_member(member: &MemberSnapshot, process: Option<State>) -> &'static str {
    match (member.state, process) {
        (MemberState::Live, Some(State::Stopped)) => "stopped",
        // Nobody has noticed yet.
        (MemberState::Live, Some(State::Ended)) => "ended",
        (MemberState::Live, _) => "live",
        (MemberState::Invited, _) => "invited",
        (MemberState::Dead, _) => "dead",
        _ => "?",
    }
}

fn queues(queues: &[QueueSnapshot], before: Option<(&Snapshot, Duration)>) -> Table {
    let header = ["QUEUE", "ITEMS", "BYTES", "LEASED", "PUT", "PER S", "SENDERS", "RECEIVERS", "STATE"];
    let mut table = table(&header, &[0, 1, 2, 3, 4, 5]);
    for queue in queues {
        let last = before.and_then(|(before, since)| {
            let last = before.queues.iter().find(|other| other.id == queue.id)?;
            Some((last, since))
        });
        table.add_row([
            queue.id.to_string(),
            format!("{}/{}", count(queue.waiting_items as u64), count(queue.capacity_items as u64)),
            if queue.waiting.blocks == 0 { String::new() } else { bytes(queue.waiting.bytes) },
            leased(queue),
            count(queue.put_items),
            last.and_then(|(last, since)| rate(last, queue, since)).unwrap_or_default(),
            slots(&queue.senders),
            slots(&queue.receivers),
            state_of(queue, last.map(|(last, _)| last)),
        ]);
    }
    table
}

fn leased(queue: &QueueSnapshot) -> String {
    if queue.max_leases == 0 {
        return String::new();
    }
    let n: usize = queue.leased_items.iter().map(|(_, n)| n).sum();
    format!("{n}/{}", queue.max_leases)
}

/// Messages put each second.
fn rate(last: &QueueSnapshot, now: &QueueSnapshot, since: Duration) -> Option<String> {
    let put = now.put_items.checked_sub(last.put_items)?;
    let per_second = u128::from(put) * 1_000_000_000 / since.as_nanos().max(1);
    Some(count(u64::try_from(per_second).unwrap_or(u64::MAX)))
}

fn state_of(queue: &QueueSnapshot, last: Option<&QueueSnapshot>) -> String {
    let mut states = Vec::new();
    if queue.is_closed {
        states.push("closed".to_owned());
    }
    if queue.waiting_items >= queue.capacity_items {
        states.push("full".to_owned());
    }
    if queue.receivers.is_empty() {
        states.push("nobody receives".to_owned());
    }
    if queue.senders.is_empty() {
        states.push("nobody sends".to_owned());
    }
    // Whoever is in the middle of a message twice, with nothing put in between, may have been stopped there.
    let is_still = |last: &QueueSnapshot| last.put_items == queue.put_items;
    let stopped = last.filter(|last| is_still(last)).map(|last| {
        queue.in_progress.iter().copied().filter(|slot| last.in_progress.contains(slot)).collect::<Vec<_>>()
    });
    if let Some(stopped) = stopped.filter(|stopped| !stopped.is_empty()) {
        states.push(format!("in the middle of a message: {}", slots(&stopped)));
    }
    // One that could do both is counted in each.
    match queue.sender_deaths.max(queue.receiver_deaths) {
        0 => {}
        deaths => states.push(format!("{} died", things(deaths, "member", "members"))),
    }
    states.join(", ")
}

fn monitors(monitors: &[MonitorSnapshot], kinds: &[String]) -> Table {
    let mut table = table(&["LOCK", "KIND", "HELD BY", "TAKEN", "HANDLES", "STATE"], &[0]);
    for (monitor, kind) in monitors.iter().zip(kinds) {
        let shares = monitor.shares.iter().map(|(slot, n)| format!("{n} by {slot}"));
        table.add_row([
            monitor.id.to_string(),
            kind.clone(),
            monitor.locked_by.map_or_else(String::new, |slot| slot.to_string()),
            shares.collect::<Vec<_>>().join(", "),
            slots(&monitor.holders),
            state_of_monitor(monitor),
        ]);
    }
    table
}

fn state_of_monitor(monitor: &MonitorSnapshot) -> String {
    let left = match monitor.left_by {
        Some(LastOwner::Died) => Some("poisoned: its owner died".to_owned()),
        Some(LastOwner::Panicked) => Some("poisoned: its owner panicked".to_owned()),
        _ => None,
    };
    let deaths = match monitor.deaths {
        0 => None,
        deaths => Some(format!("{} died", things(deaths, "member", "members"))),
    };
    left.into_iter().chain(deaths).collect::<Vec<_>>().join(", ")
}

fn longest(snapshot: &Snapshot) -> Table {
    let mut table = table(&["LONGEST", "BYTES", "WHAT", "HOLDERS", "WAITS IN"], &[0, 1]);
    for block in snapshot.longest.iter().take(LONGEST).filter(|block| block.len_bytes >= LONG_BYTES) {
        let what = match block.kind {
            BlockKind::Data => "data",
            BlockKind::Queue => "queue",
            BlockKind::LongMessage => "message",
            BlockKind::Arguments => "arguments",
            BlockKind::Monitor => "lock or the like",
            BlockKind::Bundle => "bundle",
            _ => "?",
        };
        table.add_row([
            block.id.to_string(),
            bytes(block.len_bytes),
            what.to_owned(),
            slots(&block.holders),
            block.waits_in.map_or_else(String::new, |queue| queue.to_string()),
        ]);
    }
    table
}

/// A number of things.
fn things(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// The text as far as a terminal of this size shows it, with a line that says how much is missing.
pub(crate) fn cut_to(text: &str, (rows, columns): (usize, usize)) -> String {
    let lines = text.lines().map(|line| line.chars().take(columns).collect::<String>()).collect::<Vec<_>>();
    // The last row is the cursor's.
    let most = rows.saturating_sub(1).max(1);
    if lines.len() <= most {
        return lines.join("\n");
    }
    let more = lines.len() - (most - 1);
    format!("{}\n... {more} more lines: tensorferry top --once | less -S", lines[..most - 1].join("\n"))
}

/// A table without lines, whose columns in `right` are numbers.
fn table(header: &[&str], right: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    for column in right {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Slots in ascending order, with the middle of a row left out: `0-3 7`.
fn slots(slots: &[u8]) -> String {
    let mut ranges: Vec<(u8, u8)> = Vec::new();
    for &slot in slots {
        match ranges.last_mut() {
            Some((_, end)) if slot.checked_sub(1) == Some(*end) => *end = slot,
            _ => ranges.push((slot, slot)),
        }
    }
    let range = |(first, end): (u8, u8)| match end - first {
        0 => first.to_string(),
        1 => format!("{first} {end}"),
        _ => format!("{first}-{end}"),
    };
    join(ranges.into_iter().map(range))
}

fn join<T: ToString>(parts: impl Iterator<Item = T>) -> String {
    parts.map(|part| part.to_string()).collect::<Vec<_>>().join(" ")
}

/// The beginning of a command, without what would move the cursor.
fn shortened(command: &str) -> String {
    let is_cut = command.chars().count() > COMMAND_CHARS;
    let visible = |c: char| if c.is_control() { ' ' } else { c };
    let text = command.chars().take(COMMAND_CHARS).map(visible).collect::<String>();
    if is_cut { format!("{text}...") } else { text }
}

#[cfg(test)]
mod tests;
