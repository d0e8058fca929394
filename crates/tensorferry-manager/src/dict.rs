//! A dictionary that several processes use.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::answer::Failure;
use crate::error::{CallError, CallErrorKind};
use crate::handle::Handle;
use crate::handler::Handler;
use crate::proxy::Proxy;

/// A handle on a dictionary of a [`Manager`](crate::Manager), in ascending order of its keys. It travels in
/// any message.
///
/// Values are `Clone`, because what comes out is a copy and the dictionary keeps its own: so a `Tensor`, and
/// not a `TensorMut`, which only one can have. A value that is taken out ([`Dict::remove`]) is put back if
/// the answer cannot be sent, and lost if the caller is killed while it is on its way: see [the
/// crate](crate#who-may-die). One that is replaced ([`Dict::insert`]) is gone if the answer does not arrive.
///
/// Each call is one step. What has to happen between two of them without anybody else coming in between is
/// for an object of your own ([`serve`](crate::serve)).
///
/// # Blocking and errors
/// Each call waits for the process that has the dictionary. Its error says why there is no answer
/// ([`CallErrorKind`]); what was to be put comes back with it if it was not sent.
#[derive(Serialize, Deserialize)]
#[serde(bound = "", transparent)]
pub struct Dict<K, V> {
    pub(crate) handle: Handle<Request<K, V>, Answer<K, V>>,
}

/// What is asked of the dictionary.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request<K, V> {
    Insert(K, V),
    GetOrInsert(K, V),
    Extend(Vec<(K, V)>),
    Get(K),
    Contains(K),
    Remove(K),
    Len,
    Keys,
    Values,
    Items,
    Clear,
    /// What was taken out has not reached its caller. It does not replace what was put there since.
    PutBack(K, V),
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer<K, V> {
    Done,
    Value(V),
    NoValue,
    Flag(bool),
    Len(usize),
    Keys(Vec<K>),
    Values(Vec<V>),
    Items(Vec<(K, V)>),
}

impl<K, V> Dict<K, V> {
    pub(crate) fn over(proxy: Proxy<Request<K, V>, Answer<K, V>>) -> Self {
        Self { handle: Handle::over(proxy) }
    }

    /// A handle on the same dictionary whose calls wait for at most `timeout`
    /// ([`CallErrorKind::TimedOut`]). One that is sent waits without a limit where it arrives.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { handle: self.handle.with_timeout(timeout) }
    }
}

/// What each request does.
pub(crate) struct Entries;

impl<K: Ord + Clone, V: Clone> Handler<BTreeMap<K, V>, Request<K, V>, Answer<K, V>> for Entries {
    /// The key of the value in the answer.
    type Taken = Option<K>;

    fn step(
        &mut self,
        map: &mut BTreeMap<K, V>,
        request: Request<K, V>,
    ) -> Result<(Answer<K, V>, Option<K>), Failure> {
        let answer = match request {
            Request::Insert(key, value) => map.insert(key, value).into(),
            Request::GetOrInsert(key, value) => Answer::Value(map.entry(key).or_insert(value).clone()),
            Request::Extend(entries) => {
                map.extend(entries);
                Answer::Done
            }
            Request::Get(key) => map.get(&key).cloned().into(),
            Request::Contains(key) => Answer::Flag(map.contains_key(&key)),
            Request::Remove(key) => match map.remove_entry(&key) {
                Some((key, value)) => return Ok((Answer::Value(value), Some(key))),
                None => Answer::NoValue,
            },
            Request::Len => Answer::Len(map.len()),
            Request::Keys => Answer::Keys(map.keys().cloned().collect()),
            Request::Values => Answer::Values(map.values().cloned().collect()),
            Request::Items => {
                Answer::Items(map.iter().map(|(key, value)| (key.clone(), value.clone())).collect())
            }
            Request::Clear => {
                map.clear();
                Answer::Done
            }
            Request::PutBack(key, value) => {
                map.entry(key).or_insert(value);
                Answer::Done
            }
        };
        Ok((answer, None))
    }

    fn put_back(&mut self, map: &mut BTreeMap<K, V>, taken: Option<K>, answer: Answer<K, V>) {
        if let (Some(key), Answer::Value(value)) = (taken, answer) {
            map.insert(key, value);
        }
    }
}

impl<K, V> From<Option<V>> for Answer<K, V> {
    fn from(value: Option<V>) -> Self {
        value.map_or(Self::NoValue, Self::Value)
    }
}

