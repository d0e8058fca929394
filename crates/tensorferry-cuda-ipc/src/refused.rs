//! What the driver would not take back while a stream captured: it is offered again.

use std::any::Any;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::capture::Relaxed;
use crate::registry;

type Refused = Vec<Box<dyn Any + Send>>;

static REFUSED: Mutex<Refused> = Mutex::new(Vec::new());

/// Keeps something whose drop was refused, to drop it again: the service thread does, as soon as it may.
pub(crate) fn keep(thing: impl Any + Send) {
    lock().push(Box::new(thing));
    registry::get().stir();
}

/// Drops what is kept; what is refused again keeps itself. Returns whether something is left.
pub(crate) fn offer_again() -> bool {
    let things = std::mem::take(&mut *lock());
    if !things.is_empty() {
        let _relaxed = Relaxed::begin();
        drop(things);
    }
    is_any()
}

/// Whether something is kept.
pub(crate) fn is_any() -> bool {
    !lock().is_empty()
}

fn lock() -> MutexGuard<'static, Refused> {
    REFUSED.lock().unwrap_or_else(PoisonError::into_inner)
}
