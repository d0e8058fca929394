//! The free blocks of one size, and which of them is used next.
//!
//! What this process has written and freed lies in its own caches: the last one freed is used first.
//!
//! What another process had has lines in the private caches of both. To write them at once takes each line from the other
//! processor, which is up to five times as slow as to take it from the cache that both share. So such a block is used
//! again only when more other memory has come back meanwhile than the private cache of its reader holds, and fresh memory
//! is taken until there is that much. It is not left longer than that: on one of two processors that were measured it gets
//! slower from there on, on the other one beyond the shared cache. docs/bench/NOTES.md has the measurements.
//!
//! Fresh memory is dear at first, and whoever sends little has no use for much of it: for sixteen blocks that have come back
//! one more may rest.

use std::collections::VecDeque;
use std::sync::OnceLock;

use tensorferry_os::limits;

use crate::class::Class;
use crate::place::Address;

/// What rests at least: what was best where a private cache has 1 MiB, and where it has 2 MiB.
const MIN_DISTANCE_BYTES: usize = 5 << 19;
/// No server's private cache is larger by much.
const MAX_PRIVATE_CACHE_BYTES: usize = 4 << 20;
/// Of smaller blocks only few rest: to write them costs less than the rest of a message, and each has a header that whoever
/// looks after the dead has to read.
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

/// Who had a block last.
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

    /// One that came back from nobody: it was never used, or somebody else's who is gone.
    pub(crate) fn put_unused(&mut self, address: Address) {
        self.away.push_back(address);
    }

    /// The one to use next, if there is one that pays: of what others had, the youngest behind which `distance` others have
    /// been freed, itself included. Asks for the distance only where it matters.
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

    /// The oldest, whether it pays or not.
    pub(crate) fn take_any(&mut self) -> Option<Address> {
        self.near.pop().or_else(|| self.away.pop_front())
    }

    /// One of this run, whether it pays or not.
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

/// How many blocks of the class fill the private cache of their reader, and a little more.
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
