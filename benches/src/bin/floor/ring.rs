//! A ring of 64-byte descriptors for one sender and one receiver.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use tensorferry_os::futex;

use crate::memory::Shared;

const LINE_BYTES: usize = 64;
/// Before the slots: who sleeps, and what on; each in a line of its own.
const HEAD_LINES: usize = 4;
/// About 50 microseconds.
pub(crate) const SPINS: u32 = 2_000;

/// Where a ring lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    offset_bytes: usize,
    n_slots: usize,
}

/// One process's end of a ring.
#[derive(Debug)]
pub(crate) struct End {
    ring: Ring,
    position: u64,
    /// How often to look before sleeping.
    spins: u32,
}

/// What a slot carries besides its turn.
pub(crate) type Descriptor = [u64; 2];

impl Ring {
    pub(crate) fn len_bytes(n_slots: usize) -> usize {
        (HEAD_LINES + n_slots) * LINE_BYTES
    }

    pub(crate) fn at(offset_bytes: usize, n_slots: usize) -> Self {
        Self { offset_bytes, n_slots }
    }

    fn slot<'a>(&self, shared: &'a Shared, position: u64) -> &'a [AtomicU64] {
        let index = usize::try_from(position).unwrap_or(0) & (self.n_slots - 1);
        shared.words(self.offset_bytes + (HEAD_LINES + index) * LINE_BYTES, 8)
    }

    /// The flag and the futex word of the receivers (0) or the senders (1).
    fn bell<'a>(&self, shared: &'a Shared, side: usize) -> (&'a AtomicU32, &'a AtomicU32) {
        let line = |index| shared.word32(self.offset_bytes + index * LINE_BYTES);
        (line(side * 2), line(side * 2 + 1))
    }
}

impl End {
    pub(crate) fn new(ring: Ring, spins: u32) -> Self {
        Self { ring, position: 0, spins }
    }

    pub(crate) fn push(&mut self, shared: &Shared, descriptor: Descriptor) {
        let slot = self.ring.slot(shared, self.position);
        // A slot's turn is twice its lap when free, and one more when full.
        let turn = self.position / self.ring.n_slots as u64 * 2;
        self.wait_for(shared, &slot[0], turn, 1);
        slot[1].store(descriptor[0], Ordering::Relaxed);
        slot[2].store(descriptor[1], Ordering::Relaxed);
        slot[0].store(turn + 1, Ordering::Release);
        self.position += 1;
        ring_bell(self.ring.bell(shared, 0));
    }

    pub(crate) fn pop(&mut self, shared: &Shared) -> Descriptor {
        let slot = self.ring.slot(shared, self.position);
        let turn = self.position / self.ring.n_slots as u64 * 2 + 1;
        self.wait_for(shared, &slot[0], turn, 0);
        let descriptor = [slot[1].load(Ordering::Relaxed), slot[2].load(Ordering::Relaxed)];
        slot[0].store(turn + 1, Ordering::Release);
        self.position += 1;
        ring_bell(self.ring.bell(shared, 1));
        descriptor
    }

    pub(crate) fn try_pop(&mut self, shared: &Shared) -> Option<Descriptor> {
        let turn = self.position / self.ring.n_slots as u64 * 2 + 1;
        let is_there = self.ring.slot(shared, self.position)[0].load(Ordering::Acquire) == turn;
        is_there.then(|| self.pop(shared))
    }

    fn wait_for(&self, shared: &Shared, word: &AtomicU64, wanted: u64, side: usize) {
        for _ in 0..=self.spins {
            if word.load(Ordering::Acquire) == wanted {
                return;
            }
            spin_loop();
        }
        let (flag, bell) = self.ring.bell(shared, side);
        loop {
            let seen = bell.load(Ordering::Acquire);
            flag.store(1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if word.load(Ordering::Acquire) == wanted {
                flag.store(0, Ordering::Relaxed);
                return;
            }
            // Looking again is all that could be done about an error.
            let _ = futex::wait(bell, seen, None);
        }
    }
}

fn ring_bell((flag, bell): (&AtomicU32, &AtomicU32)) {
    fence(Ordering::SeqCst);
    if flag.load(Ordering::Relaxed) != 0 {
        flag.store(0, Ordering::Relaxed);
        bell.fetch_add(1, Ordering::Release);
        let _ = futex::wake_all(bell);
    }
}
