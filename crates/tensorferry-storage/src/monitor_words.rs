//! The words of a monitor in shared memory, and the steps of its lock. docs/WIRE.md shows the same table.
//!
//! The lock names its owner in the same compare-and-swap that takes it. So a sweeper with proof of the
//! owner's death can free it, and the next owner learns that the last one died. Only the owner, or such a
//! sweeper, frees a lock; both compare the whole word, so exactly one of them wins.

use std::fmt;

use tensorferry_domain::{Member, WaitWord};

use crate::atomic::{AtomicU32, AtomicU64, Ordering};

pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"MNTR\x01\0\0\0");

/// Word indexes in a monitor.
pub(crate) mod word {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const PURPOSE: usize = 1;
    pub(crate) const LOCK: usize = 2;
    pub(crate) const DEATHS: usize = 3;
    pub(crate) const STATE: usize = 4;
    /// 32-bit futex words lie in lines of their own.
    pub(crate) const UNLOCKED: usize = 8;
    pub(crate) const CHANGED: usize = 16;
    /// One word for each process slot.
    pub(crate) const SHARES: usize = 24;
    pub(crate) const N_WORDS: usize = SHARES + tensorferry_domain::MAX_MEMBERS;
}

/// The number of words that the user of a monitor has to itself.
pub(crate) const N_STATE_WORDS: usize = 4;

/// How the last owner left a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LastOwner {
    /// It released the lock, or nobody has had it yet.
    Released,
    /// It panicked while it had the lock.
    Panicked,
    /// Its process ended, or was declared dead, while it had the lock.
    Died,
}

impl fmt::Display for LastOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Released => "released it",
            Self::Panicked => "panicked",
            Self::Died => "died",
        })
    }
}

/// A lock word, taken apart: `epoch:32 | unused:16 | slot:8 | tag:8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockState {
    Free(LastOwner),
    Held(Member),
}

impl LockState {
    pub(crate) fn pack(self) -> u64 {
        match self {
            Self::Free(LastOwner::Released) => 0,
            Self::Held(owner) => u64::from(owner.epoch) << 32 | u64::from(owner.slot) << 8 | 1,
            Self::Free(LastOwner::Died) => 2,
            Self::Free(LastOwner::Panicked) => 3,
        }
    }

    /// A number that no member can have written reads as held, most likely by nobody who lives.
    pub(crate) fn unpack(word: u64) -> Self {
        let [tag, slot, _, _, e0, e1, e2, e3] = word.to_le_bytes();
        match tag {
            0 => Self::Free(LastOwner::Released),
            2 => Self::Free(LastOwner::Died),
            3 => Self::Free(LastOwner::Panicked),
            _ => Self::Held(Member { slot, epoch: u32::from_le_bytes([e0, e1, e2, e3]) }),
        }
    }
}

/// A member's share word, taken apart: `epoch:32 | count:32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) epoch: u32,
    pub(crate) count: u32,
}

impl Share {
    pub(crate) fn pack(self) -> u64 {
        u64::from(self.epoch) << 32 | u64::from(self.count)
    }

    pub(crate) fn unpack(word: u64) -> Self {
        let [c0, c1, c2, c3, e0, e1, e2, e3] = word.to_le_bytes();
        Self { epoch: u32::from_le_bytes([e0, e1, e2, e3]), count: u32::from_le_bytes([c0, c1, c2, c3]) }
    }
}

/// The words of one monitor.
#[derive(Clone, Copy)]
pub(crate) struct MonitorWords<'a> {
    words: &'a [AtomicU64; word::N_WORDS],
    unlocked: &'a AtomicU32,
    changed: &'a AtomicU32,
}

impl fmt::Debug for MonitorWords<'_> {
    /// Reads no word: two of them are futexes, and this process may be a child of the one that holds the
    /// monitor.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MonitorWords").finish_non_exhaustive()
    }
}

impl<'a> MonitorWords<'a> {
    /// The two futex words are those that lie in `words`.
    pub(crate) fn new(
        words: &'a [AtomicU64; word::N_WORDS],
        unlocked: &'a AtomicU32,
        changed: &'a AtomicU32,
    ) -> Self {
        Self { words, unlocked, changed }
    }

