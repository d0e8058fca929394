//! Where a child begins: before `main`, in a constructor that every program with this library has.
//!
//! The C library calls the functions of `.init_array` before `main`, after all shared libraries are ready. Ours asks
//! whether the process was started as a child. If it was, the process meets its parent, runs the entry that the parent
//! named, tells how it went, and exits; `main` never runs. So there is nothing to call first, and nothing to forget: it
//! works in binaries, examples, benches and tests, whatever their `main` does.
//!
//! Three things differ from a function that `main` calls. Constructors of the executable that come after ours in link
//! order (static objects of C++ code that is linked statically) have not run. A stack overflow on the main thread ends
//! with SIGSEGV and without Rust's message. And the main thread has no name in Rust's eyes: in reports it is `main`, and
//! a panic on it is printed with the name of the process.
//!
//! Whatever signal mask the parent has, SIGTERM and SIGINT are not blocked in a child, because that is how it is stopped.
//!
//! # Safety
//! The only unsafe thing here is the attribute that places the constructor. What is placed has the type that the
//! C library calls (it ignores the arguments), unwinds never, and uses nothing that Rust's runtime sets up later.
#![expect(unsafe_code, reason = "a function in .init_array is how code runs before main")]

use std::error::Error;
use std::ffi::OsStr;
use std::io::Write as _;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, UnwindSafe};

use tensorferry_os::child as os;

use crate::error::ProtocolError;
use crate::hook;
use crate::inherited::Inherited;
pub(crate) use crate::link::Parent;
use crate::link::{Fds, Link};
use crate::protocol::{Frame, Hello};
use crate::report::{Report, ReportKind};

/// Set in the environment of a child and nowhere else; the child removes it at once.
pub(crate) const VARIABLE: &str = "TENSORFERRY_CHILD";

/// Exit code of a child whose entry panicked, failed or was refused.
pub const EXIT_CODE_RAISED: i32 = 1;

/// Exit code of a process that was marked as a child but found no parent (`EX_PROTOCOL` of sysexits.h).
pub const EXIT_CODE_NO_PARENT: i32 = 76;

/// What a child runs.
pub type Run = fn(&mut Inherited) -> Result<(), Failure>;

/// A function that a child can be started with, found by its name. Made by [`entry!`](crate::entry!).
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    name: &'static str,
    run: Run,
    has_guard: bool,
}

impl Entry {
    /// An entry; it counts only when it stands in [`ENTRIES`], which [`entry!`](crate::entry!) sees to.
    #[must_use]
    pub const fn new(name: &'static str, run: Run) -> Self {
        Self { name, run, has_guard: true }
    }

    /// The same without a [`Guard`](crate::Guard), which takes a part of a start: what it runs starts that later
    /// ([`Inherited::guard`]), or does without. A process without one may outlive its parent once the kernel has forgotten its
    /// death signal.
    #[must_use]
    pub const fn without_guard(self) -> Self {
        Self { has_guard: false, ..self }
    }

    /// The name that parent and child know it by.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

/// Every entry of this program, collected by the linker.
#[linkme::distributed_slice]
pub static ENTRIES: [Entry];

crate::entry! {
    /// Forks on request.
    pub(crate) static FORKSERVER = "tensorferry.forkserver" => crate::forkserver::serve::serve, without_guard;
}

/// How many entries have this name.
pub(crate) fn n_named(name: &str) -> usize {
    ENTRIES.iter().filter(|entry| entry.name == name).count()
}

/// Names for a message.
pub(crate) fn listed(names: &[&str]) -> String {
    if names.is_empty() { String::from("none") } else { names.join(", ") }
}

/// Why an entry did not do what it should. Every error turns into one with `?`.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The work failed.
    Error(Box<dyn Error + Send + Sync>),
    /// The work was not begun: what the parent asked for cannot be done.
    Refused(String),
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Error(Box::new(error))
    }
}

/// Becomes the child that this process was started as; returns at once when it was not.
///
/// Where the program has the constructor, as every Linux program has, this never does anything: the child did not get
/// as far as `main`. It is for programs that are put together in a way that loses constructors.
pub fn init() {
    if let Some(nonce) = os::take_variable(VARIABLE) {
        std::process::exit(live(&nonce));
    }
}

