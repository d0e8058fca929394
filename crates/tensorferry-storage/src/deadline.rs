//! How long a call may wait.

use std::time::{Duration, Instant};

use tensorferry_domain::{Spin, WaitWord, ensure_services_started};

/// How long a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// The call does not wait.
    Now,
    /// The call waits until this moment at the latest.
    At(Instant),
    /// The call waits without a limit.
    Never,
}

impl Deadline {
    /// The deadline that ends `timeout` from now; never, if that instant cannot be represented.
    #[must_use]
    pub fn within(timeout: Duration) -> Self {
        Instant::now().checked_add(timeout).map_or(Self::Never, Self::At)
    }

    /// Whether the call may wait, even for a moment.
    pub(crate) fn has_time(self) -> bool {
        match self {
            Self::Now => false,
            Self::At(deadline) => Instant::now() < deadline,
            Self::Never => true,
        }
    }

    /// Calls `look` until it finds something, for as long as the deadline allows.
    pub(crate) fn wait<R>(
        self,
        word: WaitWord<'_>,
        spin: &Spin,
        mut look: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        look().or_else(|| self.wait_longer(word, spin, look))
    }

    /// As [`Deadline::wait`], for a caller that has just looked and found nothing.
    pub(crate) fn wait_longer<R>(
        self,
        word: WaitWord<'_>,
        spin: &Spin,
        look: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        let until = match self {
            Self::Now => {
                ensure_services_started();
                return None;
            }
            Self::At(deadline) => Some(deadline),
            Self::Never => None,
        };
        word.wait_longer(spin, until, look).ok()
    }
}

/// One look of a call that does not wait.
pub(crate) fn look_once<R>(mut look: impl FnMut() -> Option<R>) -> Option<R> {
    let found = look();
    if found.is_none() {
        ensure_services_started();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_that_has_passed_leaves_no_time() {
        assert!(!Deadline::Now.has_time());
        assert!(!Deadline::within(Duration::ZERO).has_time());
        assert!(Deadline::within(Duration::from_secs(3600)).has_time());
        assert!(Deadline::within(Duration::MAX).has_time());
        assert!(Deadline::Never.has_time());
    }
}