    pub(crate) fn magic(&self) -> &'a AtomicU64 {
        &self.words[word::MAGIC]
    }

    pub(crate) fn purpose(&self) -> &'a AtomicU64 {
        &self.words[word::PURPOSE]
    }

    /// How many members that held the monitor have died. A sweep that is repeated counts again.
    pub(crate) fn deaths(&self) -> &'a AtomicU64 {
        &self.words[word::DEATHS]
    }

    pub(crate) fn state(&self) -> &'a [AtomicU64] {
        &self.words[word::STATE..word::STATE + N_STATE_WORDS]
    }

    /// Where those wait who want the lock.
    pub(crate) fn unlocked(&self) -> WaitWord<'a> {
        WaitWord::new(self.unlocked)
    }

    /// Where those wait who want the state to change.
    pub(crate) fn changed(&self) -> WaitWord<'a> {
        WaitWord::new(self.changed)
    }

    /// Takes the lock for the member `me` if no member has it that lives or is to be swept. Returns how the
    /// last owner left it. A sweep counts the death before it frees the lock, so whoever is told that the
    /// last owner died finds that death counted, unless that owner had announced its end.
    pub(crate) fn try_acquire(&self, me: Member, is_unswept: impl Fn(Member) -> bool) -> Option<LastOwner> {
        let lock = &self.words[word::LOCK];
        let seen = lock.load(Ordering::SeqCst);
        let last_owner = match LockState::unpack(seen) {
            LockState::Free(last_owner) => last_owner,
            LockState::Held(owner) if is_unswept(owner) => return None,
            // It left the domain without releasing the lock.
            LockState::Held(_) => LastOwner::Died,
        };
        // If the word has changed, another thread has just taken the lock, or a sweeper freed it, who then
        // wakes all who wait.
        let mine = LockState::Held(me).pack();
        lock.compare_exchange(seen, mine, Ordering::SeqCst, Ordering::SeqCst).is_ok().then_some(last_owner)
    }

    /// Frees the lock that the member `me` has, and wakes those who wait for it. Returns false when `me` does
    /// not have it any more, because it was declared dead.
    pub(crate) fn release(&self, me: Member, how: LastOwner) -> bool {
        let (mine, free) = (LockState::Held(me).pack(), LockState::Free(how).pack());
        let released =
            self.words[word::LOCK].compare_exchange(mine, free, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        self.unlocked().wake_after_change();
        released
    }

    /// Changes the count of the member `me` by `change`. Returns false, and changes nothing, when the count
    /// would leave its range, or the process slot has gone to another member.
    pub(crate) fn change_share(&self, me: Member, change: i32) -> bool {
        let Some(word) = self.words[word::SHARES..].get(usize::from(me.slot)) else { return false };
        let changed = |word: u64| {
            let share = Share::unpack(word);
            let count = match share.epoch {
                epoch if epoch == me.epoch => share.count,
                // What an earlier user of the slot has left.
                epoch if epoch < me.epoch => 0,
                _ => return None,
            };
            Some(Share { epoch: me.epoch, count: count.checked_add_signed(change)? }.pack())
        };
        word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, changed).is_ok()
    }

    /// The count of one member.
    pub(crate) fn share(&self, member: Member) -> u32 {
        let word = self.words[word::SHARES..].get(usize::from(member.slot));
        let share = word.map(|word| Share::unpack(word.load(Ordering::SeqCst)));
        share.filter(|share| share.epoch == member.epoch).map_or(0, |share| share.count)
    }

    /// The sum of the counts of all members that live.
    pub(crate) fn shares(&self, is_live: impl Fn(Member) -> bool) -> u64 {
        let count = |(slot, word): (u8, &AtomicU64)| {
            let Share { epoch, count } = Share::unpack(word.load(Ordering::SeqCst));
            if count > 0 && is_live(Member { slot, epoch }) { u64::from(count) } else { 0 }
        };
        (0..).zip(&self.words[word::SHARES..]).map(count).sum()
    }

    /// Sets the counts of all members to zero.
    pub(crate) fn clear_shares(&self) {
        for word in &self.words[word::SHARES..] {
            word.store(0, Ordering::SeqCst);
        }
    }

    /// Frees what the dead member had of the monitor, and wakes everybody who waits at it. Another sweeper
    /// can repeat every step from the beginning. The dead member's count needs no change: counts of members
    /// that do not live are worth nothing. It is not counted as a death when the member ended in order.
    pub(crate) fn sweep(&self, dead: Member, in_order: bool) {
        if !in_order {
            self.deaths().fetch_add(1, Ordering::SeqCst);
        }
        let (held, free) = (LockState::Held(dead).pack(), LockState::Free(LastOwner::Died).pack());
        let _ = self.words[word::LOCK].compare_exchange(held, free, Ordering::SeqCst, Ordering::SeqCst);
        self.unlocked().wake_sleepers();
        self.changed().wake_sleepers();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ME: Member = Member { slot: 3, epoch: 7 };
    const OTHER: Member = Member { slot: 4, epoch: 7 };

    struct Memory {
        words: [AtomicU64; word::N_WORDS],
        futexes: [AtomicU32; 2],
    }

    impl Memory {
        fn new() -> Self {
            Self {
                words: [const { AtomicU64::new(0) }; word::N_WORDS],
                futexes: [const { AtomicU32::new(0) }; 2],
            }
        }

        fn monitor(&self) -> MonitorWords<'_> {
            MonitorWords::new(&self.words, &self.futexes[0], &self.futexes[1])
        }
    }

    #[test]
    fn a_lock_has_one_owner_and_tells_how_the_last_one_left_it() {
        let memory = Memory::new();
        let monitor = memory.monitor();
        let all_unswept = |_| true;
        assert_eq!(monitor.try_acquire(ME, all_unswept), Some(LastOwner::Released));
        for member in [ME, OTHER] {
            assert_eq!(monitor.try_acquire(member, all_unswept), None);
        }
        assert!(!monitor.release(OTHER, LastOwner::Released), "it is not theirs");
        for how in [LastOwner::Panicked, LastOwner::Released] {
            assert!(monitor.release(ME, how));
            assert_eq!(monitor.try_acquire(ME, all_unswept), Some(how));
        }
    }

    #[test]
    fn a_dead_owner_loses_the_lock_and_the_next_one_is_told() {
        let memory = Memory::new();
        let monitor = memory.monitor();
        monitor.try_acquire(OTHER, |_| true);
        monitor.sweep(Member { epoch: 6, ..OTHER }, true);
        assert_eq!(monitor.try_acquire(ME, |_| true), None, "an earlier user of the slot died");
        monitor.sweep(OTHER, false);
        assert!(!monitor.release(OTHER, LastOwner::Released));
        assert_eq!(monitor.try_acquire(ME, |_| true), Some(LastOwner::Died));
        assert_eq!(monitor.deaths().load(Ordering::SeqCst), 1, "the other one ended in order");
        // Where there will be no sweep.
        assert_eq!(monitor.try_acquire(OTHER, |member| member != ME), Some(LastOwner::Died));
    }

    #[test]
    fn shares_belong_to_one_member_and_count_while_it_lives() {
        let memory = Memory::new();
        let monitor = memory.monitor();
        assert!(!monitor.change_share(ME, -1), "below zero");
        assert!(monitor.change_share(ME, 2) && monitor.change_share(OTHER, 5));
        assert_eq!((monitor.share(ME), monitor.shares(|_| true)), (2, 7));
        assert_eq!(monitor.shares(|member| member != OTHER), 2);
        let next = Member { epoch: 8, ..ME };
        assert_eq!(monitor.share(next), 0);
        assert!(monitor.change_share(next, 1));
        assert!(!monitor.change_share(ME, 1), "the slot has gone to another member");
        assert_eq!(monitor.shares(|_| true), 6);
        monitor.clear_shares();
        assert_eq!(monitor.shares(|_| true), 0);
    }

    proptest! {
        #[test]
        fn states_survive_their_word(slot: u8, epoch: u32, count: u32) {
            let held = LockState::Held(Member { slot, epoch });
            for state in [LastOwner::Released, LastOwner::Died, LastOwner::Panicked].map(LockState::Free) {
                prop_assert_eq!(LockState::unpack(state.pack()), state);
            }
            prop_assert_eq!(LockState::unpack(held.pack()), held);
            let share = Share { epoch, count };
            prop_assert_eq!(Share::unpack(share.pack()), share);
        }

        #[test]
        fn words_that_somebody_wrote_over_are_no_reason_to_panic(noise: u64, slot: u8, epoch: u32) {
            let memory = Memory::new();
            let monitor = memory.monitor();
            memory.words[word::LOCK..].iter().for_each(|word| word.store(noise, Ordering::SeqCst));
            let member = Member { slot, epoch };
            let _ = monitor.try_acquire(member, |_| false);
            monitor.change_share(member, 1);
            monitor.shares(|_| true);
            monitor.release(member, LastOwner::Released);
            monitor.sweep(member, false);
        }
    }
}
