//! Where the next message will probably go. The sender prefetches the cache line of that slot while it makes
//! the message.
//!
//! The prefetch comes just before the message is made, and not right after the message before: a receiver
//! that waits looks at the same line and would take it back. And it comes only while the last messages found
//! a free slot at once and went to the slots that were expected. In a ring that is full most of the time, or
//! that has other senders, another process is about to use that line (docs/bench/NOTES.md).

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::atomic::{AtomicU64, prefetch_address_to_write};

/// The next slot is prefetched after this many messages in a row went to the expected slot.
const AS_EXPECTED: u32 = 64;

/// The address is a hint: it may be wrong, or the memory may be gone.
#[derive(Debug, Default)]
pub(super) struct NextSlot {
    address: AtomicUsize,
    n_as_expected: AtomicU32,
}

impl NextSlot {
    /// A message went to `slot` at once; the next one is expected in `next`.
    #[inline]
    pub(super) fn learn(&self, slot: &AtomicU64, next: &AtomicU64) {
        let address = |word: &AtomicU64| std::ptr::from_ref(word).addr();
        let is_expected = self.address.load(Ordering::Relaxed) == address(slot);
        let n = self.n_as_expected.load(Ordering::Relaxed);
        self.n_as_expected.store(if is_expected { (n + 1).min(AS_EXPECTED) } else { 0 }, Ordering::Relaxed);
        self.address.store(address(next), Ordering::Relaxed);
    }

    /// A message had to wait, or was not sent.
    pub(super) fn forget(&self) {
        self.n_as_expected.store(0, Ordering::Relaxed);
    }

    /// Prefetches the line of the next slot, if it is known well enough.
    #[inline]
    pub(super) fn ask(&self) {
        if let Some(address) = self.known() {
            prefetch_address_to_write(address);
        }
    }

    #[inline]
    fn known(&self) -> Option<usize> {
        let is_known = self.n_as_expected.load(Ordering::Relaxed) >= AS_EXPECTED;
        is_known.then(|| self.address.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_asked_for_only_when_the_last_messages_went_where_they_were_expected() {
        let slots = [const { AtomicU64::new(0) }; 4];
        let at = |position: usize| &slots[position % slots.len()];
        let address = |position| Some(std::ptr::from_ref(at(position)).addr());
        let next = NextSlot::default();
        let put = |position: usize| next.learn(at(position), at(position + 1));
        let n = AS_EXPECTED as usize;
        for position in 0..=n {
            assert_eq!(next.known(), None);
            put(position);
        }
        assert_eq!(next.known(), address(n + 1));
        put(n + 1);
        assert_eq!(next.known(), address(n + 2));
        // Another sender had one in between.
        put(n + 3);
        assert_eq!(next.known(), None);
        (n + 4..2 * n + 4).for_each(put);
        assert_eq!(next.known(), address(2 * n + 4));
        next.forget();
        assert_eq!(next.known(), None);
    }
}
