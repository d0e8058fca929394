//! Objects that the driver refused to free while a stream captured, or that must not be dropped where they
//! were. They are dropped later.

use std::any::Any;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::capture::Relaxed;
use crate::registry;

type Refused = Vec<Box<dyn Any + Send>>;

static REFUSED: Mutex<Refused> = Mutex::new(Vec::new());

/// Keeps an object whose drop was refused. The service thread drops it again as soon as it may.
pub(crate) fn keep(thing: impl Any + Send) {
    lock().push(Box::new(thing));
    registry::get().stir();
}

/// As [`keep`], where the next look of the service thread is soon enough, and for callers with a lock that
/// this thread takes under that of the registry.
pub(crate) fn keep_for_later(thing: impl Any + Send) {
    lock().push(Box::new(thing));
}

/// Drops all kept objects. An object that is refused again keeps itself. Returns whether any is left.
pub(crate) fn offer_again() -> bool {
    let things = std::mem::take(&mut *lock());
    if !things.is_empty() {
        let _relaxed = Relaxed::begin();
        drop(things);
    }
    is_any()
}

/// Whether any object is kept.
pub(crate) fn is_any() -> bool {
    !lock().is_empty()
}

fn lock() -> MutexGuard<'static, Refused> {
    REFUSED.lock().unwrap_or_else(PoisonError::into_inner)
}
