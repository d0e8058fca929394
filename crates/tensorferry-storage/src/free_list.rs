//! The free blocks of one size, and which of them is used next.
//!
//! What this process has written and freed lies in its own caches: the last one freed is used first.
//!
//! What another process had has lines in the private caches of both. To write them at once takes each line from the other
//! processor, which is two to five times as slow as to take it from the cache that both share. So such a block is used
//! again only when as much other memory has passed through the private caches meanwhile as they hold, and fresh memory is
//! taken until there is that much. It is not left longer than that, so that what passes fits into the shared cache.
//! docs/bench/NOTES.md has the measurements.

use std::collections::VecDeque;
use std::sync::OnceLock;

use tensorferry_os::limits;

use crate::class::Class;
use crate::place::Address;

/// What the private cache of a processor holds where nobody says: that of most servers has 1 to 2 MiB.
const USUAL_PRIVATE_CACHE_BYTES: usize = 1 << 20;
/// Each block takes some private memory too, so of small ones fewer wait than would fill a cache.
const MAX_DISTANCE: usize = 640;

/// Free blocks of one class.
#[derive(Debug, Default)]
pub(crate) struct FreeList {
    /// Last had by this process.
    near: Vec<Address>,
    /// Last had by others.
    away: VecDeque<Address>,
}

/// Who had a block last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freed {
    /// This process.
    Here,
    /// Another one, or nobody knows.
    Away,
}

impl FreeList {
    pub(crate) fn put(&mut self, address: Address, freed: Freed) {
        match freed {
            Freed::Here => self.near.push(address),
            Freed::Away => self.away.push_back(address),
        }
    }

    /// The one to use next, if there is one that pays: of what others had, the youngest behind which `distance` others have
    /// been freed, itself included.
    pub(crate) fn take(&mut self, distance: usize) -> Option<Address> {
        self.near.pop().or_else(|| self.away.remove(self.away.len().checked_sub(distance)?))
    }

    /// The oldest, whether it pays or not.
    pub(crate) fn take_any(&mut self) -> Option<Address> {
        self.near.pop().or_else(|| self.away.pop_front())
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Address) -> bool) {
        self.near.retain(&mut keep);
        self.away.retain(keep);
    }
}

/// How many blocks of the class fill the private caches of a writer and a reader, and a little more.
pub(crate) fn distance(class: Class) -> usize {
    static CACHE_BYTES: OnceLock<usize> = OnceLock::new();
    let cache_bytes = *CACHE_BYTES.get_or_init(|| {
        let private = limits::private_cache_bytes().unwrap_or(USUAL_PRIVATE_CACHE_BYTES);
        private * 5 / 2
    });
    (cache_bytes / class.size_bytes()).clamp(1, MAX_DISTANCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(index: usize) -> Address {
        Address::new(1, 2, index)
    }

    #[test]
    fn what_was_freed_here_is_used_first_and_last_freed_first() {
        let mut list = FreeList::default();
        list.put(address(1), Freed::Away);
        list.put(address(2), Freed::Here);
        list.put(address(3), Freed::Here);
        assert_eq!([list.take(1), list.take(1), list.take(1)], [3, 2, 1].map(|i| Some(address(i))));
        assert_eq!(list.take(1), None);
    }

    #[test]
    fn what_others_had_waits_until_enough_has_passed() {
        let mut list = FreeList::default();
        (0..2).for_each(|index| list.put(address(index), Freed::Away));
        assert_eq!(list.take(3), None);
        (2..5).for_each(|index| list.put(address(index), Freed::Away));
        assert_eq!(list.take(3), Some(address(2)), "the youngest that has waited long enough");
        assert_eq!(list.take(3), Some(address(1)));
        assert_eq!(list.take(3), Some(address(0)));
        assert_eq!(list.take(3), None);
        assert_eq!(list.take_any(), Some(address(3)));
        list.retain(|kept| *kept != address(4));
        assert_eq!(list.take_any(), None);
    }
}
