//! Starts this program again as a child that calls a registered function, and reports how the child ended.
//!
//! ```text
//! parent                                                   child
//! Start::new(&ENTRY).payload(..).fd(..).start()
//!   socketpair; hello (nonce, entry, pidfd, fds) ─────────▶  .init_array: marked as a child?
//!   clone3, execve /proc/self/exe, socket as standard input  takes the socket, checks the nonce
//!                                                            PR_SET_PDEATHSIG; is the parent alive?
//!   Stage::Entered  ◀──────────────────────────── Entered    runs the entry with payload and descriptors
//!   Stage::Taken    ◀────────────────────────────── Taken    has adopted what the payload refers to
//!   Stage::Finished ◀─────────── Finished, or Raised(Report) panic, error or refusal, told before the exit
//!   Exit { ended, report, .. } ◀──────────────────── pidfd   exit code or signal
//! ```
//!
//! - The program calls nothing first. The child begins in a constructor before `main`, in binaries, examples,
//!   benches and under `cargo test`. [`mod@entry`] describes the consequences. [`init`] is the portable form.
//! - A child never outlives its parent, whichever thread started it. The same holds for the children that it
//!   starts. The kernel kills the child, for either of two reasons: the thread that started it has ended
//!   (`PR_SET_PDEATHSIG`), or the parent's end of a pipe was closed ([`tensorferry_os::leash`]). The kernel
//!   drops the first request in some cases.
//! - [`current_process`], [`parent_process`] and [`active_children`] identify processes.
//! - A process that is marked as a child but has no socket to a parent reports an error and exits. A process
//!   that was marked but never ran its entry refuses to start others. So processes cannot start each other
//!   without end.
//! - This crate carries opaque bytes and descriptors. It does not know tensors or shared memory.
//!
//! # Example
//! ```
//! use tensorferry_process::{Failure, Inherited, Start};
//!
//! tensorferry_process::entry! {
//!     /// Prints a greeting.
//!     static GREET = "example.greet" => greet;
//! }
//!
//! fn greet(inherited: &mut Inherited) -> Result<(), Failure> {
//!     println!("hello, {}", std::str::from_utf8(inherited.payload())?);
//!     Ok(())
//! }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let mut child = Start::new(&GREET).payload(*b"world").start()?;
//!     let exit = child.wait()?;
//!     assert!(exit.is_success(), "{exit:#}");
//!     Ok(())
//! }
//! ```
//!
//! # Limits
//! Linux with `/proc`. The executable does not find entries in a Rust `dylib`. A child that executes another
//! program with other privileges (a set-user-ID program, execve(2)) may outlive its parent: the kernel clears
//! the death signal, and closes the pipe. A process that closes all of its descriptors, or executes another
//! program, closes the pipe too: its children end at once.

mod catch;
mod child;
mod children;
mod current;
pub mod entry;
mod error;
mod executable;
mod exit;
mod fork;
mod forkserver;
mod hook;
mod inherited;
mod leash;
mod link;
mod macros;
mod method;
mod parent;
mod program;
mod protocol;
mod redirect;
mod relay;
mod report;
mod start;
mod starter;

pub use catch::catch;
pub use child::{Child, OnDrop, wait_any, wait_end};
pub use children::{ChildProcess, active_children};
pub use current::{CurrentProcess, current_process};
pub use entry::{EXIT_CODE_NO_PARENT, EXIT_CODE_RAISED, Entry, Failure, Run, init};
pub use error::{ForkServerError, ProtocolError, StartError};
pub use exit::{Ended, Exit, Stage};
pub use fork::{HAZARDS, Hazard, allow_fork};
pub use forkserver::preload_forkserver;
pub use inherited::Inherited;
pub use method::{ParseStartMethodError, StartMethod};
pub use parent::{ParentProcess, parent_process};
pub use redirect::Redirect;
pub use report::{Location, Report, ReportKind};
pub use start::Start;
pub use tensorferry_os::Error as OsError;
pub use tensorferry_os::child::{SIGABRT, SIGINT, SIGKILL, SIGTERM, out_of_memory_kills, signal_name};
pub use tensorferry_os::fork::{ForkError, Thread};

#[doc(hidden)]
pub use forkserver::wire::{read_request, read_word};
#[doc(hidden)]
pub use linkme;
#[doc(hidden)]
pub use protocol::{read_frames, read_hello};
