//! Where a handler has panicked.
//!
//! What is caught of a panic has its text, not its place. The place is known to the panic hook alone, which
//! is one for the whole process. So the first object adds one that notes the place for threads of objects,
//! and leaves everything else to the hook that was there before.

use std::cell::Cell;
use std::fmt;
use std::panic::{self, PanicHookInfo};
use std::sync::Once;

use serde::{Deserialize, Serialize};

use crate::guarded::text_of;

/// A location in source code.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Location {
    /// The path as the compiler was given it.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// The panic of a handler, which has ended its object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HandlerPanic {
    /// The ID of the object's process, as it knows itself.
    pub pid: u32,
    /// The text of the panic.
    pub message: String,
    /// Where it panicked. `None` if the program has set a panic hook of its own since the process had its
    /// first object, or if the handler has passed on the panic of another thread.
    pub location: Option<Location>,
}

impl HandlerPanic {
    /// The panic that this thread has just caught.
    pub(crate) fn of_this_thread(message: String) -> Self {
        // Another one may have been caught by the handler itself.
        let noted = LAST.take().filter(|noted| noted.message == message);
        Self { pid: std::process::id(), message, location: noted.map(|noted| noted.location) }
    }
}

impl fmt::Display for HandlerPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the object's handler (pid {}) panicked", self.pid)?;
        if let Some(location) = &self.location {
            write!(f, " at {location}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// A panic as the hook has seen it.
struct Noted {
    message: String,
    location: Location,
}

thread_local! {
    /// Whether the panics of this thread are noted.
    static IS_NOTED: Cell<bool> = const { Cell::new(false) };
    /// The last of them.
    static LAST: Cell<Option<Noted>> = const { Cell::new(None) };
}

/// Has the panics of this thread noted. It must not be panicking.
pub(crate) fn note_panics() {
    static HOOK: Once = Once::new();
    IS_NOTED.set(true);
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            note(info);
            previous(info);
        }));
    });
}

fn note(info: &PanicHookInfo<'_>) {
    if let Some(location) = info.location().filter(|_| IS_NOTED.get()) {
        let location =
            Location { file: location.file().to_owned(), line: location.line(), column: location.column() };
        let noted = Noted { message: text_of(info.payload()), location };
        // A thread that is just ending has no such place any more.
        let _ = LAST.try_with(|last| last.set(Some(noted)));
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::guarded::catch;

    fn caught(call: impl FnOnce()) -> HandlerPanic {
        HandlerPanic::of_this_thread(catch(call).unwrap_err())
    }

    #[test]
    fn a_panic_has_its_own_place_and_no_other_ones() {
        let noting = || {
            note_panics();
            let here = (file!(), line!() + 1);
            let panic = caught(|| panic!("at {}", 7));
            let location = panic.location.clone().unwrap();
            assert_eq!((&*location.file, location.line), here);
            assert_eq!((panic.pid, &*panic.message), (std::process::id(), "at 7"));
            let text = format!("the object's handler (pid {}) panicked at {location}: at 7", panic.pid);
            assert_eq!(panic.to_string(), text);
            // One that the handler has caught, before another that no hook has seen.
            let passed_on = caught(|| {
                catch(|| panic!("caught")).unwrap_err();
                panic::resume_unwind(Box::new("passed on"));
            });
            assert_eq!((&*passed_on.message, passed_on.location), ("passed on", None));
            assert_eq!(caught(|| panic::resume_unwind(Box::new("at 7"))).location, None, "of the last time");
        };
        thread::spawn(noting).join().unwrap();
        assert_eq!(caught(|| panic!("elsewhere")).location, None, "this thread has no object");
    }
}
