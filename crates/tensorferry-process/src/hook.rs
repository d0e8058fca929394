//! The child's panic hook: records where a panic occurred, and tells the parent before an abort.
//!
//! A hook runs on the panicking thread before any unwinding, and also when the panic aborts the process. It
//! cannot know whether the panic will be caught. So it sends a report at once, and the parent uses the report
//! only if the process then aborts. `entry.rs` reports panics that unwind out of the entry, with the location
//! and the backtrace recorded here.

use std::any::Any;
use std::backtrace::Backtrace;
use std::collections::VecDeque;
use std::io::Write as _;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;

use crate::current::current_process;
use crate::link::Link;
use crate::protocol::Frame;
use crate::report::{Report, ReportKind, trim_backtrace};

/// How many panics are recorded.
const MAX_RECORDS: usize = 8;

/// How many panics are sent as they happen, and the longest message. These fit into the socket's buffer. So a
/// program that keeps panicking and catching never waits for a parent that does not read.
const MAX_SENT: usize = 8;
const MAX_SENT_MESSAGE_LEN_BYTES: usize = 2 << 10;

struct Record {
    thread: ThreadId,
    report: Report,
    backtrace: Option<Arc<Backtrace>>,
}

struct State {
    link: Link,
    entry_thread: ThreadId,
    records: Mutex<VecDeque<Record>>,
    n_sent: AtomicUsize,
    /// Whether the parent was told of a panic that was not forgotten since.
    is_told: AtomicBool,
}

/// The state of this process. A forked process installs its own. A state is never freed.
static STATE: Mutex<Option<&'static State>> = Mutex::new(None);

fn state() -> Option<&'static State> {
    *STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes this process report its panics over `link`. The link stays open as long as the process lives.
pub(crate) fn install(link: Link) -> &'static Link {
    let state: &State = Box::leak(Box::new(State {
        link,
        entry_thread: std::thread::current().id(),
        records: Mutex::default(),
        n_sent: AtomicUsize::new(0),
        is_told: AtomicBool::new(false),
    }));
    let before = STATE.lock().unwrap_or_else(PoisonError::into_inner).replace(state);
    // A forked process has its parent's hook already, which uses the current state.
    if before.is_none() {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let Some(state) = self::state() else { return previous(info) };
            let backtrace = record(state, info);
            let current = std::thread::current();
            if current.id() == state.entry_thread && current.name().is_none() {
                print(info, backtrace.as_deref());
            } else {
                previous(info);
            }
        }));
    }
    &state.link
}

/// Prints a panic of the entry's thread on standard error, like the standard library's hook. Without a
/// `main`, that hook does not know that this is the main thread. The line begins with the name of the
/// process, because other processes may write to the same place.
fn print(info: &PanicHookInfo<'_>, backtrace: Option<&Backtrace>) {
    let (me, message) = (current_process(), message(info.payload()));
    let place = info.location().map(|location| format!(" at {location}")).unwrap_or_default();
    let mut text = format!("\nthread '{}' ({}) panicked{place}:\n{message}\n", me.name(), me.pid());
    match (std::env::var("RUST_BACKTRACE").ok().as_deref(), backtrace) {
        (None | Some("0"), _) | (_, None) => {
            text.push_str("note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n");
        }
        (Some("full"), Some(backtrace)) => text.push_str(&format!("stack backtrace:\n{backtrace}")),
        (Some(_), Some(backtrace)) => text.push_str(&format!("stack backtrace:\n{}\n", readable(backtrace))),
    }
    // If standard error is closed, the message is lost.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn record(state: &State, info: &PanicHookInfo<'_>) -> Option<Arc<Backtrace>> {
    let current = std::thread::current();
    let on_entry = current.id() == state.entry_thread;
    let name = if on_entry { "main" } else { current.name().unwrap_or("<unnamed>") };
    let report = Report::new(ReportKind::Panic, message(info.payload())).at(info.location(), name);
    let backtrace =
        wants_backtrace(|name| std::env::var(name).ok()).then(|| Arc::new(Backtrace::force_capture()));
    if cfg!(panic = "abort") {
        state.link.send(&Frame::Panicked(report));
        if let Some(backtrace) = &backtrace {
            state.link.send(&Frame::Backtrace(readable(backtrace)));
        }
        return backtrace;
    }
    if state.n_sent.fetch_add(1, Ordering::Relaxed) < MAX_SENT {
        state.is_told.store(true, Ordering::Relaxed);
        state.link.send(&Frame::Panicked(report.with_message_cut_to(MAX_SENT_MESSAGE_LEN_BYTES)));
    }
    let mut records = state.records.lock().unwrap_or_else(PoisonError::into_inner);
    if records.len() == MAX_RECORDS {
        records.pop_front();
    }
    records.push_back(Record { thread: current.id(), report, backtrace: backtrace.clone() });
    backtrace
}

/// The message of a panic.
fn message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("Box<dyn Any>")
}

