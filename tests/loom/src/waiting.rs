//! The wait protocol alone: what is waited for is published and looked at with relaxed accesses, so that
//! nothing but the fences of the wait word brings the two sides together.

use std::sync::Arc;

use loom::thread;

use crate::atomic::{AtomicU32, AtomicU64, Ordering, until_killed};
use crate::explore::{explore, explore_kills};
use crate::wait_any::wait_any_until;
use crate::{Outcome, Spin, WaitWord, Weakened};

struct Shared {
    word: AtomicU32,
    items: AtomicU64,
}

impl Shared {
    fn create() -> Arc<Self> {
        let shared = Arc::new(Self { word: AtomicU32::new(0), items: AtomicU64::new(0) });
        shared.word.show();
        shared.items.show();
        shared
    }

    fn publish(&self) {
        self.items.fetch_add(1, Ordering::Relaxed);
        WaitWord::new(&self.word).wake();
    }

    fn wait_for(&self, n_items: u64) {
        let look = || (self.items.load(Ordering::Relaxed) >= n_items).then_some(());
        // Without a deadline it ends only by finding something.
        let _ = WaitWord::new(&self.word).wait_until(&Spin::default(), None, look);
    }
}

/// Two items by one waker, for two sleepers.
pub fn two_sleepers(weakened: Weakened) -> Outcome {
    explore(2, weakened, || {
        let shared = Shared::create();
        let sleepers = [1, 2].map(|n_items| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.wait_for(n_items))
        });
        shared.publish();
        shared.publish();
        sleepers.into_iter().for_each(|sleeper| drop(sleeper.join()));
    })
}

/// One item each by two wakers, for one sleeper who wants both.
pub fn two_wakers(weakened: Weakened) -> Outcome {
    explore(2, weakened, || {
        let shared = Shared::create();
        let wakers = [(); 2].map(|()| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.publish())
        });
        shared.wait_for(2);
        wakers.into_iter().for_each(|waker| drop(waker.join()));
    })
}

/// One item each by two wakers with a word of their own, for one sleeper at both words who wants both.
pub fn two_words(weakened: Weakened) -> Outcome {
    explore(3, weakened, || {
        let shared = Shared::create();
        let second = Arc::new(AtomicU32::new(0));
        second.show();
        let (theirs, word) = (Arc::clone(&shared), Arc::clone(&second));
        let waker = thread::spawn(move || {
            theirs.items.fetch_add(1, Ordering::Relaxed);
            WaitWord::new(&word).wake();
        });
        let (others, word) = (Arc::clone(&shared), Arc::clone(&second));
        let sleeper = thread::spawn(move || {
            let words = [WaitWord::new(&others.word), WaitWord::new(&word)];
            let look = || (others.items.load(Ordering::Relaxed) >= 2).then_some(());
            // Without a deadline it ends only by finding something.
            let _ = wait_any_until(&words, &Spin::default(), None, look);
        });
        shared.publish();
        drop(waker.join());
        drop(sleeper.join());
    })
}

/// A waker that is killed anywhere; its sweeper wakes everybody, as after a death in a ring. Then an ordinary
/// wake.
pub fn a_waker_dies(weakened: Weakened) -> Outcome {
    explore_kills(2, weakened, |position| {
        let shared = Shared::create();
        let (victims, sleepers) = (Arc::clone(&shared), Arc::clone(&shared));
        let victim = thread::spawn(move || until_killed(position, || victims.publish()).is_none());
        let sleeper = thread::spawn(move || {
            sleepers.wait_for(1);
            sleepers.wait_for(2);
        });
        let was_killed = victim.join().is_ok_and(|killed| killed);
        WaitWord::new(&shared.word).wake_sleepers();
        shared.publish();
        if shared.items.load(Ordering::Relaxed) < 2 {
            shared.publish();
        }
        drop(sleeper.join());
        was_killed
    })
}

/// A sleeper that is killed anywhere costs the other one nothing.
pub fn a_sleeper_dies(weakened: Weakened) -> Outcome {
    explore_kills(2, weakened, |position| {
        let shared = Shared::create();
        let (victims, others) = (Arc::clone(&shared), Arc::clone(&shared));
        let victim = thread::spawn(move || until_killed(position, || victims.wait_for(1)).is_none());
        let other = thread::spawn(move || others.wait_for(1));
        shared.publish();
        drop(other.join());
        victim.join().is_ok_and(|killed| killed)
    })
}
