//! A list that several processes use.

use std::fmt;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::answer::Failure;
use crate::error::{CallError, CallErrorKind};
use crate::handle::Handle;
use crate::handler::Handler;
use crate::proxy::Proxy;

/// A handle on a list of a [`Manager`](crate::Manager). It travels in any message.
///
/// Values are `Clone`, each call is one step, and a value that is taken out ([`List::remove`],
/// [`List::pop`]) or replaced ([`List::set`]) fares as with [`Dict`](crate::Dict) if the answer does not
/// arrive.
///
/// # Blocking and errors
/// Each call waits for the process that has the list. Its error says why there is no answer
/// ([`CallErrorKind`]); what was to be put comes back with it if it was not sent, or did not fit.
#[derive(Serialize, Deserialize)]
#[serde(bound = "", transparent)]
pub struct List<V> {
    pub(crate) handle: Handle<Request<V>, Answer<V>>,
}

/// What is asked of the list.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request<V> {
    Push(V),
    Extend(Vec<V>),
    Insert(usize, V),
    Set(usize, V),
    Get(usize),
    Remove(usize),
    Pop,
    Len,
    Items,
    Clear,
    /// What was taken out has not reached its caller. A place beyond the end is the end.
    PutBack(usize, V),
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer<V> {
    Done,
    Value(V),
    NoValue,
    Len(usize),
    Items(Vec<V>),
    /// The index is beyond the end of a list of this length; what was to be put there.
    OutOfRange(usize, V),
}

impl<V> List<V> {
    pub(crate) fn over(proxy: Proxy<Request<V>, Answer<V>>) -> Self {
        Self { handle: Handle::over(proxy) }
    }

    /// A handle on the same list whose calls wait for at most `timeout` ([`CallErrorKind::TimedOut`]). One
    /// that is sent waits without a limit where it arrives.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { handle: self.handle.with_timeout(timeout) }
    }
}

/// What each request does.
pub(crate) struct Items;

impl<V: Clone> Handler<Vec<V>, Request<V>, Answer<V>> for Items {
    /// The place of the value in the answer.
    type Taken = Option<usize>;

    fn step(
        &mut self,
        list: &mut Vec<V>,
        request: Request<V>,
    ) -> Result<(Answer<V>, Option<usize>), Failure> {
        let answer = match request {
            Request::Push(value) => {
                list.push(value);
                Answer::Done
            }
            Request::Extend(values) => {
                list.extend(values);
                Answer::Done
            }
            Request::Insert(index, value) if index <= list.len() => {
                list.insert(index, value);
                Answer::Done
            }
            Request::Set(index, value) if index < list.len() => {
                Answer::Value(std::mem::replace(&mut list[index], value))
            }
            Request::Insert(_, value) | Request::Set(_, value) => Answer::OutOfRange(list.len(), value),
            Request::Get(index) => list.get(index).cloned().into(),
            Request::Remove(index) if index < list.len() => {
                return Ok((Answer::Value(list.remove(index)), Some(index)));
            }
            Request::Remove(_) => Answer::NoValue,
            Request::Pop => match list.pop() {
                Some(value) => return Ok((Answer::Value(value), Some(list.len()))),
                None => Answer::NoValue,
            },
            Request::Len => Answer::Len(list.len()),
            Request::Items => Answer::Items(list.clone()),
            Request::Clear => {
                list.clear();
                Answer::Done
            }
            Request::PutBack(index, value) => {
                list.insert(index.min(list.len()), value);
                Answer::Done
            }
        };
        Ok((answer, None))
    }

    fn put_back(&mut self, list: &mut Vec<V>, taken: Option<usize>, answer: Answer<V>) {
        if let (Some(index), Answer::Value(value)) = (taken, answer) {
            list.insert(index, value);
        }
    }
}

impl<V> From<Option<V>> for Answer<V> {
    fn from(value: Option<V>) -> Self {
        value.map_or(Self::NoValue, Self::Value)
    }
}

impl<V> Answer<V> {
    /// `None` for another answer than this.
    fn into_done(self) -> Option<()> {
        matches!(self, Self::Done).then_some(())
    }

    /// `None` for another answer than this.
    fn into_value(self) -> Option<Option<V>> {
        match self {
            Self::Value(value) => Some(Some(value)),
            Self::NoValue => Some(None),
            _ => None,
        }
    }
}

