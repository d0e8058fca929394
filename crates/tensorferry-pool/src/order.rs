//! How a pool's workers are started.

use std::ffi::OsString;
use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use tensorferry_reduce::EncodeError;
use tensorferry_spawn::{Process, ProcessHandle, StartMethod};
use tensorferry_storage::Ring;

use crate::end::End;
use crate::error::{PoolError, SubmitErrorKind};
use crate::shared::Shared;
use crate::worker::{Order, pool_worker};

/// Puts the call of an initializer into a ring.
type PutCall = Box<dyn Fn(&Ring) -> Result<(), SubmitErrorKind> + Send>;

/// The call of an initializer, which several pools may have. Its arguments need not be `Sync`: one thread at
/// a time reads them.
#[derive(Clone)]
pub(crate) struct Initializer(Arc<Mutex<PutCall>>);

impl Initializer {
    pub(crate) fn new(put: impl Fn(&Ring) -> Result<(), SubmitErrorKind> + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Box::new(put))))
    }

    fn put(&self, ring: &Ring) -> Result<(), SubmitErrorKind> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)(ring)
    }
}

/// The settings of a pool.
pub(crate) struct Recipe {
    pub(crate) n_processes: usize,
    /// What workers are called: their place in the pool and this.
    pub(crate) first_index: usize,
    pub(crate) name: String,
    pub(crate) initializers: Vec<Initializer>,
    pub(crate) max_tasks: Option<usize>,
    pub(crate) max_tries: u16,
    pub(crate) start_method: Option<StartMethod>,
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) seed: Option<u64>,
}

impl Recipe {
    /// The index by which the worker at this place is known outside.
    pub(crate) fn index(&self, place: usize) -> usize {
        self.first_index.saturating_add(place)
    }

    /// Starts the process of the worker at this place.
    pub(crate) fn start(&self, shared: &Shared, place: usize) -> Result<ProcessHandle<()>, PoolError> {
        let index = self.index(place);
        let initial = self.initializers.iter().map(|call| self.initial(shared, call));
        let order = Order {
            place,
            initial: initial.collect::<Result<_, _>>()?,
            tasks: shared.tasks.receiver().map_err(PoolError::Memory)?,
            answers: shared.answers.sender().map_err(PoolError::Memory)?,
            max_tasks: self.max_tasks,
            max_tries: self.max_tries,
        };
        let process = Process::new(pool_worker, (order,)).rank(index).name(format!("{} {index}", self.name));
        let process =
            self.environment.iter().fold(process, |process, (name, value)| process.env(name, value));
        let process = self.seed.into_iter().fold(process, Process::seed);
        let process = self.start_method.into_iter().fold(process, Process::start_method);
        process.start().map_err(|error| PoolError::Start { worker: index, error: error.into() })
    }

    /// A ring with the call of an initializer. It has leases, so that each worker can have the same.
    fn initial(&self, shared: &Shared, call: &Initializer) -> Result<End, PoolError> {
        let end = End::create(shared.tasks.ring().heap(), 1, 1).map_err(PoolError::Memory)?;
        // This runs on the pool's thread for workers that are replaced, and a `Serialize` may panic.
        let called = catch_unwind(AssertUnwindSafe(|| call.put(end.ring()))).unwrap_or_else(|payload| {
            let _never_dropped = ManuallyDrop::new(payload);
            let error = EncodeError::Serialize("its `Serialize` panicked".into());
            Err(SubmitErrorKind::Arguments(Arc::new(error)))
        });
        called.map_err(PoolError::Initializer)?;
        Ok(end)
    }
}

impl fmt::Debug for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recipe")
            .field("n_processes", &self.n_processes)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
