//! The object's machine: those who call from another one.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use tensorferry_remote::{ConnectError, Listener, RecvError, SendErrorKind};

use super::handle::RemoteHandle;
use super::{AnswerOf, CallsOf, receive};
use crate::answer::{Answer, Failure};
use crate::guarded::{Guarded, catch, reading_has_panicked, writing_has_panicked};

/// Why calls from another machine are not answered any more. The calls before were.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The connection has failed, or there was no memory for a request for 30 s.
    #[error("no request can be received: {0}")]
    Recv(RecvError),
    /// The connection failed before an answer was sent. What a call took out of a [`Dict`](crate::Dict) or a
    /// [`List`](crate::List) is back.
    #[error("an answer was not sent: {0}")]
    Send(SendErrorKind),
    /// The caller's machine has not waited for the answer to a call: it has ended the connection, or the
    /// connection has failed. What the call took out of a [`Dict`](crate::Dict) or a [`List`](crate::List) is
    /// back.
    #[error("the caller's machine does not wait for its answer")]
    Gone,
}

tensorferry_storage::debug_as_display!(AnswerError);

/// Another machine whose processes call an object of this one, through one connection.
///
/// Dropping it ends the connection.
#[must_use = "nobody is answered before `answer`"]
pub struct RemoteCaller {
    peer: Option<SocketAddr>,
    answer: Box<dyn FnOnce() -> Result<(), AnswerError> + Send>,
}

/// Waits for the next machine that connects ([`Manager::connect`](crate::Manager::connect)) to call an
/// object. Each object has a listener of its own.
///
/// ```
/// use tensorferry_manager::{Dict, Manager, accept};
/// use tensorferry_remote::{Key, Listener};
///
/// let key = Key::new("thirty-two random bytes, in fact")?; // or `Key::read(path)`
/// let manager = Manager::new()?;
/// let scores: Dict<String, f64> = manager.dict()?;
/// let listener = Listener::bind("127.0.0.1:0", &key)?;
/// let address = listener.local_addr()?;
/// let answering = scores.clone();
/// std::thread::spawn(move || {
///     loop {
///         // Strangers are not let in.
///         if let Ok(caller) = accept(&listener, &answering) {
///             std::thread::spawn(move || caller.answer());
///         }
///     }
/// });
/// // On the other machine:
/// let manager = Manager::new()?;
/// let remote: Dict<String, f64> = manager.connect(address, &key)?;
/// remote.insert("loss".to_owned(), 0.5)?;
/// # assert_eq!(scores.get("loss")?, Some(0.5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The calls are made with the handle that is given: with one that has a time
/// ([`Dict::with_timeout`](crate::Dict::with_timeout)), an object that does not answer in time is told to the
/// other machine as [`TimedOut`](crate::CallErrorKind::TimedOut). The tensors of requests are received into
/// the memory of the object's domain.
///
/// # Blocking
/// As [`Listener::accept`]: until somebody connects, and then for at most 10 seconds.
///
/// # Errors
/// As [`Listener::accept`]: somebody has connected who does not have the key, or wants an object of other
/// types. Others can still connect.
pub fn accept<H: RemoteHandle>(listener: &Listener, object: &H) -> Result<RemoteCaller, ConnectError> {
    let mut connection: CallsOf<H> = listener.accept_in(object.proxy().heap())?;
    let peer = connection.peer_addr().ok();
    let object = object.clone();
    Ok(RemoteCaller { peer, answer: Box::new(move || answer_all(&object, &mut connection)) })
}

impl RemoteCaller {
    /// The address of the other machine; `None` if the connection has failed already.
    #[must_use]
    pub const fn peer_addr(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Answers the calls that come through the connection, one after another, until the other machine ends
    /// it. The object gets them as it gets those of its own machine, each as one step. What goes wrong with a
    /// call is told to its caller; so is that the object has ended.
    ///
    /// # Blocking
    /// Until the other machine ends the connection, or is gone: give each connection a thread.
    ///
    /// # Errors
    /// [`AnswerError`]: the connection has failed.
    pub fn answer(self) -> Result<(), AnswerError> {
        (self.answer)()
    }
}

impl fmt::Debug for RemoteCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteCaller").field("peer", &self.peer).finish_non_exhaustive()
    }
}

fn answer_all<H: RemoteHandle>(object: &H, connection: &mut CallsOf<H>) -> Result<(), AnswerError> {
    loop {
        let (answer, place) = match catch(|| receive(connection)) {
            Ok(Ok(request)) => make(object, request),
            Ok(Err(RecvError::Disconnected)) => return Ok(()),
            Ok(Err(error @ RecvError::Decode(_))) => failed(Failure::Unreadable(error.to_string())),
            Ok(Err(error @ RecvError::Lost(_))) => failed(Failure::NotForwarded(error.to_string())),
            Ok(Err(error)) => return Err(AnswerError::Recv(error)),
            Err(text) => failed(Failure::Unreadable(reading_has_panicked(&text))),
        };
        reply(object, connection, answer, place)?;
    }
}

fn failed<R, P>(failure: Failure) -> (Answer<R>, Option<P>) {
    (Answer::Failed(failure), None)
}

/// Makes the call. Nothing of it panics any more: who waits would take the end of the connection for its own.
fn make<H: RemoteHandle>(object: &H, request: H::Request) -> (AnswerOf<H>, Option<H::Place>) {
    let call = || {
        let place = H::place(&request);
        (object.ask(request), place)
    };
    match catch(call) {
        Ok((Ok(answer), place)) => (Answer::Done(Guarded::new(answer)), Some(place)),
        Ok((Err(error), _)) => failed(error.into()),
        Err(text) => failed(Failure::AnswerLost(text)),
    }
}

/// Sends the answer, or puts back what it has and another one tells of it.
fn reply<H: RemoteHandle>(
    object: &H,
    connection: &mut CallsOf<H>,
    answer: AnswerOf<H>,
    place: Option<H::Place>,
) -> Result<(), AnswerError> {
    // Who waits says nothing, so what there is to be received is an end.
    if !matches!(catch(|| connection.recv_timeout(Duration::ZERO)), Ok(Err(RecvError::TimedOut))) {
        put_back(object, answer, place);
        return Err(AnswerError::Gone);
    }
    let why = match catch(|| connection.send(answer)) {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => {
            put_back(object, error.value, place);
            match error.kind {
                // A message whose last bytes were not sent is none for the other side.
                kind @ SendErrorKind::Connection(_) => return Err(AnswerError::Send(kind)),
                kind => kind.to_string(),
            }
        }
        Err(text) => writing_has_panicked(&text),
    };
    connection.send(Answer::Failed(Failure::Unsendable(why))).map_err(|error| AnswerError::Send(error.kind))
}

fn put_back<H: RemoteHandle>(object: &H, answer: AnswerOf<H>, place: Option<H::Place>) {
    let request = || H::putting_back(place?, answer.into_done()?);
    // Where the object does not take it back any more, it has lost everything else too.
    let _ = catch(|| request().map(|request| object.ask(request)));
}
