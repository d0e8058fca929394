//! Taking what another process offers.

use std::any::type_name;
use std::ffi::OsStr;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tensorferry_reduce::{ANY_TYPE, DecodeError, Parcel, type_hash};
use tensorferry_storage::{Heap, StorageError};

use crate::attach::Unnamed;
use crate::joined::Joined;
use crate::{ConnectError, Connecting, Token};

/// Takes the value that another process, or this one, has [offered](crate::offer()).
///
/// As with [`connect`](crate::connect()), this process becomes a member of the domain and stays one until it
/// ends, and the domain becomes its own if it has none yet. A process that is a member already, of which each
/// one that was started from here is one, takes the value from shared memory and calls nobody.
///
/// # Errors
/// [`ConnectError::NotOffered`] when somebody else has taken it, or it is offered no more;
/// [`ConnectError::Connect`] when this process is no member and nobody lets it in, because the process that
/// offered the value has ended; [`ConnectError::OfferedType`] when it is of another type, by name as with
/// [`attach`](crate::attach()), and still offered then; [`ConnectError::NoValue`] when the token is an
/// [invitation](crate::invite()); and those of [`connect`](crate::connect()).
///
/// # Blocking
/// A process that is no member yet, until the one that offered the value lets it in, or is gone.
pub fn take<T: DeserializeOwned>(token: Token) -> Result<T, ConnectError> {
    Connecting::to_take(token).take(token, None, type_hash::<T>())
}

/// As [`take`], waiting for at most `timeout`.
///
/// # Errors
/// As [`take`], and [`ConnectError::TimedOut`].
///
/// # Blocking
/// As [`take`], for at most `timeout`.
pub fn take_timeout<T: DeserializeOwned>(token: Token, timeout: Duration) -> Result<T, ConnectError> {
    Connecting::to_take(token).take(token, Some(timeout), type_hash::<T>())
}

/// As [`take`], whatever the type was when it was offered, waiting for at most `timeout` if there is one. A
/// value that is no `T` after all is lost.
///
/// # Errors
/// As [`take_timeout`], with [`ConnectError::Decode`] when the value is no `T`.
///
/// # Blocking
/// As [`take_timeout`].
pub fn take_any<T: DeserializeOwned>(token: Token, timeout: Option<Duration>) -> Result<T, ConnectError> {
    Connecting::to_take(token).take(token, timeout, ANY_TYPE)
}

impl Connecting {
    /// Will let in whoever takes what this token stands for.
    #[must_use]
    pub fn to_take(token: Token) -> Self {
        Self::to(token.address()).only_into(token.domain_id)
    }

    /// Takes what the token of [`Connecting::to_take`] stands for, as [`take_any`], going on for at most
    /// `timeout`. It can be called again as [`Connecting::try_any`] can.
    ///
    /// # Errors
    /// As [`take_any`].
    ///
    /// # Blocking
    /// For at most `timeout`.
    pub fn try_take_any<T: DeserializeOwned>(
        &mut self,
        token: Token,
        timeout: Duration,
    ) -> Result<T, ConnectError> {
        self.take(token, Some(timeout), ANY_TYPE)
    }

    fn take<T: DeserializeOwned>(
        &mut self,
        token: Token,
        timeout: Option<Duration>,
        wanted: u64,
    ) -> Result<T, ConnectError> {
        if token.parcel == Token::NO_VALUE {
            return Err(ConnectError::NoValue { token });
        }
        let fits = [token.type_hash, wanted].contains(&ANY_TYPE) || token.type_hash == wanted;
        if !fits {
            return Err(ConnectError::OfferedType { token, wanted: type_name::<T>() });
        }
        let heap = self.join(token, timeout)?;
        match Parcel::open(&heap, token.parcel) {
            Err(DecodeError::Storage(StorageError::BadReference { reference, .. }))
                if reference == token.parcel =>
            {
                Err(ConnectError::NotOffered { token })
            }
            opened => Ok(opened?),
        }
    }

    /// Becomes a member of the token's domain, if this process is none yet.
    pub(crate) fn join(&mut self, token: Token, timeout: Option<Duration>) -> Result<Heap, ConnectError> {
        let find = || Joined::lock().find(token.domain_id);
        if let Some(heap) = find() {
            return Ok(heap);
        }
        self.go_on(timeout, |_: Unnamed<()>, _: &OsStr| Ok(()))?;
        find().ok_or(ConnectError::BadGreeting("it has not let this process into its domain"))
    }
}
