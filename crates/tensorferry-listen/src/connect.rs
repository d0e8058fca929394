//! The side that comes to an address.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use tensorferry_domain::{DomainFds, PidFd};
use tensorferry_os::socket;
use tensorferry_queue::{AnyConnection, Connection};
use tensorferry_reduce::{DecodeError, Parcel};
use tensorferry_storage::{Heap, StorageError};

use crate::ConnectError;
use crate::address::Address;
use crate::greeting::{self, Answer, GONE, Hello, Incoming, THANKS, Unheard};
use crate::joined::Joined;

/// How long to wait until looking again whether somebody listens.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Connects to the [`Listener`](crate::Listener) at an address: Python's `Client`.
///
/// This process becomes a member of the listener's domain, and stays one until it ends. If it has no default
/// domain yet, the listener's is its own from then on. Otherwise the tensors that it makes lie elsewhere:
/// frozen ones are copied when they are sent through the connection
/// ([`bytes_copied`](tensorferry_reduce::bytes_copied) counts them), and others are refused. So connect
/// first.
///
/// # Errors
/// [`ConnectError::Connect`] when nobody listens, [`ConnectError::OtherUser`] when the listener is another
/// user's, [`ConnectError::Refused`] with the reason when it lets this process not in,
/// [`ConnectError::Decode`] when its connection carries other types, and others.
///
/// # Blocking
/// Until the listener accepts, or is gone.
pub fn connect<S, R>(address: impl AsRef<OsStr>) -> Result<Connection<S, R>, ConnectError> {
    Connecting::to(address).go_on(None, end)
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
    Connecting::to(address).go_on(Some(timeout), end)
}

/// As [`connect_timeout`], for a listener that may not be there yet: of two programs that are started at the
/// same time, say. The kernel tells nobody that somebody listens now, so this looks again every 20
/// milliseconds.
///
/// # Errors
/// As [`connect_timeout`], and [`ConnectError::NobodyListens`] when nobody has come to listen.
///
/// # Blocking
/// As [`connect`], for at most `timeout`.
pub fn connect_when_there<S, R>(
    address: impl AsRef<OsStr>,
    timeout: Duration,
) -> Result<Connection<S, R>, ConnectError> {
    Connecting::to(address).when_there().go_on(Some(timeout), end)
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
    Connecting::to(address).go_on(timeout, end)
}

/// What comes from a listener is what the caller wants.
#[expect(clippy::unnecessary_wraps, reason = "what was published may be of another type")]
fn end<C>(connection: C, _address: &OsStr) -> Result<C, ConnectError> {
    Ok(connection)
}

/// Why one attempt has no connection.
enum Attempt {
    /// Nobody listens, or not any more; with what that is where nobody is waited for.
    NobodyThere(ConnectError),
    Over(ConnectError),
}

impl<E: Into<ConnectError>> From<E> for Attempt {
    fn from(error: E) -> Self {
        Self::Over(error.into())
    }
}

impl Attempt {
    /// A listener that was just ending.
    const fn gone() -> Self {
        Self::NobodyThere(ConnectError::BadGreeting(GONE))
    }
}

/// A connection that is not there yet, for a caller that has something else to look at while it waits.
///
/// ```
/// use std::time::Duration;
/// use tensorferry_listen::{ConnectError, Connecting, Listener};
///
/// let address = format!("@doctest-connecting-{}", std::process::id());
/// let listener = Listener::bind(&address)?;
/// let mut connecting = Connecting::to(&address);
/// let outcome = connecting.try_any(Duration::from_millis(1));
/// assert!(matches!(outcome, Err(ConnectError::TimedOut))); // and now something else, and then again
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Connecting {
    address: OsString,
    /// Whether to wait until somebody listens.
    when_there: bool,
    /// The domain that is to be joined, if that is known. No other one is.
    domain_id: Option<u64>,
    /// Once it is connected, and has said hello.
    waiting: Option<(OwnedFd, Incoming)>,
}

impl Connecting {
    /// Will connect to this address. Does nothing yet.
    #[must_use]
    pub fn to(address: impl AsRef<OsStr>) -> Self {
        Self { address: address.as_ref().to_owned(), when_there: false, domain_id: None, waiting: None }
    }

    /// Also waits until somebody listens, as [`connect_when_there`].
    #[must_use]
    pub fn when_there(self) -> Self {
        Self { when_there: true, ..self }
    }

    /// Joins no other domain than this one.
    pub(crate) fn only_into(self, domain_id: u64) -> Self {
        Self { domain_id: Some(domain_id), ..self }
    }

