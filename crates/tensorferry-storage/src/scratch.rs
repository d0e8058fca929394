//! Buffers for the bytes of outgoing and incoming messages. Each thread keeps its buffer for the next
//! message.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

/// A thread keeps no buffer larger than this, however often it needs one.
const MAX_KEPT_BYTES: usize = 64 << 20;
/// Smaller buffers do not shrink: giving them back in pieces would cost more than it saves.
const SMALL_BYTES: usize = 64 << 10;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A buffer that is reused. Fresh memory for each long message would cost a page fault every 4 KiB.
///
/// When it is dropped, its thread keeps it, up to 64 MiB. A buffer above 64 KiB of which less than a quarter
/// was used is first halved, so that a single long message does not hold memory for as long as the thread
/// lives and sends.
#[derive(Debug, Default)]
pub struct Scratch(Vec<u8>);

impl Scratch {
    /// Takes the buffer that this thread has kept, with what the last message left in it, or else an empty
    /// one.
    #[must_use]
    pub fn take() -> Self {
        // A thread that is about to end has none any more.
        Self(SPARE.try_with(Cell::take).unwrap_or_default())
    }
}

impl Deref for Scratch {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl Drop for Scratch {
    #[inline]
    fn drop(&mut self) {
        if self.0.capacity() > 0 {
            self.keep();
        }
    }
}

impl Scratch {
    /// Gives the buffer to the thread.
    #[cold]
    fn keep(&mut self) {
        let capacity_bytes = self.0.capacity();
        let mut buffer = std::mem::take(&mut self.0);
        if capacity_bytes > SMALL_BYTES && buffer.len() < capacity_bytes / 4 {
            buffer.shrink_to(capacity_bytes / 2);
        }
        if buffer.capacity() <= MAX_KEPT_BYTES {
            let _ = SPARE.try_with(|spare| spare.set(buffer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_message_of_a_thread_has_the_memory_of_the_last_one() {
        let mut first = Scratch::take();
        first.resize(1 << 20, 7);
        let at = first.as_ptr();
        drop(first);
        let second = Scratch::take();
        assert_eq!((second.as_ptr(), second.len()), (at, 1 << 20));
        assert_eq!(Scratch::take().capacity(), 0, "nobody else has it meanwhile");
    }

    #[test]
    fn what_is_hardly_used_becomes_smaller_with_each_message() {
        let mut long = Scratch::take();
        long.resize(8 << 20, 0);
        drop(long);
        let mut capacities_bytes = Vec::new();
        for _ in 0..20 {
            let mut short = Scratch::take();
            capacities_bytes.push(short.capacity());
            short.truncate(10);
        }
        assert!(capacities_bytes[0] >= 8 << 20);
        assert!(capacities_bytes[19] <= SMALL_BYTES, "{capacities_bytes:?}");
    }

    #[test]
    fn an_enormous_one_is_not_kept() {
        let mut enormous = Scratch::take();
        enormous.reserve_exact(MAX_KEPT_BYTES + 1);
        // Used as a whole as far as the rule for sizes goes.
        enormous.resize(MAX_KEPT_BYTES / 2, 0);
        drop(enormous);
        assert_eq!(Scratch::take().capacity(), 0);
    }
}
