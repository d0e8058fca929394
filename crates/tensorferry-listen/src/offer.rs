//! Values that one other process takes, by a token.

use serde::Serialize;
use tensorferry_reduce::{ANY_TYPE, Parcel, type_hash};
use tensorferry_storage::Heap;

use crate::gate::Open;
use crate::joined::Joined;
use crate::{ListenError, PublishError, Token};

/// Offers a value to one other process, whichever [takes](crate::take()) it first: the [`Offer`] has a
/// [`Token`], a short text, which goes there by whatever the programs talk through.
///
/// Memory in the value travels as in any message. So a `Tensor` is the same memory there, and a `TensorMut`
/// moves: into the offer, and out of it when it is taken.
///
/// ```
/// use tensorferry_listen::{offer, take};
///
/// let offered = offer(&vec![1, 2, 3])?;
/// let text = offered.token().to_string(); // in the body of a request, an environment variable, a file
/// // In any other program of the same user:
/// let value: Vec<i32> = take(text.parse()?)?;
/// assert_eq!(value, [1, 2, 3]);
/// assert!(offered.is_taken());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Whoever takes it becomes a member of the domain, if it is none yet, and has one of its 63 places until it
/// ends, as one that has [connected](crate::connect()). A thread of this process, the same for all offers,
/// lets the others in. So a process that offers something cannot start others by the method *fork*.
///
/// # Errors
/// [`PublishError::Encode`] when the value cannot be sent, which it has still then; others when there is no
/// memory, no descriptor or no thread for it.
pub fn offer<T: Serialize>(value: &T) -> Result<Offer, PublishError> {
    offer_in(Heap::current().map_err(ListenError::from)?, value)
}

/// As [`offer`], in the domain of `heap`.
///
/// # Errors
/// As [`offer`].
pub fn offer_in<T: Serialize>(heap: &Heap, value: &T) -> Result<Offer, PublishError> {
    Offer::new(heap, value, type_hash::<T>())
}

/// As [`offer`], without a type: whoever takes the value may take it for whatever it can be read as. For
/// types that have different names in the programs, and for other languages.
///
/// # Errors
/// As [`offer`].
pub fn offer_any<T: Serialize>(value: &T) -> Result<Offer, PublishError> {
    Offer::new(Heap::current().map_err(ListenError::from)?, value, ANY_TYPE)
}

/// Ends an offer of this process that was [left](Offer::leave), as [`Offer::take_back`]. Returns false when
/// somebody has taken the value, or it is not offered by this process.
pub fn withdraw(token: Token) -> bool {
    heap_of(token).is_some_and(|heap| heap.take_back_parcel(token.parcel))
}

/// Whether this process offers a value by this token that was [left](Offer::leave), and nobody has taken it.
#[must_use]
pub fn is_offered(token: Token) -> bool {
    heap_of(token).is_some_and(|heap| heap.has_unopened_parcel(token.parcel))
}

/// The heap by which this process offers what the token stands for.
fn heap_of(token: Token) -> Option<Heap> {
    Joined::lock().find(token.domain_id).filter(|heap| heap.domain().me() == token.member)
}

/// A value that is [offered](offer()), until somebody takes it, or this is dropped or its process ends.
///
/// What is in it counts as held here until this is dropped, also when it was taken: memory, and ends of
/// queues.
#[derive(Debug)]
#[must_use = "the offer ends when this is dropped"]
pub struct Offer {
    token: Token,
    parcel: Parcel,
    gate: Open,
}

impl Offer {
    fn new<T: Serialize>(heap: &Heap, value: &T, type_hash: u64) -> Result<Self, PublishError> {
        let gate = Open::gate_of(heap)?;
        let parcel = Parcel::pack(heap, value)?;
        let token = Token { parcel: parcel.id(), type_hash, ..gate.token() };
        Ok(Self { token, parcel, gate })
    }

    /// What another process takes the value by.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// Whether a process has taken the value, or is about to.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.parcel.is_opened()
    }

    /// Ends the offer, and gives the exclusive tensors in it back to the value that was offered, unless it
    /// was taken. Returns whether it was not.
    pub fn take_back(self) -> bool {
        self.parcel.take_back()
    }

    /// Leaves the value to whoever comes: it is offered, and its memory held, until somebody has taken it or
    /// this process ends. For a token that is passed on and not heard of again; [`withdraw`] ends it.
    ///
    /// [`Heap::n_unopened_parcels`] says how many such values are left, for a process that is about to end.
    pub fn leave(self) -> Token {
        let Self { token, parcel, gate } = self;
        gate.stay_open();
        parcel.leave();
        token
    }
}
