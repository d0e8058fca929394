//! What the handles on collections have in common.

use std::fmt;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{CallError, CallErrorKind};
use crate::proxy::Proxy;

/// Calls an object whose answers are of several kinds, and has a time for it. The time is not sent along.
#[derive(Serialize, Deserialize)]
#[serde(bound = "", transparent)]
pub(crate) struct Handle<Q, R> {
    proxy: Proxy<Q, R>,
    #[serde(skip)]
    timeout: Option<Duration>,
}

impl<Q, R> Handle<Q, R> {
    pub(crate) const fn over(proxy: Proxy<Q, R>) -> Self {
        Self { proxy, timeout: None }
    }

    #[cfg(feature = "remote")]
    pub(crate) const fn proxy(&self) -> &Proxy<Q, R> {
        &self.proxy
    }

    pub(crate) fn with_timeout(&self, timeout: Duration) -> Self {
        Self { proxy: self.proxy.clone(), timeout: Some(timeout) }
    }
}

impl<Q: Serialize, R: Serialize + DeserializeOwned> Handle<Q, R> {
    /// Calls the object. `read` has `None` for another answer than this request has.
    pub(crate) fn call<A>(&self, request: Q, read: impl FnOnce(R) -> Option<A>) -> Result<A, CallError<Q>> {
        let answer = match self.timeout {
            Some(timeout) => self.proxy.call_timeout(request, timeout),
            None => self.proxy.call(request),
        };
        read(answer?).ok_or(CallError::new(None, CallErrorKind::OtherAnswer))
    }
}

impl<Q, R> Clone for Handle<Q, R> {
    fn clone(&self) -> Self {
        Self { proxy: self.proxy.clone(), timeout: self.timeout }
    }
}

impl<Q, R> fmt::Debug for Handle<Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.proxy.fmt(f)
    }
}
