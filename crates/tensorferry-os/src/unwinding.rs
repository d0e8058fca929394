//! Code of others, which may panic.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code of others on a thread that has to survive it. Returns `None` if it panicked.
///
/// What it panicked with is never dropped: that is code of others too, and may panic again.
///
/// ```
/// use tensorferry_os::unwinding::survive;
///
/// assert_eq!(survive(|| 7), Some(7));
/// assert_eq!(survive(|| panic!("of others")), None);
/// ```
pub fn survive<R>(work: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(work)).map_err(ManuallyDrop::new).ok()
}

#[cfg(test)]
mod tests {
    use std::panic::panic_any;

    use super::*;

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("when it is dropped");
        }
    }

    #[test]
    fn what_panics_when_it_is_dropped_is_survived_too() {
        assert_eq!(survive(|| panic_any(Bomb)), None);
        assert_eq!(survive(|| drop(Bomb)), None);
        assert_eq!(survive(|| "fine"), Some("fine"));
    }
}
