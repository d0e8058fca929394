//! Where a child begins: in a constructor that runs before `main` in every program that links this library.
//!
//! The C library calls the functions of `.init_array` before `main`, after all shared libraries are ready.
//! The constructor checks whether the process was started as a child. If so, the process meets its parent,
//! runs the entry that the parent named, reports the result, and exits. `main` never runs. So a program needs
//! no set-up call. This works in binaries, examples, benches and tests, whatever their `main` does.
//!
//! Three things differ from a function that `main` calls:
//! - Constructors of the executable that come after this one in link order have not run. These are static
//!   objects of C++ code that is linked statically.
//! - A stack overflow on the main thread ends with SIGSEGV, without Rust's message.
//! - Rust does not know the name of the main thread. Reports call it `main`, and a panic on it is printed
//!   with the name of the process.
//!
//! SIGTERM and SIGINT are unblocked in a child, whatever the parent's signal mask is, because these signals
//! stop a child.
//!
//! # Safety
//! The only unsafe code here is the attribute that places the constructor. The placed function has the type
//! that the C library calls; it ignores the arguments that the C library passes. It never unwinds, and uses
//! nothing that Rust's runtime sets up later.
#![expect(unsafe_code, reason = "a function in .init_array is how code runs before main")]

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};

use tensorferry_os::child as os;

use crate::error::ProtocolError;
use crate::hook;
use crate::inherited::Inherited;
pub(crate) use crate::link::Parent;
use crate::link::{Fds, Link};
use crate::protocol::{Frame, Hello};
use crate::report::Report;

/// Set in the environment of a child and nowhere else. The child removes it at once.
pub(crate) const VARIABLE: &str = "TENSORFERRY_CHILD";

/// Exit code of a child whose entry panicked, failed or was refused.
pub const EXIT_CODE_RAISED: i32 = 1;

/// Exit code of a process that was marked as a child but found no parent (`EX_PROTOCOL` of sysexits.h).
pub const EXIT_CODE_NO_PARENT: i32 = 76;

/// The function that a child runs.
pub type Run = fn(&mut Inherited) -> Result<(), Failure>;

/// A function that a child can be started with, found by its name. Made by [`entry!`](crate::entry!).
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    name: &'static str,
    run: Run,
}

impl Entry {
    /// An entry. A child finds it only in [`ENTRIES`], where [`entry!`](crate::entry!) places it.
    #[must_use]
    pub const fn new(name: &'static str, run: Run) -> Self {
        Self { name, run }
    }

    /// The name by which parent and child refer to it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

/// Every entry of this program, collected by the linker.
#[linkme::distributed_slice]
pub static ENTRIES: [Entry];

crate::entry! {
    /// Runs the fork server.
    pub(crate) static FORKSERVER = "tensorferry.forkserver" => crate::forkserver::serve::serve;
}

/// How many entries have this name.
pub(crate) fn n_named(name: &str) -> usize {
    ENTRIES.iter().filter(|entry| entry.name == name).count()
}

/// Joins names for a message.
pub(crate) fn listed(names: &[&str]) -> String {
    if names.is_empty() { String::from("none") } else { names.join(", ") }
}

/// Why an entry failed. `?` converts every error into one.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The work failed.
    Error(Box<dyn Error + Send + Sync>),
    /// The work was not begun, because the request cannot be carried out.
    Refused(String),
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Error(Box::new(error))
    }
}

/// Becomes the child that this process was started as. Returns at once if it was not started as one.
///
/// In a program that has the constructor, as every Linux program does, this does nothing: a child never
/// reaches `main`. It is for programs whose linking drops constructors.
pub fn init() {
    enter(os::take_variable_if_alone(VARIABLE));
}

/// Whether this process has begun to live as a child.
static HAS_ENTERED: AtomicBool = AtomicBool::new(false);

fn enter(nonce: Option<OsString>) {
    if let Some(nonce) = nonce {
        HAS_ENTERED.store(true, Ordering::Relaxed);
        std::process::exit(live(&nonce));
    }
}

/// Whether this process has entered as a child, although [`VARIABLE`] may still be set.
pub(crate) fn has_entered() -> bool {
    HAS_ENTERED.load(Ordering::Relaxed)
}

