//! The side that comes to an address.

use std::ffi::OsStr;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use tensorferry_domain::DomainFds;
use tensorferry_os::socket;
use tensorferry_queue::{AnyConnection, Connection};
use tensorferry_reduce::Parcel;

use crate::ConnectError;
use crate::address::Address;
use crate::greeting::{self, Answer, Hello, Unheard};
use crate::joined::Joined;

/// Connects to the [`Listener`](crate::Listener) at an address: Python's `Client`.
///
/// This process becomes a member of the listener's domain, and stays one until it ends. If it has no default
/// domain yet, the listener's is its own from then on. Otherwise the tensors that it makes lie elsewhere, and
/// are copied when they are sent through the connection
/// ([`bytes_copied`](tensorferry_reduce::bytes_copied) counts them).
///
/// # Errors
/// [`ConnectError::Connect`] when nobody listens, [`ConnectError::Refused`] with the reason when the listener
/// lets this process not in, [`ConnectError::Decode`] when its connection carries other types, and others.
///
/// # Blocking
/// Until the listener accepts, or is gone.
pub fn connect<S, R>(address: impl AsRef<OsStr>) -> Result<Connection<S, R>, ConnectError> {
    open_until(address.as_ref(), None)
}

/// As [`connect`], waiting for at most `timeout`.
///
/// # Errors
/// As [`connect`], and [`ConnectError::TimedOut`].
///
/// # Blocking
/// As [`connect`], for at most `timeout`.
pub fn connect_timeout<S, R>(
    address: impl AsRef<OsStr>,
    timeout: Duration,
) -> Result<Connection<S, R>, ConnectError> {
    // A time that no clock can hold is for ever.
    open_until(address.as_ref(), Instant::now().checked_add(timeout))
}

/// As [`connect`], whatever types the listener has in mind, waiting for at most `timeout` if there is one.
/// For a program that finds them out in another way, and for other languages.
///
/// # Errors
/// As [`connect_timeout`].
///
/// # Blocking
/// As [`connect_timeout`].
pub fn connect_any(
    address: impl AsRef<OsStr>,
    timeout: Option<Duration>,
) -> Result<AnyConnection, ConnectError> {
    open_until(address.as_ref(), timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
}

fn open_until<C: DeserializeOwned>(address: &OsStr, deadline: Option<Instant>) -> Result<C, ConnectError> {
    let cannot = |error| ConnectError::Connect { address: address.into(), error };
    let mut joined = Joined::lock();
    let stream = Address::of(address).socket().and_then(|socket| UnixStream::connect_addr(&socket));
    let stream = stream.map_err(cannot)?;
    socket::send_all(&stream, &greeting::encode(&Hello { domains: joined.ids() }), &[])?;
    let (answer, fds) = greeting::receive(&stream, deadline)?;
    let (domain_id, admission, parcel) = match answer {
        Answer::Welcome { domain_id, admission, parcel } => (domain_id, admission, parcel),
        Answer::Refused(reason) => return Err(ConnectError::Refused(reason)),
    };
    let joining;
    let heap = match admission {
        Some(admission) => {
            let fds = DomainFds::from_message(fds);
            let fds = fds.ok_or(ConnectError::BadGreeting("no descriptor came with the admission"))?;
            joining = joined.join(fds, admission)?;
            &joining
        }
        None => joined
            .find(domain_id)
            .ok_or(ConnectError::BadGreeting("it takes this process for a member that it is not"))?,
    };
    Ok(Parcel::open(heap, parcel)?)
}

impl From<Unheard> for ConnectError {
    fn from(error: Unheard) -> Self {
        match error {
            Unheard::TimedOut => Self::TimedOut,
            Unheard::Bad(reason) => Self::BadGreeting(reason),
            Unheard::Socket(error) => Self::Socket(error),
        }
    }
}