extern "C" fn constructor() {
    init();
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

/// An address in this library's code, to find out which file it is part of.
pub(crate) fn own_address() -> usize {
    (CONSTRUCTOR as *const ()).addr()
}

/// The entry of this name.
fn find(name: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.name == name)
}

/// What the entry of this name runs.
pub(crate) fn find_run(name: &str) -> Option<Run> {
    find(name).map(|entry| entry.run)
}

/// The whole life of a child that was executed; returns its exit code.
fn live(nonce: &OsStr) -> i32 {
    live_with(|| {
        let _ = os::ignore_sigpipe();
        meet(Link::meet(nonce)?)
    })
}

/// The life of a child that was forked, from the moment on at which it has one thread and its end of the control socket.
/// First of all it does `settle`; what that returns is kept as long as the child runs.
pub(crate) fn live_forked<T>(
    control: OwnedFd,
    nonce: &str,
    whose: Parent,
    settle: impl FnOnce() -> Result<T, tensorferry_os::Error>,
) -> i32 {
    let mut kept = None;
    let settled = AssertUnwindSafe(|| {
        kept = Some(settle()?);
        meet(Link::greet(control, OsStr::new(nonce), whose)?)
    });
    live_with(settled)
}

/// The life of a child; returns its exit code.
fn live_with(meet: impl FnOnce() -> Result<(Inherited, Run), ProtocolError> + UnwindSafe) -> i32 {
    // Before it has other threads: it is stopped by these.
    let _ = os::unblock_stop_signals();
    let met = std::panic::catch_unwind(meet);
    let (mut inherited, run) = match met {
        Ok(Ok(met)) => met,
        // Whoever ended the parent, with Ctrl-C for one, is not to be told by each of its children.
        Ok(Err(ProtocolError::Orphan { .. })) => return EXIT_CODE_NO_PARENT,
        Ok(Err(error)) => {
            // There is no parent to tell, so people must be told.
            let _ = writeln!(std::io::stderr(), "tensorferry: {error}");
            return EXIT_CODE_NO_PARENT;
        }
        Err(_) => return EXIT_CODE_NO_PARENT,
    };
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| __tensorferry_entry(run, &mut inherited)));
    let (report, backtrace) = match outcome {
        Ok(Ok(())) => {
            inherited.link().send(&Frame::Finished);
            return 0;
        }
        Ok(Err(report)) => (*report, None),
        // It may panic when it is dropped, so it never is.
        Err(payload) => hook::explain(ManuallyDrop::new(payload).as_ref()),
    };
    inherited.link().send(&Frame::Raised(report));
    if let Some(backtrace) = backtrace {
        inherited.link().send(&Frame::Backtrace(backtrace()));
    }
    EXIT_CODE_RAISED
}

/// Receives what the parent has sent, and finds the entry that it asks for.
fn meet((link, hello, fds): (Link, Hello, Fds)) -> Result<(Inherited, Run), ProtocolError> {
    let link = hook::install(link);
    prepare(link, hello, fds).inspect_err(|error| {
        link.send(&Frame::Raised(Report::new(ReportKind::Refused, &error.to_string())));
    })
}

fn prepare(link: &'static Link, hello: Hello, fds: Fds) -> Result<(Inherited, Run), ProtocolError> {
    let inherited = Inherited::receive(link, &hello, fds)?;
    let Some(entry) = find(&hello.entry) else {
        let known = ENTRIES.iter().map(Entry::name).collect();
        return Err(ProtocolError::UnknownEntry { name: hello.entry, known });
    };
    if entry.has_guard {
        inherited.guard().start().map_err(ProtocolError::Guard)?;
    }
    Ok((inherited, entry.run))
}

/// Runs the entry. Backtraces end where a name begins with `__tensorferry_`.
#[inline(never)]
fn __tensorferry_entry(run: Run, inherited: &mut Inherited) -> Result<(), Box<Report>> {
    let result = run(inherited).map_err(|failure| match failure {
        Failure::Error(error) => Box::new(Report::of_error(&*error)),
        Failure::Refused(message) => Box::new(Report::new(ReportKind::Refused, &message)),
    });
    // Keeps this frame on the stack: the call above must not become a tail call.
    std::hint::black_box(&result);
    result
}
