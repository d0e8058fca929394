//! The handles whose objects can be on another machine.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::dict::{self, Dict};
use crate::error::CallErrorKind;
use crate::guarded::Guarded;
use crate::list::{self, List};
use crate::proxy::Proxy;

/// A handle whose object can be on another machine: [`Proxy`], [`Dict`] and [`List`].
///
/// The two machines run programs that have the types of keys, values, requests and answers from one crate.
pub trait RemoteHandle: Over {}

impl<H: Over> RemoteHandle for H {}

/// A handle, and what undoes its requests.
pub trait Over: Clone + Send + Sync + Sized + 'static {
    type Request: Serialize + DeserializeOwned + 'static;
    type Answer: Serialize + DeserializeOwned + 'static;
    /// Where a request takes something out.
    type Place;

    fn over(proxy: Proxy<Self::Request, Self::Answer>) -> Self;

    fn proxy(&self) -> &Proxy<Self::Request, Self::Answer>;

    /// Calls the object, within the time of the handle.
    fn ask(&self, request: Self::Request) -> Result<Self::Answer, CallErrorKind>;

    fn place(request: &Self::Request) -> Self::Place;

    /// What puts back into its place what the answer has from there.
    fn putting_back(place: Self::Place, answer: Self::Answer) -> Option<Self::Request>;
}

impl<Q, R> Over for Proxy<Q, R>
where
    Q: Serialize + DeserializeOwned + 'static,
    R: Serialize + DeserializeOwned + 'static,
{
    type Request = Q;
    type Answer = R;
    /// What the answer was taken from, only the object knows.
    type Place = ();

    fn over(proxy: Proxy<Q, R>) -> Self {
        proxy
    }

    fn proxy(&self) -> &Proxy<Q, R> {
        self
    }

    fn ask(&self, request: Q) -> Result<R, CallErrorKind> {
        Ok(self.call(request)?)
    }

    fn place(_: &Q) {}

    fn putting_back((): (), answer: R) -> Option<Q> {
        drop(Guarded::new(answer));
        None
    }
}

impl<K, V> Over for Dict<K, V>
where
    K: Clone + Serialize + DeserializeOwned + 'static,
    V: Serialize + DeserializeOwned + 'static,
{
    type Request = dict::Request<K, V>;
    type Answer = dict::Answer<K, V>;
    type Place = Option<K>;

    fn over(proxy: Proxy<Self::Request, Self::Answer>) -> Self {
        Self::over(proxy)
    }

    fn proxy(&self) -> &Proxy<Self::Request, Self::Answer> {
        self.handle.proxy()
    }

    fn ask(&self, request: Self::Request) -> Result<Self::Answer, CallErrorKind> {
        Ok(self.handle.call(request, Some)?)
    }

    fn place(request: &Self::Request) -> Option<K> {
        match request {
            dict::Request::Remove(key) => Some(key.clone()),
            _ => None,
        }
    }

    fn putting_back(key: Option<K>, answer: Self::Answer) -> Option<Self::Request> {
        match (key, answer) {
            (Some(key), dict::Answer::Value(value)) => Some(dict::Request::PutBack(key, value)),
            _ => None,
        }
    }
}

impl<V: Serialize + DeserializeOwned + 'static> Over for List<V> {
    type Request = list::Request<V>;
    type Answer = list::Answer<V>;
    type Place = Option<usize>;

    fn over(proxy: Proxy<Self::Request, Self::Answer>) -> Self {
        Self::over(proxy)
    }

    fn proxy(&self) -> &Proxy<Self::Request, Self::Answer> {
        self.handle.proxy()
    }

    fn ask(&self, request: Self::Request) -> Result<Self::Answer, CallErrorKind> {
        Ok(self.handle.call(request, Some)?)
    }

    fn place(request: &Self::Request) -> Option<usize> {
        match request {
            list::Request::Remove(index) => Some(*index),
            // The end, wherever that is then.
            list::Request::Pop => Some(usize::MAX),
            _ => None,
        }
    }

    fn putting_back(index: Option<usize>, answer: Self::Answer) -> Option<Self::Request> {
        match (index, answer) {
            (Some(index), list::Answer::Value(value)) => Some(list::Request::PutBack(index, value)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::handler::Handler as _;

    /// What is asked once the answer to a request has not reached its caller.
    fn undoing<H: Over>(request: &H::Request, answer: H::Answer) -> Option<H::Request> {
        H::putting_back(H::place(request), answer)
    }

    #[test]
    fn what_a_dictionary_has_got_since_is_not_replaced() {
        let mut map = BTreeMap::new();
        for (key, value) in [(1, 10), (2, 20)] {
            let undoing = undoing::<Dict<u8, u8>>(&dict::Request::Remove(key), dict::Answer::Value(value));
            // Somebody else has put it there.
            map.extend((key == 2).then_some((2, 22)));
            dict::Entries.step(&mut map, undoing.unwrap()).unwrap();
        }
        assert_eq!(map, BTreeMap::from([(1, 10), (2, 22)]));
        for request in [dict::Request::Get(1), dict::Request::Insert(1, 2)] {
            assert!(undoing::<Dict<u8, u8>>(&request, dict::Answer::Value(1)).is_none());
        }
        assert!(undoing::<Dict<u8, u8>>(&dict::Request::Remove(1), dict::Answer::NoValue).is_none());
    }

    #[test]
    fn what_a_list_gets_back_is_in_its_place_or_at_the_end() {
        let mut list = vec![0, 1];
        for (request, value) in
            [(list::Request::Remove(1), 10), (list::Request::Remove(9), 11), (list::Request::Pop, 12)]
        {
            let undoing = undoing::<List<u8>>(&request, list::Answer::Value(value)).unwrap();
            list::Items.step(&mut list, undoing).unwrap();
        }
        assert_eq!(list, [0, 10, 1, 11, 12]);
        assert!(undoing::<List<u8>>(&list::Request::Set(0, 1), list::Answer::Value(1)).is_none());
        assert!(undoing::<List<u8>>(&list::Request::Pop, list::Answer::NoValue).is_none());
    }
}