    /// Goes on for at most `timeout`. After [`ConnectError::TimedOut`] and [`ConnectError::NobodyListens`] it
    /// can be called again; after anything else it begins anew.
    ///
    /// # Errors
    /// As [`connect_timeout`].
    ///
    /// # Blocking
    /// For at most `timeout`.
    pub fn try_any(&mut self, timeout: Duration) -> Result<AnyConnection, ConnectError> {
        self.go_on(Some(timeout), end)
    }

    /// Goes on for at most `timeout`, if there is one. `unpack` makes what the caller gets of what came, and
    /// gets the address for its error.
    pub(crate) fn go_on<C: DeserializeOwned, R>(
        &mut self,
        timeout: Option<Duration>,
        unpack: fn(C, &OsStr) -> Result<R, ConnectError>,
    ) -> Result<R, ConnectError> {
        // A time that no clock can hold is for ever.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let nobody = match self.attempt(deadline, unpack) {
                Err(Attempt::NobodyThere(nobody)) => nobody,
                Err(Attempt::Over(error)) => return Err(error),
                Ok(end) => return Ok(end),
            };
            if !self.when_there {
                return Err(nobody);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let pause = left.map_or(LOOK_AGAIN, |left| left.min(LOOK_AGAIN));
            if pause.is_zero() {
                return Err(ConnectError::NobodyListens { address: (&self.address).into() });
            }
            thread::park_timeout(pause);
        }
    }

    fn attempt<C: DeserializeOwned, R>(
        &mut self,
        deadline: Option<Instant>,
        unpack: fn(C, &OsStr) -> Result<R, ConnectError>,
    ) -> Result<R, Attempt> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let (socket, mut incoming) = match self.waiting.take() {
            Some(waiting) => waiting,
            None => match self.say_hello(left) {
                Ok((socket, listener)) => (socket, Incoming::of(listener)),
                Err(ConnectError::Connect { address, error }) if error.is_nobody_there() => {
                    return Err(Attempt::NobodyThere(ConnectError::Connect { address, error }));
                }
                Err(ConnectError::BadGreeting(GONE)) => return Err(Attempt::gone()),
                Err(error) => return Err(error.into()),
            },
        };
        match incoming.receive(&socket, deadline) {
            Ok((answer, fds)) => {
                let value = unpack(open_parcel(answer, fds, self.domain_id)?, &self.address)?;
                socket::send_all(&socket, THANKS, &[]).map_err(ConnectError::from)?;
                Ok(value)
            }
            Err(Unheard::TimedOut) => {
                self.waiting = Some((socket, incoming));
                Err(ConnectError::TimedOut.into())
            }
            Err(Unheard::Bad(GONE)) => Err(Attempt::gone()),
            Err(unheard) => Err(unheard.into()),
        }
    }

    /// Also returns who listens, where that can be known.
    fn say_hello(&self, timeout: Option<Duration>) -> Result<(OwnedFd, Option<PidFd>), ConnectError> {
        let connected = Address::of(&self.address).connect(timeout);
        let socket = connected.map_err(|error| match error {
            error if error.is_would_block() => ConnectError::TimedOut,
            error => ConnectError::Connect { address: (&self.address).into(), error },
        })?;
        // Whoever listens there is about to be trusted with what this process shares.
        let (listener, own_uid) = (socket::peer(&socket)?, socket::effective_uid());
        let uid = listener.uid;
        if uid != own_uid {
            return Err(ConnectError::OtherUser { address: (&self.address).into(), uid, own_uid });
        }
        let process = match PidFd::of_peer(&socket) {
            Err(error) if error.is_no_such_process() && listener.pid > 0 => {
                return Err(ConnectError::BadGreeting(GONE));
            }
            // It is in another PID namespace, or no descriptor is left.
            process => process.ok(),
        };
        let domains = Joined::lock().ids();
        match socket::send_all(&socket, &greeting::encode(&Hello { domains }), &[]) {
            Err(error) if !error.is_closed() => Err(error.into()),
            // If it is closed already, what was said before tells why.
            _ => Ok((socket, process)),
        }
    }
}

