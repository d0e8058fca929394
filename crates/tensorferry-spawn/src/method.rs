//! The default start method, and contexts with a start method of their own.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_process::{ForkServerError, StartMethod, preload_forkserver};

use crate::call::{self, PRELOAD};
use crate::context::ProcessContext;
use crate::error::{SpawnError, StartError, StartErrorKind};
use crate::function::Function;
use crate::options::Options;
use crate::process::Process;
use crate::registry;

/// Set once, explicitly or by the first use.
static DEFAULT: Mutex<Option<StartMethod>> = Mutex::new(None);

fn default() -> MutexGuard<'static, Option<StartMethod>> {
    DEFAULT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error for a start method that was settled before.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the start method is {settled} already, by an earlier call or because a process was started; set it first, or use \
     `force_start_method` or a context"
)]
#[non_exhaustive]
pub struct StartMethodSettledError {
    /// The start method in effect.
    pub settled: StartMethod,
}

tensorferry_os::debug_as_display!(StartMethodSettledError);

/// The default start method of this process: [`StartMethod::Spawn`] unless it was set. A started process has
/// its parent's default.
///
/// This call settles the default, as starting a process does. From then on only [`force_start_method`]
/// changes it.
#[must_use]
pub fn get_start_method() -> StartMethod {
    *default().get_or_insert_default()
}

/// Sets the default start method of this process. Call it once, early in `main`: code that has queried the
/// default or started a process relies on it.
///
/// # Errors
/// [`StartMethodSettledError`] when the default has already been set, queried or used.
///
/// # Examples
/// ```
/// use tensorferry_spawn::{StartMethod, get_start_method, set_start_method};
///
/// set_start_method(StartMethod::Forkserver)?;
/// assert_eq!(get_start_method(), StartMethod::Forkserver);
/// assert!(set_start_method(StartMethod::Spawn).is_err());
/// # Ok::<(), tensorferry_spawn::StartMethodSettledError>(())
/// ```
pub fn set_start_method(method: StartMethod) -> Result<(), StartMethodSettledError> {
    let mut default = default();
    match *default {
        Some(settled) => Err(StartMethodSettledError { settled }),
        None => {
            *default = Some(method);
            Ok(())
        }
    }
}

/// As [`set_start_method`], even if the default is settled. Processes that already run are not affected.
pub fn force_start_method(method: StartMethod) {
    *default() = Some(method);
}

/// The start methods of this platform, the default first.
#[must_use]
pub fn get_all_start_methods() -> Vec<StartMethod> {
    StartMethod::all().collect()
}

/// The context of a start method: the functions of this crate with that method, whatever the default is. A
/// library that starts processes uses a context, and so leaves the default to the program.
///
/// ```
/// use tensorferry_spawn::{StartMethod, func, get_context};
///
/// #[func]
/// fn square(rank: usize) -> Result<usize, String> {
///     Ok(rank * rank)
/// }
///
/// let context = get_context(StartMethod::Forkserver);
/// assert_eq!(context.spawn(square, (), 3)?, [0, 1, 4]);
/// # Ok::<(), tensorferry_spawn::SpawnError>(())
/// ```
#[must_use]
pub fn get_context(method: StartMethod) -> Context {
    Context { method }
}

/// A start method to start processes with. Made by [`get_context`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    method: StartMethod,
}

impl Context {
    /// The start method.
    #[must_use]
    pub fn start_method(self) -> StartMethod {
        self.method
    }

    /// Options with this start method.
    #[must_use]
    pub fn options(self) -> Options {
        Options::new().start_method(self.method)
    }

    /// As [`spawn`](crate::spawn()).
    ///
    /// # Blocking
    /// Until all processes have ended.
    ///
    /// # Errors
    /// As [`spawn`](crate::spawn()).
    pub fn spawn<F, Args>(self, function: F, args: Args, nprocs: usize) -> Result<Vec<F::Value>, SpawnError>
    where
        F: Function<Args>,
        Args: Serialize + DeserializeOwned,
    {
        self.options().spawn(function, args, nprocs)
    }

    /// As [`start_processes`](crate::start_processes).
    ///
    /// # Errors
    /// As [`start_processes`](crate::start_processes).
    pub fn start_processes<F, Args>(
        self,
        function: F,
        args: Args,
        nprocs: usize,
    ) -> Result<ProcessContext<F::Value>, StartError<Args>>
    where
        F: Function<Args>,
        Args: Serialize + DeserializeOwned,
    {
        self.options().start_processes(function, args, nprocs)
    }

    /// As [`Process::new`].
    pub fn process<F, Args>(self, function: F, args: Args) -> Process<F, Args>
    where
        F: Function<Args>,
        Args: Serialize + DeserializeOwned,
    {
        Process::new(function, args).start_method(self.method)
    }
}

/// Makes the fork server call `function` once, with index 0, before it starts the first process. Each process
/// of [`StartMethod::Forkserver`] begins with the statics that the function has filled (tables, parsed files,
/// opened libraries). The function must have the attribute [`func`](crate::func). Several functions are
/// called in the order of these calls.
///
/// The function must not leave a thread behind (the error of the first start names it), and must not keep
/// shared memory: a domain, and what lies in it. The start also fails if the function fails. What it
/// registers with atexit(3) is called at the end of each process that the server forks.
///
/// # Errors
/// - [`PreloadError::Running`] when this process has already started its fork server.
/// - [`PreloadError::NotRegistered`] when the function does not have the attribute [`func`](crate::func).
///
/// # Examples
/// ```
/// use std::sync::OnceLock;
/// use tensorferry_spawn::{StartMethod, forkserver_preload, func, get_context};
///
/// static TABLE: OnceLock<Vec<u64>> = OnceLock::new();
///
/// #[func]
/// fn make_table(_rank: usize) {
///     TABLE.get_or_init(|| (0..1000).map(|n| n * n).collect());
/// }
///
/// #[func]
/// fn look_up(rank: usize) -> Result<u64, String> {
///     TABLE.get().map(|table| table[rank]).ok_or_else(|| String::from("nothing was preloaded"))
/// }
///
/// forkserver_preload(make_table)?;
/// assert_eq!(get_context(StartMethod::Forkserver).spawn(look_up, (), 3)?, [0, 1, 4]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn forkserver_preload<F: Function<()>>(function: F) -> Result<(), PreloadError> {
    let key = registry::find(&function).map_err(PreloadError::NotRegistered)?;
    let payload = call::preload_payload(&key).map_err(PreloadError::NotRegistered)?;
    Ok(preload_forkserver(&PRELOAD, payload)?)
}

/// Why a function cannot be preloaded.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum PreloadError {
    /// The function is not registered.
    #[error(transparent)]
    NotRegistered(StartErrorKind),
    /// The fork server runs already.
    #[error(transparent)]
    Running(#[from] ForkServerError),
}

tensorferry_os::debug_as_display!(PreloadError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_settled_once_and_can_be_forced() {
        assert_eq!(get_all_start_methods()[0], StartMethod::Spawn);
        set_start_method(StartMethod::Forkserver).unwrap();
        let refused = set_start_method(StartMethod::Forkserver).unwrap_err();
        assert_eq!(refused.settled, StartMethod::Forkserver);
        force_start_method(StartMethod::Spawn);
        assert_eq!(get_start_method(), StartMethod::Spawn);
        assert_eq!(get_context(StartMethod::Fork).start_method(), StartMethod::Fork);
    }
}
