//! The settings of a pool.

use std::ffi::{OsStr, OsString};
use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_spawn::{Function, StartMethod, cpu_count, get_start_method};
use tensorferry_storage::{Deadline, Heap};

use crate::end::End;
use crate::error::{PoolError, SubmitErrorKind};
use crate::order::{Initializer, Recipe};
use crate::pool::Pool;
use crate::shared::{Shared, key_of, put};

/// How many tasks, and how many answers, wait in shared memory: 64 KiB of each.
const CAPACITY_ITEMS: usize = 256;

/// The settings of a [`Pool`]; made by [`Pool::builder`]. A clone makes another pool of the same settings.
#[derive(Clone)]
#[must_use = "no process is started before `start`"]
pub struct PoolBuilder {
    n_processes: Option<usize>,
    first_index: usize,
    name: Option<String>,
    initializers: Vec<Result<Initializer, SubmitErrorKind>>,
    max_tasks: Option<usize>,
    max_tries: u16,
    start_method: Option<StartMethod>,
    environment: Vec<(OsString, OsString)>,
    seed: Option<u64>,
}

impl PoolBuilder {
    pub(crate) fn new() -> Self {
        Self {
            n_processes: None,
            first_index: 0,
            name: None,
            initializers: Vec::new(),
            max_tasks: None,
            max_tries: 1,
            start_method: None,
            environment: Vec::new(),
            seed: None,
        }
    }

    /// Sets how many processes work at a time. Without this call, as many as [`cpu_count`].
    pub fn processes(mut self, n_processes: usize) -> Self {
        self.n_processes = Some(n_processes);
        self
    }

    /// Sets the index of the first worker, 0 without this call. For several pools whose workers are counted
    /// together: one for each kind of work, or of one process each, where tasks have to go to a certain
    /// worker.
    pub fn first_index(mut self, first_index: usize) -> Self {
        self.first_index = first_index;
        self
    }

    /// Sets the name of the workers, for reports and `ps`: the name and the worker's index. `pool` without
    /// this call.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Adds a function that each worker calls once, before it takes tasks, also those that are started later
    /// in the place of others. Its value is dropped. Of several, each worker calls one after the other.
    ///
    /// If it returns an error or panics, the pool fails, and everybody who waits is told why:
    /// [`PoolError::Ended`]. A worker that is killed in it is replaced, but not for ever. Its arguments
    /// cannot hold anything exclusive, because every worker gets the same.
    ///
    /// ```
    /// use std::sync::OnceLock;
    /// use tensorferry_pool::Pool;
    /// use tensorferry_spawn::func;
    ///
    /// static SCALE: OnceLock<u64> = OnceLock::new();
    ///
    /// #[func]
    /// fn set_scale(_worker: usize, scale: u64) {
    ///     let _ = SCALE.set(scale);
    /// }
    ///
    /// #[func]
    /// fn scaled(_worker: usize, n: u64) -> Result<u64, String> {
    ///     Ok(n * SCALE.get().ok_or("the initializer came first")?)
    /// }
    ///
    /// let pool = Pool::builder().processes(2).initializer(set_scale, (10,)).start()?;
    /// assert_eq!(pool.map(scaled, [1, 2, 3])?, [10, 20, 30]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn initializer<F, Args>(mut self, function: F, args: Args) -> Self
    where
        F: Function<Args>,
        Args: Serialize + DeserializeOwned + Send + 'static,
    {
        self.initializers.push(
            key_of(&function)
                .map(|key| Initializer::new(move |ring| put(ring, 0, key, &args, Deadline::Now))),
        );
        self
    }

    /// Sets how many tasks a worker does before another process takes its place, at least one. Without this
    /// call it stays.
    #[doc(alias = "maxtasksperchild")]
    pub fn max_tasks_per_process(mut self, max_tasks: usize) -> Self {
        self.max_tasks = Some(max_tasks.max(1));
        self
    }

    /// Sets how many workers may die over one task, at least one. Without this call it is one: who waits for
    /// the task is told of the first death ([`TaskError::WorkerDied`](crate::TaskError::WorkerDied)).
    ///
    /// With more, the task goes to another worker, before all that wait. What the first one did of it is done
    /// again, and a task whose worker dies right after it was done may be done once more.
    pub fn max_tries(mut self, max_tries: u16) -> Self {
        self.max_tries = max_tries.max(1);
        self
    }

    /// Sets how the processes are created: [`StartMethod::Spawn`] or [`StartMethod::Forkserver`]. Without
    /// this call, as [`get_start_method`] says.
    pub fn start_method(mut self, method: StartMethod) -> Self {
        self.start_method = Some(method);
        self
    }

    /// Sets a variable in the environment of the workers.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Gives each worker a seed in the variable `TENSORFERRY_SEED`:
    /// [`rank_seed`](tensorferry_spawn::rank_seed) of `base` and its index. A process that takes another's
    /// place has the same seed.
    pub fn seed(mut self, base: u64) -> Self {
        self.seed = Some(base);
        self
    }

    /// Starts the processes, and a thread that looks after them. Does not wait until they can take tasks: an
    /// initializer that fails shows in the tasks.
    ///
    /// # Errors
    /// [`PoolError`]. No process is left then.
    pub fn start(self) -> Result<Pool, PoolError> {
        let n_processes = self.n_processes.unwrap_or_else(cpu_count);
        if n_processes == 0 {
            return Err(PoolError::NoProcesses);
        }
        if self.start_method.unwrap_or_else(get_start_method) == StartMethod::Fork {
            return Err(PoolError::Fork);
        }
        let heap = Heap::current().map_err(PoolError::Memory)?;
        // A lease for each worker, and one for each task that has come back.
        let tasks = End::create(heap, CAPACITY_ITEMS.max(n_processes), n_processes.saturating_mul(2));
        let answers = End::create(heap, CAPACITY_ITEMS.max(n_processes), 0);
        let shared = Shared::new(tasks.map_err(PoolError::Memory)?, answers.map_err(PoolError::Memory)?);
        let initializers: Result<Vec<_>, _> = self.initializers.into_iter().collect();
        let recipe = Recipe {
            n_processes,
            first_index: self.first_index,
            name: self.name.unwrap_or_else(|| String::from("pool")),
            initializers: initializers.map_err(PoolError::Initializer)?,
            max_tasks: self.max_tasks,
            max_tries: self.max_tries,
            start_method: self.start_method,
            environment: self.environment,
            seed: self.seed,
        };
        Pool::over(shared, recipe)
    }
}

impl fmt::Debug for PoolBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolBuilder").field("n_processes", &self.n_processes).finish_non_exhaustive()
    }
}