/// Takes what the listener has given.
fn open_parcel<C: DeserializeOwned>(
    answer: Answer,
    fds: Vec<OwnedFd>,
    wanted: Option<u64>,
) -> Result<C, Attempt> {
    let (domain_id, admission, parcel) = match answer {
        Answer::Welcome { domain_id, admission, parcel } => (domain_id, admission, parcel),
        Answer::Refused(reason) => return Err(ConnectError::Refused(reason).into()),
    };
    if wanted.is_some_and(|wanted| wanted != domain_id) {
        return Err(ConnectError::BadGreeting("it is of another domain than the token").into());
    }
    let fds = || {
        let fds = DomainFds::from_message(fds);
        fds.ok_or(ConnectError::BadGreeting("no descriptor came with the admission"))
    };
    let mut joined = Joined::lock();
    let heap = match (joined.find(domain_id), admission) {
        (Some(heap), None) => heap,
        // Another thread has joined since the hello. A second admission, which would take a place for as long
        // as this process lives, is given back; an error says that it is the same one.
        (Some(heap), Some(admission)) => {
            drop(Heap::attach(fds()?, admission));
            heap
        }
        (None, Some(admission)) => joined.join(fds()?, admission).map_err(ConnectError::from)?,
        (None, None) => {
            let error = ConnectError::BadGreeting("it takes this process for a member that it is not");
            return Err(error.into());
        }
    };
    drop(joined);
    match Parcel::open(&heap, parcel) {
        // It was taken back: whoever packed it is about to end, or has not waited any longer.
        Err(DecodeError::Storage(StorageError::BadReference { reference, .. })) if reference == parcel => {
            Err(Attempt::gone())
        }
        opened => Ok(opened.map_err(ConnectError::from)?),
    }
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

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd as _;
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixListener};

    use tensorferry_os::socket::Interest;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(60);

    fn listen(name: &str) -> UnixListener {
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap()
    }

    fn wait_connected(listener: &UnixListener) {
        let connected = [(listener.as_fd(), Interest::Readable)];
        assert_eq!(socket::wait_ready(&connected, Some(DEADLINE)).unwrap(), [true], "nobody has connected");
    }

    /// Has somebody connect who says hello only when the listener has ended. What `and_then` makes is kept
    /// until that has an outcome.
    fn end_before_hello<K>(
        name: &str,
        mut connecting: Connecting,
        and_then: impl FnOnce() -> K,
    ) -> ConnectError {
        let listener = listen(name);
        // A hello says what this lock protects.
        let joined = Joined::lock();
        thread::scope(|scope| {
            let outcome = scope.spawn(move || connecting.try_any(DEADLINE));
            wait_connected(&listener);
            drop(listener);
            drop(joined);
            let _kept = and_then();
            outcome.join().unwrap().unwrap_err()
        })
    }

    #[test]
    fn a_listener_that_ends_before_the_hello_went_away() {
        let name = format!("tensorferry-gone-{}", std::process::id());
        let error = end_before_hello(&name, Connecting::to(format!("@{name}")), || ());
        assert!(matches!(error, ConnectError::BadGreeting(GONE)), "{error}");
    }

    #[test]
    fn who_waits_for_a_listener_comes_again_after_one_that_ends_before_the_hello() {
        let name = format!("tensorferry-gone-again-{}", std::process::id());
        let error = end_before_hello(&name, Connecting::to(format!("@{name}")).when_there(), || {
            let next = listen(&name);
            wait_connected(&next);
            let (mut stream, _) = next.accept().unwrap();
            stream.write_all(b"220 mail.example ESMTP").unwrap();
            stream
        });
        assert!(error.to_string().contains("another protocol"), "{error}");
    }

    #[test]
    fn why_a_listener_refuses_before_the_hello_is_heard() {
        let name = format!("tensorferry-refuses-{}", std::process::id());
        let listener = listen(&name);
        // A hello says what this lock protects.
        let joined = Joined::lock();
        let outcome = thread::scope(|scope| {
            let outcome = scope.spawn(|| Connecting::to(format!("@{name}")).try_any(DEADLINE));
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&greeting::encode(&Answer::Refused("it is full".to_owned()))).unwrap();
            drop(stream);
            drop(joined);
            outcome.join().unwrap()
        });
        let error = outcome.unwrap_err();
        assert!(matches!(&error, ConnectError::Refused(why) if why == "it is full"), "{error}");
    }

    #[test]
    fn a_listener_of_another_domain_than_the_token_names_lets_nobody_in() {
        let name = format!("tensorferry-elsewhere-{}", std::process::id());
        let listener = listen(&name);
        let outcome = thread::scope(|scope| {
            let connecting = || Connecting::to(format!("@{name}")).only_into(8).try_any(DEADLINE);
            let outcome = scope.spawn(connecting);
            let (mut stream, _) = listener.accept().unwrap();
            let welcome = Answer::Welcome { domain_id: 7, admission: None, parcel: 1 };
            stream.write_all(&greeting::encode(&welcome)).unwrap();
            outcome.join().unwrap()
        });
        let error = outcome.unwrap_err();
        assert!(error.to_string().contains("of another domain than the token"), "{error}");
    }
}
