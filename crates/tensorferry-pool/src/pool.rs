//! The pool.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_spawn::{ChildProcess, Function};
use tensorferry_storage::Deadline;

use crate::async_result::AsyncResult;
use crate::builder::PoolBuilder;
use crate::dispatcher::Dispatcher;
use crate::error::{MapError, PoolError, SubmitError, TaskError};
use crate::imap::{Imap, ImapUnordered};
use crate::order::Recipe;
use crate::shared::{Shared, State};

/// Worker processes that call registered functions.
///
/// Any function with the attribute [`func`](tensorferry_spawn::func) can be called, any number of times, from
/// any thread. Its first argument is the index of the worker. Tensors in arguments and values travel as
/// handles. Arguments cannot hold anything exclusive, because another worker has to get them if the first one
/// dies; values can.
///
/// Dropping the pool terminates it; not so the copy of it in a process that something else has forked from
/// this one, to which the workers do not belong.
///
/// # When a worker dies
/// Another process takes its place. Who waits for the task that it was at is told which function, which
/// process and which signal or exit code: [`TaskError::WorkerDied`]. With [`PoolBuilder::max_tries`] the task
/// is tried again first. No other task is affected, and nobody waits in vain.
pub struct Pool {
    shared: Arc<Shared>,
    n_processes: usize,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Pool {
    /// A pool of this many processes.
    ///
    /// # Errors
    /// As [`PoolBuilder::start`].
    pub fn new(n_processes: usize) -> Result<Self, PoolError> {
        Self::builder().processes(n_processes).start()
    }

    /// The settings of a pool to be started.
    pub fn builder() -> PoolBuilder {
        PoolBuilder::new()
    }

    pub(crate) fn over(shared: Shared, recipe: Recipe) -> Result<Self, PoolError> {
        let (shared, n_processes) = (Arc::new(shared), recipe.n_processes);
        // First, so that there is no process yet if it cannot start.
        let (hand_over, handed_over) = mpsc::sync_channel::<Dispatcher>(1);
        let named = thread::Builder::new().name("pool".to_owned());
        let run = move || handed_over.recv().map_or((), Dispatcher::run);
        let thread = named.spawn(run).map_err(PoolError::Thread)?;
        // It waits for the dispatcher, so it is there to take it.
        let _ = hand_over.send(Dispatcher::start(Arc::clone(&shared), recipe)?);
        Ok(Self { shared, n_processes, thread: Mutex::new(Some(thread)) })
    }

    /// How many processes work at a time.
    #[must_use]
    pub fn n_processes(&self) -> usize {
        self.n_processes
    }

    /// The processes that run now, in order of the worker's index. Fewer than
    /// [`n_processes`](Self::n_processes) while one takes another's place.
    #[must_use]
    pub fn processes(&self) -> Vec<ChildProcess> {
        self.shared.processes()
    }

    /// How many tasks have neither a value nor a reason why there is none.
    #[must_use]
    pub fn n_pending(&self) -> usize {
        self.shared.n_pending()
    }

    /// Calls a function in a worker, and waits for its value.
    ///
    /// ```
    /// use tensorferry_pool::Pool;
    /// use tensorferry_spawn::func;
    ///
    /// #[func]
    /// fn add(_worker: usize, a: u64, b: u64) -> Result<u64, String> {
    ///     a.checked_add(b).ok_or_else(|| "too much".to_owned())
    /// }
    ///
    /// let pool = Pool::new(2)?;
    /// assert_eq!(pool.apply(add, (1, 2))?, 3);
    /// let error = pool.apply(add, (1, u64::MAX)).unwrap_err();
    /// assert!(error.to_string().ends_with("returned an error: too much"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// While the queue of tasks is full, and until the task is done.
    ///
    /// # Errors
    /// [`TaskError`].
    pub fn apply<F, Args>(&self, function: F, args: Args) -> Result<F::Value, TaskError>
    where
        F: Function<Args>,
        Args: Serialize + DeserializeOwned,
    {
        self.apply_async(function, args)?.get()
    }

    /// Submits one call. The value is waited for with the result.
    ///
    /// # Blocking
    /// While the queue of tasks is full: 256 wait for a worker.
    ///
    /// # Errors
    /// [`SubmitError`] holds the arguments.
    pub fn apply_async<F, Args>(
        &self,
        function: F,
        args: Args,
    ) -> Result<AsyncResult<F::Value>, SubmitError<Args>>
    where
        F: Function<Args>,
        Args: Serialize + DeserializeOwned,
    {
        self.submit(function, args, Deadline::Never)
    }

    /// As [`Pool::apply_async`], but gives up when the queue of tasks has been full for `timeout`; a timeout
    /// of zero does not wait.
    ///
    /// # Blocking
    /// While the queue of tasks is full, for at most `timeout`.
    ///
    /// # Errors
    /// [`SubmitError`] holds the arguments; [`SubmitErrorKind::Full`](crate::SubmitErrorKind::Full).
    pub fn apply_async_timeout<F, Args>(
        &self,
        function: F,
        args: Args,
        timeout: Duration,
    ) -> Result<AsyncResult<F::Value>, SubmitError<Args>>
    where
        F: Function<Args>,
        Args: Serialize + DeserializeOwned,
    {
        self.submit(function, args, if timeout.is_zero() { Deadline::Now } else { Deadline::within(timeout) })
    }

    fn submit<F, Args>(
        &self,
        function: F,
        args: Args,
        deadline: Deadline,
    ) -> Result<AsyncResult<F::Value>, SubmitError<Args>>
    where
        F: Function<Args>,
        Args: Serialize + DeserializeOwned,
    {
        match self.shared.submit(&function, &args, None, deadline) {
            Ok(slot) => Ok(AsyncResult::new(slot)),
            Err(kind) => Err(SubmitError { args, kind }),
        }
    }

    /// Calls a function of one argument for each item, and returns the values in order of the items.
    ///
    /// ```
    /// use tensorferry_pool::Pool;
    /// use tensorferry_spawn::func;
    ///
    /// #[func]
    /// fn shout(_worker: usize, text: String) -> Result<String, String> {
    ///     if text.is_empty() { Err("nothing to say".to_owned()) } else { Ok(text.to_uppercase()) }
    /// }
    ///
    /// let pool = Pool::new(2)?;
    /// let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    /// assert_eq!(pool.map(shout, texts(&["one", "two"]))?, ["ONE", "TWO"]);
    /// assert_eq!(pool.map(shout, texts(&["one", ""])).unwrap_err().index, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Until all are done. The items are taken as the queue of tasks has room for them.
    ///
    /// # Errors
    /// [`MapError`] for the first item without a value, once those before it are done. No further items are
    /// taken then; those that were are still worked on.
    pub fn map<F, A, I>(&self, function: F, items: I) -> Result<Vec<F::Value>, MapError>
    where
        F: Function<(A,)>,
        A: Serialize + DeserializeOwned,
        I: IntoIterator<Item = A>,
    {
        self.starmap(function, items.into_iter().map(|item| (item,)))
    }

    /// As [`Pool::map`], for a function of any number of arguments. The items are tuples of them.
    ///
    /// # Blocking
    /// As [`Pool::map`].
    ///
    /// # Errors
    /// As [`Pool::map`].
    pub fn starmap<F, Args, I>(&self, function: F, items: I) -> Result<Vec<F::Value>, MapError>
    where
        F: Function<Args>,
        Args: Serialize + DeserializeOwned,
        I: IntoIterator<Item = Args>,
    {
        let mut values = Vec::new();
        let mut submitted = std::collections::VecDeque::new();
        let value_of = |index: usize, result: AsyncResult<F::Value>| {
            result.get().map_err(|error| MapError { index, error })
        };
        let mut refused = None;
        for args in items {
            // Values are taken out of their messages while there are further items.
            while let Some(first) = submitted.pop_front_if(|first: &mut AsyncResult<_>| first.is_ready()) {
                values.push(value_of(values.len(), first)?);
            }
            let index = values.len() + submitted.len();
            match self.apply_async(function, args) {
                Ok(result) => submitted.push_back(result),
                // One before it may have no value either.
                Err(error) => {
                    refused = Some(MapError { index, error: error.into() });
                    break;
                }
            }
        }
        for result in submitted {
            values.push(value_of(values.len(), result)?);
        }
        refused.map_or(Ok(values), Err)
    }

    /// Calls a function for each item, and iterates over the outcomes in order of the items.
    ///
    /// Items are taken only as far ahead as keeps the workers busy: two for each process. So an iterator
    /// without end is fine, and what is not taken from this iterator does not fill the memory.
    ///
    /// ```
    /// # use tensorferry_pool::Pool;
    /// # use tensorferry_spawn::func;
    /// # #[func]
    /// # fn square(_worker: usize, n: u64) -> Result<u64, String> {
    /// #     Ok(n * n)
    /// # }
    /// # let pool = Pool::new(2)?;
    /// let large = pool.imap(square, 0..).find(|square| square.as_ref().is_ok_and(|square| *square > 50));
    /// assert_eq!(large.transpose()?, Some(64));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Each step, until the next item is done.
    pub fn imap<F, A, I>(&self, function: F, items: I) -> Imap<'_, F, A, I::IntoIter>
    where
        F: Function<(A,)>,
        A: Serialize + DeserializeOwned,
        I: IntoIterator<Item = A>,
    {
        Imap::new(self, function, items.into_iter())
    }

    /// As [`Pool::imap`], in the order in which the tasks are done. Each outcome comes with the place of its
    /// item, from 0.
    ///
    /// # Blocking
    /// Each step, until any item is done.
    pub fn imap_unordered<F, A, I>(&self, function: F, items: I) -> ImapUnordered<'_, F, A, I::IntoIter>
    where
        F: Function<(A,)>,
        A: Serialize + DeserializeOwned,
        I: IntoIterator<Item = A>,
    {
        ImapUnordered::new(self, function, items.into_iter())
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Takes no more tasks. What was submitted is still done, and then the workers end.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Closes the pool, and waits until everything is done and no process is left.
    ///
    /// # Blocking
    /// Until then.
    ///
    /// # Errors
    /// The error with which the pool has failed.
    pub fn join(self) -> Result<(), Arc<PoolError>> {
        self.close();
        self.wait();
        match self.shared.state() {
            State::Failed(error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Kills the workers (SIGKILL), and takes no more tasks. Everybody who waits for a task that is not done
    /// is told: [`TaskError::Terminated`].
    pub fn terminate(&self) {
        self.shared.end(State::Terminated);
    }

    fn wait(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The thread itself is here when a future that it wakes has the last handle on the pool. It ends when
        // it goes on.
        let is_another = |thread: &JoinHandle<()>| thread.thread().id() != thread::current().id();
        // In a process that something else has forked there is no such thread.
        let is_here = self.shared.is_of_this_process();
        let thread = thread.filter(|thread| is_here && is_another(thread));
        // It does not panic, and if it did, nobody would be left to tell.
        thread.into_iter().for_each(|thread| drop(thread.join()));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.terminate();
        self.wait();
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (n_processes, n_pending) = (self.n_processes, self.n_pending());
        f.debug_struct("Pool").field("n_processes", &n_processes).field("n_pending", &n_pending).finish()
    }
}
