//! Runs registered functions in child processes, with typed arguments, returned values and complete error
//! reports.
//!
//! A child is this program, started again. It does not run `main`. It joins the parent's domain, opens its
//! arguments, calls the function, puts its value into a queue, and exits. [`tensorferry_process`] starts it.
//! Tensors and queues in arguments and values are sent as handles. A value that a child returns outlives the
//! child.
//!
//! - [`func`] registers a function. The function can still be called as usual.
//! - [`spawn`] starts `nprocs` processes and waits for their values. [`start_processes`] returns a
//!   [`ProcessContext`].
//! - A process is this program executed again ([`StartMethod::Spawn`]), a fork of a server that is this
//!   program ([`StartMethod::Forkserver`]), or a fork of this process ([`StartMethod::Fork`]).
//!   [`set_start_method`] and [`get_context`] choose the method.
//! - [`Process`] is a single process with its own settings.
//! - The function's first argument is the index of its process. Programs that read the environment find it in
//!   `RANK` and `LOCAL_RANK`, and the number of processes in `WORLD_SIZE`. [`RankEnvironment`] lists the
//!   choices.
//! - When a process fails, the others are stopped. [`ProcessErrors`] contains **all** failures, the root
//!   cause first: panic message, location and backtrace; the chain of an error; exit code or signal.
//! - The output of the processes can go to files, and line by line to the output of this process
//!   ([`Options::log_dir`], [`Options::tee`]).
//! - [`current_process`], [`parent_process`] and [`active_children`] identify processes. [`cpu_count`]
//!   returns how many processors can be used. [`rank_seed`] gives each process its own random numbers.
//! - The program calls nothing first, and no process outlives its parent.
//!
//! # Example
//! ```
//! use tensorferry_spawn::{func, spawn};
//!
//! #[func]
//! fn greet(rank: usize, greeting: String) -> Result<String, std::num::ParseIntError> {
//!     Ok(format!("{greeting} from process {rank}"))
//! }
//!
//! fn main() -> Result<(), tensorferry_spawn::SpawnError> {
//!     for line in spawn(greet, (String::from("hello"),), 3)? {
//!         println!("{line}");
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # Functions that cannot be registered
//! ```compile_fail
//! #[tensorferry_spawn::func]
//! fn generic<T>(rank: usize, value: T) {}
//! ```
//! ```compile_fail
//! #[tensorferry_spawn::func]
//! async fn asynchronous(rank: usize) {}
//! ```
//! ```compile_fail
//! #[tensorferry_spawn::func]
//! fn without_index(text: String) {}
//! ```
//! ```compile_fail
//! #[tensorferry_spawn::func]
//! fn not_serialisable(rank: usize, thread: std::thread::Thread) {}
//! ```
//! ```compile_fail
//! #[tensorferry_spawn::func]
//! fn no_outcome(rank: usize) -> f32 { 1.0 }
//! ```
//! ```compile_fail
//! #[tensorferry_spawn::func]
//! fn unsendable_error(rank: usize) -> Result<(), Box<dyn std::error::Error>> { Ok(()) }
//! ```
//! ```compile_fail
//! struct Model;
//!
//! impl Model {
//!     #[tensorferry_spawn::func]
//!     fn in_an_impl(rank: usize) {}
//! }
//! ```
//! Wrong arguments do not compile either:
//! ```compile_fail
//! #[tensorferry_spawn::func]
//! fn work(rank: usize, count: u32) {}
//!
//! tensorferry_spawn::spawn(work, (String::new(),), 1).unwrap();
//! ```
//!
//! # Limits
//! Those of [`tensorferry_process`]. The linker drops a function in a crate of which nothing else is used, so
//! that function is not registered. [`registered`] lists the registered functions.

mod call;
mod close;
mod context;
mod error;
mod exited;
mod failure;
mod function;
mod identity;
mod launch;
mod method;
mod options;
mod output;
mod process;
mod processors;
mod raised;
mod rank;
mod registry;
mod rejoin;
mod seed;
mod stop;
mod task;
mod tee;
mod values;

pub use close::{CloseError, CloseErrorKind};
pub use context::ProcessContext;
pub use error::{Refusal, SpawnError, StartError, StartErrorKind};
pub use exited::ProcessExitedError;
pub use failure::{Cause, ProcessError, ProcessErrors};
pub use function::{BoxedError, Function, Outcome};
pub use method::{
    Context, PreloadError, StartMethodSettledError, force_start_method, forkserver_preload,
    get_all_start_methods, get_context, get_start_method, set_start_method,
};
pub use options::{Options, spawn, start_processes};
pub use output::{OutputError, Tee};
pub use process::{Process, ProcessHandle};
pub use processors::cpu_count;
pub use raised::ProcessRaisedError;
pub use rank::RankEnvironment;
pub use registry::{Signature, registered};
pub use seed::rank_seed;
pub use tensorferry_macros::func;
pub use tensorferry_process::{
    ChildProcess, CurrentProcess, ForkError, ForkServerError, Location, OnDrop, OsError, ParentProcess,
    ParseStartMethodError, ProtocolError, Redirect, Report, ReportKind, SIGABRT, SIGINT, SIGKILL, SIGTERM,
    StartError as ProcessStartError, StartMethod, Thread, active_children, allow_fork, current_process, init,
    parent_process, signal_name,
};

#[doc(hidden)]
pub mod hidden;