extern "C" fn constructor() {
    // SAFETY: a constructor of the program runs before `main`, normally on the only thread. If another
    // constructor has started a thread, or this library was loaded later: glibc's unsetenv(3) moves the
    // pointers that follow down by one and frees nothing, so a getenv(3) there may miss a variable, but reads
    // no freed memory.
    enter(unsafe { os::take_variable(VARIABLE) });
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

/// An address in this library's code, to find the file that contains it.
pub(crate) fn own_address() -> usize {
    (CONSTRUCTOR as *const ()).addr()
}

/// The entry with this name.
fn find(name: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.name == name)
}

/// The function of the entry with this name.
pub(crate) fn find_run(name: &str) -> Option<Run> {
    find(name).map(|entry| entry.run)
}

/// The whole life of a child that was executed. Returns its exit code.
fn live(nonce: &OsStr) -> i32 {
    live_with(|| {
        let _ = os::ignore_sigpipe();
        // Before anything is opened: `main`, before which Rust's runtime does this, never runs here.
        os::open_closed_streams()?;
        meet(Link::meet(nonce)?)
    })
}

/// The life of a forked child, from the point at which it has one thread and its end of the control socket.
/// Calls `set_up` first.
pub(crate) fn live_forked(
    control: OwnedFd,
    nonce: &str,
    whose: Parent,
    set_up: impl FnOnce() -> Result<(), tensorferry_os::Error>,
) -> i32 {
    let life = AssertUnwindSafe(|| {
        set_up()?;
        meet(Link::greet(control, OsStr::new(nonce), whose)?)
    });
    live_with(life)
}

/// The life of a child. Returns its exit code.
fn live_with(meet: impl FnOnce() -> Result<(Inherited, Run), ProtocolError> + UnwindSafe) -> i32 {
    // Before the child has other threads, which inherit the mask: these signals stop it.
    let _ = os::unblock_stop_signals();
    let met = std::panic::catch_unwind(meet);
    let (mut inherited, run) = match met {
        Ok(Ok(met)) => met,
        // The user who ended the parent, for example with Ctrl-C, does not need a message from each child.
        Ok(Err(ProtocolError::Orphan { .. })) => return EXIT_CODE_NO_PARENT,
        Ok(Err(error)) => {
            // There is no parent to report to, so the message goes to standard error.
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
        // Dropping the payload may panic, so it is never dropped.
        Err(payload) => hook::explain(ManuallyDrop::new(payload).as_ref()),
    };
    inherited.link().send(&Frame::Raised(report));
    if let Some(backtrace) = backtrace {
        inherited.link().send(&Frame::Backtrace(backtrace()));
    }
    EXIT_CODE_RAISED
}

/// Receives the parent's messages and finds the requested entry.
fn meet((link, hello, fds): (Link, Hello, Fds)) -> Result<(Inherited, Run), ProtocolError> {
    let link = hook::install(link);
    prepare(link, hello, fds).inspect_err(|error| {
        link.send(&Frame::Raised(Report::refused(&error.to_string())));
    })
}

fn prepare(link: &'static Link, hello: Hello, fds: Fds) -> Result<(Inherited, Run), ProtocolError> {
    let inherited = Inherited::receive(link, &hello, fds)?;
    let Some(entry) = find(&hello.entry) else {
        let known = ENTRIES.iter().map(Entry::name).collect();
        return Err(ProtocolError::UnknownEntry { name: hello.entry, known });
    };
    Ok((inherited, entry.run))
}

/// Runs the entry. Backtraces are cut at a frame whose name begins with `__tensorferry_`.
#[inline(never)]
fn __tensorferry_entry(run: Run, inherited: &mut Inherited) -> Result<(), Box<Report>> {
    let result = run(inherited).map_err(|failure| match failure {
        Failure::Error(error) => Box::new(Report::of_error(&*error)),
        Failure::Refused(message) => Box::new(Report::refused(&message)),
    });
    // Keeps this frame on the stack: the call above must not become a tail call.
    std::hint::black_box(&result);
    result
}
