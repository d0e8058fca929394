//! Iterators over the outcomes of tasks.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::iter::Fuse;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_spawn::Function;
use tensorferry_storage::Deadline;

use crate::async_result::{AsyncResult, read};
use crate::error::TaskError;
use crate::pool::Pool;
use crate::slot::{Group, Slot};

/// How many items of each process are submitted before the first of them is taken.
const AHEAD_PER_PROCESS: usize = 2;

/// What [`Pool::imap`] returns.
#[must_use = "nothing is submitted before it is iterated over"]
pub struct Imap<'a, F: Function<(A,)>, A, I> {
    pool: &'a Pool,
    function: F,
    items: Fuse<I>,
    ahead: VecDeque<Result<AsyncResult<F::Value>, TaskError>>,
    takes: PhantomData<fn(A)>,
}

impl<'a, F: Function<(A,)>, A, I: Iterator<Item = A>> Imap<'a, F, A, I> {
    pub(crate) fn new(pool: &'a Pool, function: F, items: I) -> Self {
        Self { pool, function, items: items.fuse(), ahead: VecDeque::new(), takes: PhantomData }
    }
}

impl<F, A, I> Iterator for Imap<'_, F, A, I>
where
    F: Function<(A,)>,
    A: Serialize + DeserializeOwned,
    I: Iterator<Item = A>,
{
    type Item = Result<F::Value, TaskError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ahead.len() < AHEAD_PER_PROCESS * self.pool.n_processes() {
            let Some(item) = self.items.next() else { break };
            self.ahead.push_back(self.pool.apply_async(self.function, (item,)).map_err(TaskError::from));
        }
        self.ahead.pop_front().map(|submitted| submitted.and_then(AsyncResult::get))
    }
}

/// What [`Pool::imap_unordered`] returns.
#[must_use = "nothing is submitted before it is iterated over"]
pub struct ImapUnordered<'a, F, A, I> {
    pool: &'a Pool,
    function: F,
    items: Fuse<I>,
    /// By the place of the item.
    ahead: HashMap<usize, Arc<Slot>>,
    group: Arc<Group>,
    n_taken: usize,
    takes: PhantomData<fn(A)>,
}

impl<'a, F, A, I: Iterator<Item = A>> ImapUnordered<'a, F, A, I> {
    pub(crate) fn new(pool: &'a Pool, function: F, items: I) -> Self {
        Self {
            pool,
            function,
            items: items.fuse(),
            ahead: HashMap::new(),
            group: Arc::default(),
            n_taken: 0,
            takes: PhantomData,
        }
    }
}

impl<F, A, I> Iterator for ImapUnordered<'_, F, A, I>
where
    F: Function<(A,)>,
    A: Serialize + DeserializeOwned,
    I: Iterator<Item = A>,
{
    type Item = (usize, Result<F::Value, TaskError>);

    fn next(&mut self) -> Option<Self::Item> {
        while self.ahead.len() < AHEAD_PER_PROCESS * self.pool.n_processes() {
            let Some(item) = self.items.next() else { break };
            let index = self.n_taken;
            self.n_taken += 1;
            let member_of = Some((Arc::clone(&self.group), index));
            match self.pool.shared().submit(&self.function, &(item,), member_of, Deadline::Never) {
                Ok(slot) => drop(self.ahead.insert(index, slot)),
                Err(kind) => return Some((index, Err(kind.into()))),
            }
        }
        while !self.ahead.is_empty() {
            let index = self.group.next();
            // Every place comes once. One that was refused was never ahead.
            let Some(slot) = self.ahead.remove(&index) else { continue };
            let outcome = slot.poll(None).unwrap_or(Err(TaskError::Terminated));
            return Some((index, read(&slot, outcome)));
        }
        None
    }
}

impl<F: Function<(A,)>, A, I> fmt::Debug for Imap<'_, F, A, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Imap").field("n_ahead", &self.ahead.len()).finish_non_exhaustive()
    }
}

impl<F, A, I> fmt::Debug for ImapUnordered<'_, F, A, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImapUnordered").field("n_ahead", &self.ahead.len()).finish_non_exhaustive()
    }
}
