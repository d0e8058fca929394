//! The lock of a monitor, and its shares.

use std::sync::Arc;

use loom::thread;

use crate::atomic::{AtomicU32, AtomicU64, Guard, may_go_on, until_killed};
use crate::explore::{explore, explore_kills};
use crate::monitor_words::{LastOwner, MonitorWords, word};
use crate::{Member, Outcome, Spin, Weakened};

/// Two members and what they share.
struct Shared {
    words: [AtomicU64; word::N_WORDS],
    unlocked: AtomicU32,
    changed: AtomicU32,
    /// What the lock protects.
    bytes: Guard,
}

const fn member(slot: u8) -> Member {
    Member { slot, epoch: 1 }
}

impl Shared {
    fn create() -> Arc<Self> {
        let shared = Arc::new(Self {
            words: std::array::from_fn(|index| match index {
                word::LOCK | word::DEATHS => AtomicU64::new(0),
                word::SHARES.. if index < word::SHARES + 2 => AtomicU64::new(0),
                _ => AtomicU64::padding(),
            }),
            unlocked: AtomicU32::new(0),
            changed: AtomicU32::new(0),
            bytes: Guard::new(),
        });
        for index in [word::LOCK, word::DEATHS, word::SHARES, word::SHARES + 1] {
            shared.words[index].show();
        }
        shared.unlocked.show();
        shared.changed.show();
        shared
    }

    fn monitor(&self) -> MonitorWords<'_> {
        MonitorWords::new(&self.words, &self.unlocked, &self.changed)
    }

    /// Takes the lock, writes, and releases it.
    fn pass(&self, slot: u8) {
        let monitor = self.monitor();
        let look = || monitor.try_acquire(member(slot), |_| true);
        // Without a deadline it ends only by finding something.
        let _ = monitor.unlocked().wait_until(&Spin::default(), None, look);
        if may_go_on() {
            self.bytes.write();
        }
        monitor.release(member(slot), LastOwner::Released);
    }
}

/// Two members, each of which takes the lock twice.
pub fn two_owners(weakened: Weakened) -> Outcome {
    explore(3, weakened, || {
        let shared = Shared::create();
        let theirs = Arc::clone(&shared);
        let other = thread::spawn(move || (0..2).for_each(|_| theirs.pass(1)));
        (0..2).for_each(|_| shared.pass(0));
        drop(other.join());
    })
}

/// A member that is killed anywhere on its way through the lock, while another one wants it.
pub fn an_owner_dies(weakened: Weakened) -> Outcome {
    explore_kills(3, weakened, |position| {
        let shared = Shared::create();
        let (victims, others) = (Arc::clone(&shared), Arc::clone(&shared));
        let victim = thread::spawn(move || until_killed(position, || victims.pass(1)).is_none());
        let other = thread::spawn(move || others.pass(0));
        let was_killed = victim.join().is_ok_and(|killed| killed);
        if was_killed {
            shared.monitor().sweep(member(1), false);
        }
        drop(other.join());
        was_killed
    })
}

/// One gives back what it had taken while another one waits for it.
pub fn a_share_comes_back(weakened: Weakened) -> Outcome {
    explore(3, weakened, || {
        let shared = Shared::create();
        let theirs = Arc::clone(&shared);
        shared.monitor().change_share(member(0), 1);
        let waits = thread::spawn(move || {
            let monitor = theirs.monitor();
            let look = || (monitor.shares(|_| true) == 0).then_some(());
            let _ = monitor.changed().wait_until(&Spin::default(), None, look);
        });
        shared.monitor().change_share(member(0), -1);
        shared.monitor().changed().wake_after_change();
        drop(waits.join());
    })
}