impl<K, V> Answer<K, V> {
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

impl<K, V> Dict<K, V>
where
    K: Serialize + DeserializeOwned,
    V: Serialize + DeserializeOwned,
{
    /// Puts a value under a key. Returns the one that was there.
    ///
    /// # Errors
    /// [`CallError`] has key and value, if they were not sent.
    pub fn insert(&self, key: K, value: V) -> Result<Option<V>, CallError<(K, V)>> {
        self.put(Request::Insert(key, value), Answer::into_value)
    }

    /// The value under a key; if there is none, `value`, which is there then (Python's `setdefault`).
    ///
    /// # Errors
    /// As [`Dict::insert`].
    pub fn get_or_insert(&self, key: K, value: V) -> Result<V, CallError<(K, V)>> {
        self.put(Request::GetOrInsert(key, value), |answer| answer.into_value().flatten())
    }

    /// Puts many values (Python's `update`), all in one step.
    ///
    /// # Errors
    /// [`CallError`] has all of them, if they were not sent.
    pub fn extend(&self, entries: impl IntoIterator<Item = (K, V)>) -> Result<(), CallError<Vec<(K, V)>>> {
        let entries = Request::Extend(entries.into_iter().collect());
        let sent = self.handle.call(entries, Answer::into_done);
        sent.map_err(|error| {
            error.map(|request| match request {
                Request::Extend(entries) => Some(entries),
                _ => None,
            })
        })
    }

    /// The value under a key.
    ///
    /// # Errors
    /// [`CallErrorKind`].
    pub fn get<B>(&self, key: &B) -> Result<Option<V>, CallErrorKind>
    where
        B: ToOwned<Owned = K> + ?Sized,
    {
        self.ask(Request::Get(key.to_owned()), Answer::into_value)
    }

    /// Whether there is a value under a key.
    ///
    /// # Errors
    /// [`CallErrorKind`].
    pub fn contains_key<B>(&self, key: &B) -> Result<bool, CallErrorKind>
    where
        B: ToOwned<Owned = K> + ?Sized,
    {
        self.ask(Request::Contains(key.to_owned()), |answer| match answer {
            Answer::Flag(flag) => Some(flag),
            _ => None,
        })
    }

    /// Takes the value under a key away, and returns it (Python's `pop`).
    ///
    /// # Errors
    /// [`CallErrorKind`].
    pub fn remove<B>(&self, key: &B) -> Result<Option<V>, CallErrorKind>
    where
        B: ToOwned<Owned = K> + ?Sized,
    {
        self.ask(Request::Remove(key.to_owned()), Answer::into_value)
    }

    /// How many entries there are.
    ///
    /// # Errors
    /// [`CallErrorKind`].
    pub fn len(&self) -> Result<usize, CallErrorKind> {
        self.ask(Request::Len, |answer| match answer {
            Answer::Len(len) => Some(len),
            _ => None,
        })
    }

    /// Whether there is no entry.
    ///
    /// # Errors
    /// [`CallErrorKind`].
    pub fn is_empty(&self) -> Result<bool, CallErrorKind> {
        Ok(self.len()? == 0)
    }

    /// All keys.
    ///
    /// # Errors
    /// [`CallErrorKind`].
    pub fn keys(&self) -> Result<Vec<K>, CallErrorKind> {
        self.ask(Request::Keys, |answer| match answer {
            Answer::Keys(keys) => Some(keys),
            _ => None,
        })
    }

    /// All values, in the order of their keys.
    ///
    /// # Errors
    /// [`CallErrorKind`].
    pub fn values(&self) -> Result<Vec<V>, CallErrorKind> {
        self.ask(Request::Values, |answer| match answer {
            Answer::Values(values) => Some(values),
            _ => None,
        })
    }

    /// All entries.
    ///
    /// # Errors
    /// [`CallErrorKind`].
    pub fn items(&self) -> Result<Vec<(K, V)>, CallErrorKind> {
        self.ask(Request::Items, |answer| match answer {
            Answer::Items(items) => Some(items),
            _ => None,
        })
    }

    /// Takes all entries away.
    ///
    /// # Errors
    /// [`CallErrorKind`].
    pub fn clear(&self) -> Result<(), CallErrorKind> {
        self.ask(Request::Clear, Answer::into_done)
    }

    fn put<A>(
        &self,
        request: Request<K, V>,
        read: impl FnOnce(Answer<K, V>) -> Option<A>,
    ) -> Result<A, CallError<(K, V)>> {
        self.handle.call(request, read).map_err(|error| {
            error.map(|request| match request {
                Request::Insert(key, value) | Request::GetOrInsert(key, value) => Some((key, value)),
                _ => None,
            })
        })
    }

    fn ask<A>(
        &self,
        request: Request<K, V>,
        read: impl FnOnce(Answer<K, V>) -> Option<A>,
    ) -> Result<A, CallErrorKind> {
        Ok(self.handle.call(request, read)?)
    }
}

impl<K, V> Clone for Dict<K, V> {
    fn clone(&self) -> Self {
        Self { handle: self.handle.clone() }
    }
}

impl<K, V> fmt::Debug for Dict<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dict").field(&self.handle).finish()
    }
}
