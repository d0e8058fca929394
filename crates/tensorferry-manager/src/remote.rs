//! Objects of other machines.
//!
//! The object's machine has a [`RemoteCaller`] for each connection, which calls the object as any process
//! there does. The caller's machine has an object that stands for it: its handler is the connection.

mod caller;
mod handle;
mod line;

use std::thread;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use tensorferry_remote::{Connection, RecvError};

use crate::answer::Answer;

pub use caller::{AnswerError, RemoteCaller, accept};
pub use handle::RemoteHandle;
pub use line::ReachError;

pub(crate) use line::Line;

/// What the object's machine has: requests come, answers go.
type CallsOf<H> = Connection<AnswerOf<H>, <H as handle::Over>::Request>;

/// What the caller's machine has.
type CallsTo<H> = Connection<<H as handle::Over>::Request, AnswerOf<H>>;

type AnswerOf<H> = Answer<<H as handle::Over>::Answer>;

/// How long to wait until what there was no memory for is received again.
const TRY_AGAIN: Duration = Duration::from_millis(10);
/// After so long the connection is given up.
const GIVE_UP: Duration = Duration::from_secs(30);

/// Receives the next message, and waits for memory if there is none for it.
fn receive<S, R: DeserializeOwned>(connection: &mut Connection<S, R>) -> Result<R, RecvError> {
    let mut failing_since = None;
    loop {
        match connection.recv() {
            Err(RecvError::Memory(_))
                if failing_since.get_or_insert_with(Instant::now).elapsed() < GIVE_UP =>
            {
                thread::park_timeout(TRY_AGAIN);
            }
            outcome => return outcome,
        }
    }
}
