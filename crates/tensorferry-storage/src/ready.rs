//! Waiting for a message in any of several rings.

use tensorferry_domain::{Spin, WaitAnyError, WaitWord, wait_any_until};

use crate::deadline::look_once;
use crate::{Deadline, Ring};

impl Ring {
    /// Whether [`Ring::take`] would return at once: with a message, or because none can come any more. It
    /// also would in a process that is no member of the domain.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.words().is_none_or(|ring| self.is_ready(&ring))
    }

    /// As [`Ring::has_news`], for [`Ring::take_leased`]: also when the ring has no leases, or this process
    /// has all of them.
    #[must_use]
    pub fn has_news_to_lease(&self) -> bool {
        self.words().is_none_or(|ring| self.is_ready_to_lease(&ring))
    }

    /// Calls `look` until it finds something, again whenever one of these rings may have news
    /// ([`Ring::has_news`]) or one of `words` was woken.
    ///
    /// # Blocking
    /// As long as `deadline` allows: it polls first, as the first ring is set to, and then sleeps. What wakes
    /// [`Ring::take`] wakes it.
    ///
    /// # Errors
    /// [`WaitAnyError`].
    pub fn wait_any<R>(
        rings: &[&Self],
        words: &[WaitWord<'_>],
        deadline: Deadline,
        mut look: impl FnMut() -> Option<R>,
    ) -> Result<R, WaitAnyError> {
        let deadline = match deadline {
            Deadline::Now => return look_once(look).ok_or(WaitAnyError::TimedOut),
            Deadline::At(deadline) => Some(deadline),
            Deadline::Never => None,
        };
        let not_empty = rings.iter().filter_map(|ring| Some(ring.words()?.not_empty()));
        let words: Vec<_> = not_empty.chain(words.iter().copied()).collect();
        let spin = Spin::default();
        let spin = rings.first().map_or(&spin, |first| &first.take_spin);
        wait_any_until(&words, spin, deadline, &mut look)
    }
}