impl<V: Serialize + DeserializeOwned> List<V> {
    /// Adds a value at the end (Python's `append`).
    ///
    /// # Errors
    /// [`CallError`] has the value, if it was not sent.
    pub fn push(&self, value: V) -> Result<(), CallError<V>> {
        self.put(Request::Push(value), 0, Answer::into_done)
    }

    /// Adds many values at the end, all in one step.
    ///
    /// # Errors
    /// [`CallError`] has all of them, if they were not sent.
    pub fn extend(&self, values: impl IntoIterator<Item = V>) -> Result<(), CallError<Vec<V>>> {
        let values = Request::Extend(values.into_iter().collect());
        let sent = self.handle.call(values, Answer::into_done);
        sent.map_err(|error| {
            error.map(|request| match request {
                Request::Extend(values) => Some(values),
                _ => None,
            })
        })
    }

    /// Puts a value before the one at `index`, or at the end.
    ///
    /// # Errors
    /// As [`List::push`], and [`CallErrorKind::OutOfRange`], with the value.
    pub fn insert(&self, index: usize, value: V) -> Result<(), CallError<V>> {
        self.put(Request::Insert(index, value), index, Answer::into_done)
    }

    /// Puts a value in the place of the one at `index`, and returns that.
    ///
    /// # Errors
    /// As [`List::insert`].
    pub fn set(&self, index: usize, value: V) -> Result<V, CallError<V>> {
        self.put(Request::Set(index, value), index, |answer| answer.into_value().flatten())
    }

    /// The value at `index`; `None` beyond the end.
    ///
    /// # Errors
    /// [`CallErrorKind`].
    pub fn get(&self, index: usize) -> Result<Option<V>, CallErrorKind> {
        self.ask(Request::Get(index), Answer::into_value)
    }

    /// Takes the value at `index` away, and returns it; `None` beyond the end.
    ///
    /// # Errors
    /// [`CallErrorKind`].
    pub fn remove(&self, index: usize) -> Result<Option<V>, CallErrorKind> {
        self.ask(Request::Remove(index), Answer::into_value)
    }

    /// Takes the last value away, and returns it.
    ///
    /// # Errors
    /// [`CallErrorKind`].
    pub fn pop(&self) -> Result<Option<V>, CallErrorKind> {
        self.ask(Request::Pop, Answer::into_value)
    }

    /// How many values there are.
    ///
    /// # Errors
    /// [`CallErrorKind`].
    pub fn len(&self) -> Result<usize, CallErrorKind> {
        self.ask(Request::Len, |answer| match answer {
            Answer::Len(len) => Some(len),
            _ => None,
        })
    }

    /// Whether there is no value.
    ///
    /// # Errors
    /// [`CallErrorKind`].
    pub fn is_empty(&self) -> Result<bool, CallErrorKind> {
        Ok(self.len()? == 0)
    }

    /// All values.
    ///
    /// # Errors
    /// [`CallErrorKind`].
    pub fn to_vec(&self) -> Result<Vec<V>, CallErrorKind> {
        self.ask(Request::Items, |answer| match answer {
            Answer::Items(items) => Some(items),
            _ => None,
        })
    }

    /// Takes all values away.
    ///
    /// # Errors
    /// [`CallErrorKind`].
    pub fn clear(&self) -> Result<(), CallErrorKind> {
        self.ask(Request::Clear, Answer::into_done)
    }

    fn put<A>(
        &self,
        request: Request<V>,
        index: usize,
        read: impl FnOnce(Answer<V>) -> Option<A>,
    ) -> Result<A, CallError<V>> {
        let put = self.handle.call(request, |answer| match answer {
            Answer::OutOfRange(len, value) => {
                Some(Err(CallError::new(Some(value), CallErrorKind::OutOfRange { index, len })))
            }
            answer => read(answer).map(Ok),
        });
        put.map_err(|error| {
            error.map(|request| match request {
                Request::Push(value) | Request::Insert(_, value) | Request::Set(_, value) => Some(value),
                _ => None,
            })
        })?
    }

    fn ask<A>(
        &self,
        request: Request<V>,
        read: impl FnOnce(Answer<V>) -> Option<A>,
    ) -> Result<A, CallErrorKind> {
        Ok(self.handle.call(request, read)?)
    }
}

impl<V> Clone for List<V> {
    fn clone(&self) -> Self {
        Self { handle: self.handle.clone() }
    }
}

impl<V> fmt::Debug for List<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("List").field(&self.handle).finish()
    }
}
