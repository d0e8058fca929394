//! Taking what another process has published.

use std::any::type_name;
use std::ffi::OsStr;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::de::{self, DeserializeOwned, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::{ConnectError, Connecting};

/// Takes the value that is [published](crate::publish()) at an address. Python's
/// `SharedMemory(name=...)`, with its type and shape.
///
/// The value is a clone of the publisher's: memory in it is the same memory, which lives for as long as
/// anybody has it, whatever becomes of the publisher. Whoever publishes learns nothing of what becomes of it
/// here, and keeps nothing for it.
///
/// As with [`connect`](crate::connect), this process becomes a member of the publisher's domain and stays one
/// until it ends, and the domain becomes its own if it has none yet.
///
/// # Errors
/// [`ConnectError::WrongType`] when a value of another type is published there. Types are compared by name,
/// as those of queues are, so both programs take theirs from one crate and are built by one compiler;
/// [`attach_any`] compares none. [`ConnectError::Connect`] when nothing is published there,
/// [`ConnectError::Decode`] when somebody else listens there, and the others of [`connect`](crate::connect).
///
/// # Blocking
/// Until the publisher answers, or is gone. A publisher that is stopped does not answer.
pub fn attach<T: DeserializeOwned>(address: impl AsRef<OsStr>) -> Result<T, ConnectError> {
    Connecting::to(address).go_on(None, Named::value)
}

/// As [`attach`], waiting for at most `timeout`.
///
/// # Errors
/// As [`attach`], and [`ConnectError::TimedOut`].
///
/// # Blocking
/// As [`attach`], for at most `timeout`.
pub fn attach_timeout<T: DeserializeOwned>(
    address: impl AsRef<OsStr>,
    timeout: Duration,
) -> Result<T, ConnectError> {
    Connecting::to(address).go_on(Some(timeout), Named::value)
}

/// As [`attach_timeout`], for a value that may not have been published yet. The kernel tells nobody that
/// somebody publishes now, so this looks again every 20 milliseconds.
///
/// # Errors
/// As [`attach_timeout`], and [`ConnectError::NobodyListens`] when nobody has come to publish.
///
/// # Blocking
/// As [`attach`], for at most `timeout`.
pub fn attach_when_there<T: DeserializeOwned>(
    address: impl AsRef<OsStr>,
    timeout: Duration,
) -> Result<T, ConnectError> {
    Connecting::to(address).when_there().go_on(Some(timeout), Named::value)
}

/// As [`attach`], whatever its publisher calls the type, waiting for at most `timeout` if there is one. The
/// value still has to be one: `Tensor<f32>` can be taken as `AnyTensor`, and not as `Tensor<f64>`.
///
/// # Errors
/// As [`attach_timeout`], with [`ConnectError::Decode`] when the value is no `T`.
///
/// # Blocking
/// As [`attach_timeout`].
pub fn attach_any<T: DeserializeOwned>(
    address: impl AsRef<OsStr>,
    timeout: Option<Duration>,
) -> Result<T, ConnectError> {
    Connecting::to(address).go_on(timeout, Unnamed::value)
}

impl Connecting {
    /// Takes the value that is published there, as [`attach_any`], going on for at most `timeout`. It can be
    /// called again as [`Connecting::try_any`] can.
    ///
    /// # Errors
    /// As [`attach_any`].
    ///
    /// # Blocking
    /// For at most `timeout`.
    pub fn try_attach_any<T: DeserializeOwned>(&mut self, timeout: Duration) -> Result<T, ConnectError> {
        self.go_on(Some(timeout), Unnamed::value)
    }
}

/// The name of a type whose program does not name it.
pub(crate) const ANY_TYPE: &str = "";

/// A published value of this type, or the name of its type if that is another one.
struct Named<T>(Result<T, String>);

impl<T> Named<T> {
    fn value(self, address: &OsStr) -> Result<T, ConnectError> {
        self.0.map_err(|published| ConnectError::WrongType {
            address: address.into(),
            published,
            wanted: type_name::<T>(),
        })
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parts<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Parts<T> {
            type Value = Named<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("something that was published")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Named<T>, A::Error> {
                let missing = |at| de::Error::invalid_length(at, &self);
                let published: String = parts.next_element()?.ok_or_else(|| missing(0))?;
                if published == type_name::<T>() || published == ANY_TYPE {
                    return Ok(Named(Ok(parts.next_element()?.ok_or_else(|| missing(1))?)));
                }
                // A value of another type could be read as this one by chance.
                parts.next_element::<IgnoredAny>()?.ok_or_else(|| missing(1))?;
                Ok(Named(Err(published)))
            }
        }

        deserializer.deserialize_tuple(2, Parts(PhantomData))
    }
}

/// A published value, whatever the name of its type.
#[derive(Deserialize)]
pub(crate) struct Unnamed<T>(#[expect(dead_code, reason = "it is part of the message")] String, T);

impl<T> Unnamed<T> {
    #[expect(clippy::unnecessary_wraps, reason = "as `Named::value`")]
    fn value(self, _address: &OsStr) -> Result<T, ConnectError> {
        Ok(self.1)
    }
}
