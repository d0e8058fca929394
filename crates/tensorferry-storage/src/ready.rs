//! Waiting for something at any of several rings.

use tensorferry_domain::{Spin, WaitAnyError, WaitWord, wait_any_until};

use crate::deadline::look_once;
use crate::{Deadline, Ring};

/// What somebody waits for at a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// A message, for [`Ring::take`].
    Message,
    /// A message and a lease, for [`Ring::take_leased`].
    Lease,
    /// Room for a message, for [`Ring::put`].
    Room,
}

impl Ring {
    /// Whether the call that it is awaited for would return at once: also with an error, because what it
    /// waits for cannot come any more, or because this process is no member of the domain.
    #[must_use]
    pub fn has(&self, awaited: Awaited) -> bool {
        self.words().is_none_or(|ring| match awaited {
            Awaited::Message => self.is_ready(&ring),
            Awaited::Lease => self.is_ready_to_lease(&ring),
            Awaited::Room => self.is_ready_to_put(&ring),
        })
    }

    /// Calls `look` until it finds something, again whenever one of these rings may have what is awaited
    /// ([`Ring::has`]) or one of `words` was woken.
    ///
    /// # Blocking
    /// As long as `deadline` allows: it polls first, as `spin` says, or else as the first ring is set to, and
    /// then sleeps. What wakes the calls that it is awaited for wakes this one.
    ///
    /// # Errors
    /// [`WaitAnyError`].
    pub fn wait_any<R>(
        rings: &[(&Self, Awaited)],
        words: &[WaitWord<'_>],
        spin: Option<&Spin>,
        deadline: Deadline,
        mut look: impl FnMut() -> Option<R>,
    ) -> Result<R, WaitAnyError> {
        let deadline = match deadline {
            Deadline::Now => return look_once(look).ok_or(WaitAnyError::TimedOut),
            Deadline::At(deadline) => Some(deadline),
            Deadline::Never => None,
        };
        let of_rings = rings.iter().filter_map(|(ring, awaited)| {
            let words = ring.words()?;
            Some(if *awaited == Awaited::Room { words.not_full() } else { words.not_empty() })
        });
        let words: Vec<_> = of_rings.chain(words.iter().copied()).collect();
        let of_first = rings.first().map(|(ring, awaited)| match awaited {
            Awaited::Room => &ring.put_spin,
            Awaited::Message | Awaited::Lease => &ring.take_spin,
        });
        let own = Spin::default();
        wait_any_until(&words, spin.or(of_first).unwrap_or(&own), deadline, &mut look)
    }
}
