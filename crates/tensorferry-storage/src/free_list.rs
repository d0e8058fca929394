//! The free blocks of one size class, and which of them is used next.
//!
//! A block that this process has written and freed lies in its own caches, so the one that was freed last is
//! used first.
//!
//! A block that another process had has lines in the private caches of both processors. Writing it at once
//! takes each line from the other processor, which is up to five times as slow as taking it from the cache
//! that both share. So such a block is used again only after more other memory has come back than its
//! reader's private cache holds. Fresh memory is taken until there is that much. The block does not rest
//! longer than that: on one of two processors that were measured, a longer rest makes it slower, on the other
//! one a rest beyond the size of the shared cache. docs/bench/NOTES.md has the measurements.
//!
//! Fresh memory is expensive at first, and a process that sends little has no use for much of it. So the
//! number of blocks that may rest grows by one for each sixteen blocks that have come back.

use std::collections::VecDeque;
use std::sync::OnceLock;

use tensorferry_os::limits;

use crate::class::Class;
use crate::geometry::Address;

/// The least amount of memory that rests. It was best with a private cache of 1 MiB, and with one of 2 MiB.
const MIN_DISTANCE_BYTES: usize = 5 << 19;
/// No server's private cache is much larger.
const MAX_PRIVATE_CACHE_BYTES: usize = 4 << 20;
/// Of blocks smaller than this, only a few rest. Writing them costs less than the rest of a message, and a
/// sweeper has to read the header of each.
const SMALL_BYTES: usize = 4 << 10;
const SMALL_DISTANCE: usize = 8;
/// How many blocks come back for each one more that may rest.
const RETURNS_PER_REST: usize = 16;

/// Free blocks of one class.
#[derive(Debug, Default)]
pub(crate) struct FreeList {
    /// Last had by this process.
    near: Vec<Address>,
    /// Last had by others.
    away: VecDeque<Address>,
    /// How often one came back from others.
    n_returns: usize,
}

/// Which process had a block last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freed {
    /// This process.
    Here,
    /// Another one.
    Away,
}

impl FreeList {
    pub(crate) fn put(&mut self, address: Address, freed: Freed) {
        match freed {
            Freed::Here => self.near.push(address),
            Freed::Away => {
                self.away.push_back(address);
                self.n_returns = self.n_returns.saturating_add(1);
            }
        }
    }

    /// Adds a block that did not come back from another process: it was never used, or its owner is gone.
    pub(crate) fn put_unused(&mut self, address: Address) {
        self.away.push_back(address);
    }

    /// Takes the block to use next, if one is worth using. Of the blocks that others had, this is the
    /// `distance`-th youngest, so that `distance - 1` blocks were freed after it; the number of returns caps
    /// the distance. `distance` is called only when the result matters.
    pub(crate) fn take(&mut self, distance: impl FnOnce() -> usize) -> Option<Address> {
        if let Some(address) = self.near.pop() {
            return Some(address);
        }
        if self.away.is_empty() {
            return None;
        }
        let distance = distance().min(1 + self.n_returns / RETURNS_PER_REST);
        self.away.remove(self.away.len().checked_sub(distance)?)
    }

    /// Takes a block whether it is worth using or not: the last one freed here, else the oldest that others
    /// had.
    pub(crate) fn take_any(&mut self) -> Option<Address> {
        self.near.pop().or_else(|| self.away.pop_front())
    }

    /// Takes a block of this run, whether it is worth using or not.
    pub(crate) fn take_of(&mut self, extent: usize) -> Option<Address> {
        let is_of = |address: &Address| address.extent() == extent;
        if let Some(at) = self.away.iter().rposition(is_of) {
            return self.away.remove(at);
        }
        let at = self.near.iter().rposition(is_of)?;
        Some(self.near.remove(at))
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Address) -> bool) {
        self.near.retain(&mut keep);
        self.away.retain(keep);
    }
}

/// How many blocks of the class fill the private cache of their reader, plus a quarter, within the limits
/// above.
pub(crate) fn distance(class: Class) -> usize {
    static DISTANCE_BYTES: OnceLock<usize> = OnceLock::new();
    if class.size_bytes() < SMALL_BYTES {
        return SMALL_DISTANCE;
    }
    let distance_bytes = *DISTANCE_BYTES.get_or_init(|| {
        let cache_bytes = limits::private_cache_bytes().unwrap_or(0).min(MAX_PRIVATE_CACHE_BYTES);
        MIN_DISTANCE_BYTES.max(cache_bytes + cache_bytes / 4)
    });
    distance_bytes.div_ceil(class.size_bytes())
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
        assert_eq!([list.take(|| 1), list.take(|| 1), list.take(|| 1)], [3, 2, 1].map(|i| Some(address(i))));
        assert_eq!(list.take(|| 1), None);
    }

    #[test]
    fn what_others_had_waits_until_enough_has_passed() {
        let mut list = FreeList { n_returns: 100, ..FreeList::default() };
        (0..2).for_each(|index| list.put(address(index), Freed::Away));
        assert_eq!(list.take(|| 3), None);
        (2..5).for_each(|index| list.put(address(index), Freed::Away));
        assert_eq!(list.take(|| 3), Some(address(2)), "the youngest that has waited long enough");
        assert_eq!(list.take(|| 3), Some(address(1)));
        assert_eq!(list.take(|| 3), Some(address(0)));
        assert_eq!(list.take(|| 3), None);
        list.put_unused(Address::new(7, 2, 0));
        assert_eq!(list.take_of(7), Some(Address::new(7, 2, 0)));
        assert_eq!(list.take_of(7), None);
        assert_eq!(list.take_any(), Some(address(3)));
        list.retain(|kept| *kept != address(4));
        assert_eq!(list.take_any(), None);
    }

    #[test]
    fn who_sends_little_takes_little() {
        let mut list = FreeList::default();
        let mut in_all = 0;
        for _ in 0..100 {
            let block = list.take(|| 1000).unwrap_or_else(|| {
                in_all += 1;
                address(in_all)
            });
            list.put(block, Freed::Away);
        }
        assert_eq!(in_all, 1 + 99 / RETURNS_PER_REST);
    }
}
