//! Members, and the state word of a process slot.
//!
//! A slot walks FREE → ADMITTING → INVITED → LIVE → DEAD → FREE, with a new epoch each time it is claimed.
//! The state is one word, so each step is one compare-and-swap that names its author. The member that holds
//! the newcomer's pidfd claims the slot, joining uses up the invitation, and a DEAD slot names the member
//! that sweeps it.

use std::sync::atomic::{AtomicU64, Ordering};

use tensorferry_os::pidfd::Identity;

use crate::layout::{MAX_MEMBERS, slot};

/// One process of a domain: its slot in the table, and which of the slot's successive users it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Member {
    /// Index in the process table, below [`MAX_MEMBERS`].
    pub slot: u8,
    /// Counts the users of the slot, from 1.
    pub epoch: u32,
}

impl Member {
    /// The member's bit in holder words.
    #[must_use]
    #[inline]
    pub fn bit(self) -> u64 {
        1 << (u32::from(self.slot) % 64)
    }
}

/// The state of a process slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// No process has the slot.
    Free,
    /// Claimed for a newcomer by the member that admits it; its identity is being written.
    Admitting,
    /// Ready for the one process that it was claimed for, which has not joined yet.
    Invited,
    /// Its process is a member.
    Live,
    /// Its process is proven dead, and one member gives back what it held.
    Dead,
}

/// What the process table says about one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberInfo {
    /// The member.
    pub member: Member,
    /// The state of its slot.
    pub phase: Phase,
    /// The process, as the admitting member saw it.
    pub identity: Identity,
    /// The number of blocks that the member owns and that are held.
    pub live_blocks: u64,
    /// Their length in bytes.
    pub live_bytes: u64,
    /// Bytes that the member keeps populated for its next allocations.
    pub cached_bytes: u64,
}

/// The state word, taken apart: `epoch:32 | unused:16 | author:8 | phase:8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) epoch: u32,
    pub(crate) author: u8,
    pub(crate) phase: Phase,
}

impl State {
    pub(crate) fn pack(self) -> u64 {
        let phase = match self.phase {
            Phase::Free => 0,
            Phase::Admitting => 1,
            Phase::Live => 2,
            Phase::Dead => 3,
            Phase::Invited => 4,
        };
        u64::from(self.epoch) << 32 | u64::from(self.author) << 8 | phase
    }

    /// A word that no member can have written reads as free, so that no member waits for it or sweeps it.
    pub(crate) fn unpack(word: u64) -> Self {
        let bytes = word.to_le_bytes();
        let phase = match bytes[0] {
            1 => Phase::Admitting,
            2 => Phase::Live,
            3 => Phase::Dead,
            4 => Phase::Invited,
            _ => Phase::Free,
        };
        // The unused bits are always written as zero. A word where they are not could never be changed,
        // because `change` compares with a packed state.
        let phase = if bytes[2..4] == [0, 0] { phase } else { Phase::Free };
        let epoch = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        Self { epoch, author: bytes[1], phase }
    }
}

/// One entry of the process table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<'a> {
    pub(crate) words: &'a [AtomicU64; slot::N_WORDS],
}

impl Slot<'_> {
    pub(crate) fn state(&self) -> State {
        State::unpack(self.words[slot::STATE].load(Ordering::SeqCst))
    }

    /// Moves the slot from exactly `from` to `to`. Returns false when another member was first.
    pub(crate) fn change(&self, from: State, to: State) -> bool {
        self.words[slot::STATE]
            .compare_exchange(from.pack(), to.pack(), Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    pub(crate) fn set_identity(&self, identity: Identity) {
        let pid = u64::from(identity.namespace) << 32 | u64::from(identity.pid);
        self.words[slot::PID].store(pid, Ordering::Relaxed);
        self.words[slot::INODE].store(identity.inode, Ordering::Relaxed);
        self.words[slot::START_TICKS].store(identity.start_ticks, Ordering::Relaxed);
        let counters = [slot::RETURNS, slot::BLOCKS_LIVE, slot::BYTES_LIVE, slot::BYTES_CACHED];
        for counter in counters.into_iter().chain([slot::SCANS_WANTED, slot::SCANS_DONE, slot::ENDED]) {
            self.words[counter].store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn identity(&self) -> Identity {
        let pid = self.words[slot::PID].load(Ordering::Relaxed);
        Identity {
            pid: u32::try_from(pid & 0xffff_ffff).unwrap_or(0),
            namespace: u32::try_from(pid >> 32).unwrap_or(0),
            inode: self.words[slot::INODE].load(Ordering::Relaxed),
            start_ticks: self.words[slot::START_TICKS].load(Ordering::Relaxed),
        }
    }

    pub(crate) fn info(&self, index: u8) -> MemberInfo {
        let state = self.state();
        MemberInfo {
            member: Member { slot: index, epoch: state.epoch },
            phase: state.phase,
            identity: self.identity(),
            live_blocks: self.words[slot::BLOCKS_LIVE].load(Ordering::Relaxed),
            live_bytes: self.words[slot::BYTES_LIVE].load(Ordering::Relaxed),
            cached_bytes: self.words[slot::BYTES_CACHED].load(Ordering::Relaxed),
        }
    }
}

const _: () = assert!(MAX_MEMBERS < 64, "a member's bit must leave one bit of a word to spare");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_survives_its_word() {
        for phase in [Phase::Free, Phase::Admitting, Phase::Invited, Phase::Live, Phase::Dead] {
            let state = State { epoch: u32::MAX, author: 62, phase };
            assert_eq!(State::unpack(state.pack()), state);
        }
        assert_eq!(State::unpack(u64::MAX).phase, Phase::Free, "an unknown phase is nobody's");
    }
}
