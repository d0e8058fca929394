//! Waiting for a message in any of several rings.

use tensorferry_domain::{WaitAnyError, ensure_services_started, wait_any_until};

use crate::{Deadline, Ring};

impl Ring {
    /// Whether [`Ring::take`] would return at once: with a message, or because none can come any more. It
    /// also would in a process that is no member of the domain.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.words().is_none_or(|ring| self.is_ready(&ring))
    }

    /// Waits until any of these rings has news ([`Ring::has_news`]), and returns the indexes of all that
    /// have. Nothing is taken: another receiver may be faster. With no rings it returns an empty list at
    /// once.
    ///
    /// # Blocking
    /// As long as `deadline` allows: it polls first, as the first ring is set to, and then sleeps. What wakes
    /// [`Ring::take`] wakes it.
    ///
    /// # Errors
    /// [`WaitAnyError`].
    pub fn wait_any(rings: &[&Self], deadline: Deadline) -> Result<Vec<usize>, WaitAnyError> {
        let with_news = || {
            let with_news = rings.iter().enumerate().filter(|(_, ring)| ring.has_news());
            let indexes: Vec<usize> = with_news.map(|(index, _)| index).collect();
            (!indexes.is_empty()).then_some(indexes)
        };
        let Some(first) = rings.first() else { return Ok(Vec::new()) };
        let deadline = match deadline {
            Deadline::Now => {
                let found = with_news();
                if found.is_none() {
                    ensure_services_started();
                }
                return found.ok_or(WaitAnyError::TimedOut);
            }
            Deadline::At(deadline) => Some(deadline),
            Deadline::Never => None,
        };
        let words: Vec<_> = rings.iter().filter_map(|ring| Some(ring.words()?.not_empty())).collect();
        wait_any_until(&words, &first.take_spin, deadline, with_news)
    }
}