/// Whether to capture the backtrace: unless a variable says `0`. `RUST_LIB_BACKTRACE` takes precedence, as in
/// `std::backtrace`. Unlike there, an unset variable means yes, because the report is all that remains of the
/// process.
fn wants_backtrace(variable: impl Fn(&str) -> Option<String>) -> bool {
    variable("RUST_LIB_BACKTRACE").or_else(|| variable("RUST_BACKTRACE")).is_none_or(|value| value != "0")
}

/// Resolves addresses to names, which takes milliseconds for the first backtrace of a process.
fn readable(backtrace: &Backtrace) -> String {
    trim_backtrace(&backtrace.to_string(), "__tensorferry_")
}

/// Returns the report of a panic that left the entry, and a function that makes its backtrace.
pub(crate) fn explain(payload: &(dyn Any + Send)) -> (Report, Option<impl FnOnce() -> String + use<>>) {
    let text = message(payload);
    let fallback = Report::new(ReportKind::Panic, text);
    let Some(state) = state() else { return (fallback, None) };
    let records = state.records.lock().unwrap_or_else(PoisonError::into_inner);
    let (report, backtrace) = choose(&records, state.entry_thread, fallback);
    (report, backtrace.map(|captured| move || readable(&captured)))
}

/// Forgets all panics so far, when what panicked is over and the entry goes on. Tells the parent, if it was
/// told of any: an abort from here on is not theirs.
pub(crate) fn forget_panics() {
    let Some(state) = state() else { return };
    state.records.lock().unwrap_or_else(PoisonError::into_inner).clear();
    // At most once for each panic that was sent, so that this never waits for a parent that does not read.
    if state.is_told.swap(false, Ordering::Relaxed) {
        state.link.send(&Frame::Recovered);
    }
}

/// Finds the record of the panic that `fallback` describes, and adds the other threads' panics as its causes.
///
/// A panic payload of another thread may be thrown again here without a hook seeing it (`resume_unwind`, as
/// scoped thread pools do). Then the record of that other thread is the right one.
fn choose(
    records: &VecDeque<Record>,
    entry_thread: ThreadId,
    fallback: Report,
) -> (Report, Option<Arc<Backtrace>>) {
    let said_so = |record: &&Record| record.report.message == fallback.message;
    let chosen = records
        .iter()
        .rev()
        .find(|record| record.thread == entry_thread && said_so(record))
        .or_else(|| records.iter().rev().find(said_so));
    let (mut report, backtrace) = chosen
        .map_or_else(|| (fallback.clone(), None), |record| (record.report.clone(), record.backtrace.clone()));
    let is_chosen = |record: &Record| chosen.is_some_and(|chosen| std::ptr::eq(chosen, record));
    for earlier in records.iter().rev().filter(|r| r.thread != entry_thread && !is_chosen(r)) {
        report.add_link(&format!("earlier, {}", earlier.report));
    }
    (report, backtrace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_another_thread() -> ThreadId {
        std::thread::spawn(|| std::thread::current().id()).join().unwrap()
    }

    fn record(thread: ThreadId, name: &str, message: &str) -> Record {
        let report = Report::new(ReportKind::Panic, message).at(None, name);
        Record { thread, report, backtrace: None }
    }

    #[test]
    fn a_backtrace_is_captured_unless_a_variable_says_no() {
        let with = |lib: Option<&str>, all: Option<&str>| {
            wants_backtrace(|name| if name == "RUST_LIB_BACKTRACE" { lib } else { all }.map(str::to_owned))
        };
        assert!(with(None, None));
        assert!(with(None, Some("1")));
        assert!(!with(None, Some("0")));
        assert!(with(Some("full"), Some("0")));
        assert!(!with(Some("0"), Some("1")));
    }

    #[test]
    fn an_earlier_panic_of_another_thread_is_the_cause() {
        let (me, other) = (std::thread::current().id(), on_another_thread());
        let records = [record(other, "loader", "no file"), record(me, "main", "join failed")].into();
        let (report, _) = choose(&records, me, Report::new(ReportKind::Panic, "join failed"));
        assert_eq!((report.thread.as_str(), report.message.as_str()), ("main", "join failed"));
        assert_eq!(report.chain, ["earlier, thread 'loader' panicked: no file"]);
    }

    #[test]
    fn a_payload_thrown_again_is_told_as_what_it_was() {
        let (me, other) = (std::thread::current().id(), on_another_thread());
        let records = [record(me, "main", "caught and forgotten"), record(other, "loader", "no file")].into();
        let (report, _) = choose(&records, me, Report::new(ReportKind::Panic, "no file"));
        assert_eq!(report.thread, "loader");
        assert!(report.chain.is_empty());
    }

    #[test]
    fn a_payload_that_no_hook_has_seen_still_has_its_message() {
        let me = std::thread::current().id();
        let (report, backtrace) = choose(&VecDeque::new(), me, Report::new(ReportKind::Panic, "thrown"));
        assert_eq!(report.message, "thrown");
        assert!(backtrace.is_none());
        assert_eq!(message(&7_i32), "Box<dyn Any>");
    }
}
