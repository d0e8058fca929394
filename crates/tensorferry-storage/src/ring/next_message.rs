//! Which message a sole receiver will probably take next.
//!
//! While the receiver works on one message, the header and the data of the block that the next one names come
//! to its processor. Otherwise it waits for each of these lines by itself: first for the header, which it has
//! to change before it may read anything, and then for the data.
//!
//! It looks ahead only while messages are there before it asks for them. A receiver that waits would take the
//! line of the next slot from the sender, which is about to write it. And it pauses when the next block has
//! been here before, as that of a tensor that is sent again and again, or when there is no next message.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The receiver looks ahead after this many messages in a row that were there at once.
const AT_ONCE: u32 = 16;

/// The position is a hint: another process may take that message.
#[derive(Debug, Default)]
pub(super) struct NextMessage {
    position: AtomicU64,
    n_at_once: AtomicU32,
}

impl NextMessage {
    /// The message at `position` was taken.
    #[inline]
    pub(super) fn follows(&self, position: u64) {
        self.position.store(position.wrapping_add(1), Ordering::Relaxed);
    }

    /// A call has ended; the message was there `at_once`, or not.
    #[inline]
    pub(super) fn learn(&self, at_once: bool) {
        let n = self.n_at_once.load(Ordering::Relaxed);
        self.n_at_once.store(if at_once { (n + 1).min(AT_ONCE) } else { 0 }, Ordering::Relaxed);
    }

    /// Looking ahead found nothing to do.
    #[cold]
    pub(super) fn pause(&self) {
        self.n_at_once.store(0, Ordering::Relaxed);
    }

    /// The position of the next message, if it is worth a look.
    #[inline]
    pub(super) fn expected(&self) -> Option<u64> {
        let is_expected = self.n_at_once.load(Ordering::Relaxed) >= AT_ONCE;
        is_expected.then(|| self.position.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_expected_where_many_were_there_at_once() {
        let next = NextMessage::default();
        let take = |position, at_once| {
            next.follows(position);
            next.learn(at_once);
            next.expected()
        };
        assert!((0..15).all(|position| take(position, true).is_none()));
        assert_eq!(take(15, true), Some(16));
        assert_eq!(take(16, true), Some(17));
        assert_eq!(take(17, false), None);
        assert!((0..15).all(|position| take(position, true).is_none()));
        assert_eq!(take(u64::MAX, true), Some(0));
        next.pause();
        assert_eq!(take(3, true), None);
    }
}
