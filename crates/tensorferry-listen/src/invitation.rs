//! Invitations into a domain, by a token.

use std::time::Duration;

use tensorferry_storage::Heap;

use crate::gate::Open;
use crate::{ConnectError, Connecting, ListenError, PublishError, Token};

/// Invites other processes of this user into the domain. The [`Invitation`] has a [`Token`], a short text, by
/// which any number of them [join](crate::join()).
///
/// A process that joins before it makes tensors and queues makes them where all members find them. Processes
/// that were started from here, or that have connected, attached or taken something, are members already.
///
/// ```
/// use tensorferry_listen::{invite, join};
///
/// let invitation = invite()?;
/// let text = invitation.token().to_string(); // in an environment variable, say
/// // In any other program of the same user, first:
/// join(text.parse()?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A thread of this process, that of its [offers](crate::offer()), lets the others in. So a process that
/// invites somebody cannot start others by the method *fork*.
///
/// # Errors
/// [`PublishError`] when there is no memory, no descriptor or no thread for it.
pub fn invite() -> Result<Invitation, PublishError> {
    invite_in(Heap::current().map_err(ListenError::from)?)
}

/// As [`invite`], into the domain of `heap`.
///
/// # Errors
/// As [`invite`].
pub fn invite_in(heap: &Heap) -> Result<Invitation, PublishError> {
    Ok(Invitation { gate: Open::gate_of(heap)? })
}

/// Others can join while this exists, and its process lives.
#[derive(Debug)]
#[must_use = "the invitation ends when this is dropped"]
pub struct Invitation {
    gate: Open,
}

impl Invitation {
    /// What other processes join by.
    #[must_use]
    pub fn token(&self) -> Token {
        self.gate.token()
    }

    /// Lets others in until this process ends.
    pub fn leave(self) -> Token {
        let token = self.token();
        self.gate.stay_open();
        token
    }
}

/// Joins the domain to which another process has [invited](crate::invite()), or in which it
/// [offers](crate::offer()) something, which is not taken by this.
///
/// As with [`connect`](crate::connect()), this process becomes a member and stays one until it ends, and the
/// domain becomes its own if it has none yet. To one that is a member already nothing happens.
///
/// # Errors
/// [`ConnectError::Connect`] when nobody lets this process in, because the one that invited has ended, or
/// does so no more; [`ConnectError::Refused`] with the reason, as that the domain is full; and others of
/// [`connect`](crate::connect()).
///
/// # Blocking
/// Until the process that invited lets this one in, or is gone.
pub fn join(token: Token) -> Result<(), ConnectError> {
    Connecting::to_take(token).join(token, None).map(drop)
}

/// As [`join`], waiting for at most `timeout`.
///
/// # Errors
/// As [`join`], and [`ConnectError::TimedOut`].
///
/// # Blocking
/// As [`join`], for at most `timeout`.
pub fn join_timeout(token: Token, timeout: Duration) -> Result<(), ConnectError> {
    Connecting::to_take(token).join(token, Some(timeout)).map(drop)
}
