//! The caller's machine: what stands for the object there.

use std::fmt;
use std::time::Duration;

use tensorferry_remote::{ConnectError, RecvError, SendErrorKind};

use super::handle::{Over, RemoteHandle};
use super::{CallsTo, receive};
use crate::answer::{Answer, Failure};
use crate::error::ServeError;
use crate::guarded::{catch, reading_has_panicked, writing_has_panicked};
use crate::handler::Handler;

/// Why an object of another machine cannot be called from here.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ReachError {
    /// There is no connection, or there is another object at its end.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// What stands for the object here cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

tensorferry_storage::debug_as_display!(ReachError);

/// The way to an object of another machine. As a handler it has each request answered there.
pub(crate) struct Line<H: Over> {
    /// Or why there is none any more.
    connection: Result<CallsTo<H>, String>,
}

impl<H: RemoteHandle> Line<H> {
    pub(crate) const fn new(connection: CallsTo<H>) -> Self {
        Self { connection: Ok(connection) }
    }

    /// Makes one call. It is sent once, or not.
    fn call(&mut self, request: H::Request) -> Result<H::Answer, Failure> {
        let connection = match &mut self.connection {
            Ok(connection) => connection,
            Err(why) => return Err(Failure::Disconnected(why.clone())),
        };
        // Nobody has asked for anything, so what there is to be received is an end.
        match catch(|| connection.recv_timeout(Duration::ZERO)) {
            Ok(Err(RecvError::TimedOut)) => {}
            Ok(Err(error)) => return Err(self.end(Failure::Disconnected, error)),
            Ok(Ok(_)) | Err(_) => return Err(self.end(Failure::Disconnected, "an answer without a request")),
        }
        match catch(|| connection.send(request)) {
            Ok(Ok(())) => {}
            // A message whose last bytes were not sent is none for the other side.
            Ok(Err(error)) if matches!(error.kind, SendErrorKind::Connection(_)) => {
                return Err(self.end(Failure::Disconnected, error.kind));
            }
            Ok(Err(error)) => return Err(Failure::NotForwarded(error.kind.to_string())),
            Err(text) => return Err(Failure::NotForwarded(writing_has_panicked(&text))),
        }
        match catch(|| receive(connection)) {
            Ok(Ok(Answer::Done(answer))) => answer.into_inner().ok_or(Failure::OtherAnswer),
            Ok(Ok(Answer::Failed(failure))) => Err(failure),
            Ok(Err(error @ (RecvError::Decode(_) | RecvError::Lost(_)))) => {
                Err(Failure::AnswerLost(error.to_string()))
            }
            Err(text) => Err(Failure::AnswerLost(reading_has_panicked(&text))),
            Ok(Err(error @ RecvError::Memory(_))) => Err(self.end(Failure::AnswerLost, error)),
            // The other side says goodbye before it has received a request, or once it has answered it.
            Ok(Err(error @ RecvError::Disconnected)) => Err(self.end(Failure::Disconnected, error)),
            Ok(Err(error)) => Err(self.end(Failure::ConnectionLost, error)),
        }
    }

    /// Ends the connection: what comes from it may not be the answer to what is asked next.
    fn end(&mut self, failure: fn(String) -> Failure, why: impl fmt::Display) -> Failure {
        let why = why.to_string();
        self.connection = Err(why.clone());
        failure(why)
    }
}

impl<H: RemoteHandle> Handler<(), H::Request, H::Answer> for Line<H> {
    type Taken = H::Place;

    fn step(&mut self, (): &mut (), request: H::Request) -> Result<(H::Answer, H::Place), Failure> {
        let place = H::place(&request);
        Ok((self.call(request)?, place))
    }

    fn put_back(&mut self, (): &mut (), place: H::Place, answer: H::Answer) {
        if let Some(request) = H::putting_back(place, answer) {
            // It is lost with the connection.
            let _ = self.call(request);
        }
    }
}
