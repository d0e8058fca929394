//! Attachments: which members may put into a ring, and which may take from it.
//!
//! A ring has one word of member bits for each role. The bits follow the rules of holder bits: a receiver
//! sets its bit before it frees the message that granted the role, the sender keeps its own until then, and a
//! sweep turns the bit of a dead member into SUSPECT. So a message in flight keeps its role alive, and no
//! process sees a ring without senders while the last sender is in flight.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::block::Block;
use crate::header::SUSPECT;
use crate::heap::Heap;
use crate::reference::Role;
use crate::ring_layout::RingWords;

/// How often this process is attached to each ring in each role.
#[derive(Debug, Default)]
pub(crate) struct Attachments {
    counts: Mutex<HashMap<usize, RoleCounts>>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoleCounts {
    pub(crate) sends: usize,
    pub(crate) receives: usize,
    /// Of these, how many are in flight to another process.
    sends_in_transit: usize,
    receives_in_transit: usize,
}

/// A ring that this process holds, together with a role in it.
#[derive(Debug)]
pub struct Attachment {
    block: Block,
    role: Role,
    in_transit: bool,
}

impl Attachment {
    /// Attaches this process to the ring in this role. The block holds a ring.
    pub(crate) fn new(block: Block, role: Role) -> Self {
        Self::attach(block, role, false)
    }

    fn attach(block: Block, role: Role, in_transit: bool) -> Self {
        {
            let heap = block.heap();
            let mut counts = heap.inner().attachments.lock();
            let counts = counts.entry(block.header_offset_bytes()).or_default();
            let bit = heap.me().bit();
            if heap.is_owning_process()
                && let Some(ring) = RingWords::of(&block)
            {
                if role.sends && counts.sends == 0 {
                    ring.senders().fetch_or(bit, Ordering::SeqCst);
                }
                if role.receives && counts.receives == 0 {
                    ring.receivers().fetch_or(bit, Ordering::SeqCst);
                }
            }
            counts.sends += usize::from(role.sends);
            counts.receives += usize::from(role.receives);
            counts.sends_in_transit += usize::from(role.sends && in_transit);
            counts.receives_in_transit += usize::from(role.receives && in_transit);
        }
        Self { block, role, in_transit }
    }

    /// The same attachment, kept for a message until its receiver is attached.
    pub(crate) fn in_transit(&self) -> Self {
        Self::attach(self.block.clone(), self.role, true)
    }

    /// The role that this process keeps for the receivers of messages in flight.
    pub(crate) fn role_in_transit(&self) -> Role {
        let all = self.block.heap().inner().attachments.lock();
        let counts = all.get(&self.block.header_offset_bytes()).copied().unwrap_or_default();
        Role { sends: counts.sends_in_transit > 0, receives: counts.receives_in_transit > 0 }
    }

    /// The same ring in another role.
    #[must_use]
    pub fn with_role(&self, role: Role) -> Self {
        Self::new(self.block.clone(), role)
    }

    /// The role.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    pub(crate) fn block(&self) -> &Block {
        &self.block
    }
}

impl Clone for Attachment {
    fn clone(&self) -> Self {
        Self::new(self.block.clone(), self.role)
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let heap = self.block.heap();
        if !heap.is_owning_process() {
            return;
        }
        let at = self.block.header_offset_bytes();
        let inner = heap.inner();
        // After a death the roles may carry SUSPECT, even if they do not seem to now.
        let announced = (inner.memory.suspicions() > 0).then(|| inner.scan_requests.announce(&inner.memory));
        let mut all = inner.attachments.lock();
        let Some(counts) = all.get_mut(&at) else { return };
        counts.sends -= usize::from(self.role.sends);
        counts.receives -= usize::from(self.role.receives);
        counts.sends_in_transit -= usize::from(self.role.sends && self.in_transit);
        counts.receives_in_transit -= usize::from(self.role.receives && self.in_transit);
        let ring = RingWords::of(&self.block);
        let bit = heap.me().bit();
        let mut left_by_the_dead = false;
        if let Some(ring) = &ring {
            if self.role.sends && counts.sends == 0 {
                ring.senders_gone().fetch_add(1, Ordering::SeqCst);
                ring.senders().fetch_and(!bit, Ordering::SeqCst);
            }
            if self.role.receives && counts.receives == 0 {
                ring.receivers_gone().fetch_add(1, Ordering::SeqCst);
                ring.receivers().fetch_and(!bit, Ordering::SeqCst);
            }
            let roles = ring.senders().load(Ordering::SeqCst) | ring.receivers().load(Ordering::SeqCst);
            // Nobody takes messages of the dead any more, and only a scan discards them. If nothing is
            // suspect even now, they name nothing, or the scan after the next death sees that there is no
            // receiver.
            let are_lost = inner.memory.may_have_suspects()
                && ring.receivers().load(Ordering::SeqCst) == 0
                && self.role.receives
                && ring.has_messages();
            left_by_the_dead = roles & SUSPECT != 0 || are_lost;
        }
        if counts.sends == 0 && counts.receives == 0 {
            all.remove(&at);
        }
        drop(all);
        if left_by_the_dead {
            // This handle may have come from a message of the dead. Nothing else would then ask for a scan,
            // because the ring itself may be held for long.
            inner.ask_for_scan();
        }
        drop(announced);
        // Wakes processes that wait for the other side, so that they look again.
        if let Some(ring) = ring {
            ring.not_empty().wake();
            ring.not_full().wake();
        }
    }
}

impl Attachments {
    /// Takes a mark off a word of roles while this member has its own bit there. `clear` may have to put the
    /// mark back. In between, the word must not look as if the last end were gone.
    pub(crate) fn clear_mark(
        &self,
        heap: &Heap,
        at: usize,
        word: &AtomicU64,
        is_attached: impl FnOnce(&RoleCounts) -> bool,
        clear: impl FnOnce() -> bool,
    ) -> bool {
        // Nobody of this process attaches or detaches meanwhile. If this process is killed here, its bit is
        // swept.
        let all = self.lock();
        let bit = heap.me().bit();
        word.fetch_or(bit, Ordering::SeqCst);
        let is_clear = clear();
        if !all.get(&at).is_some_and(is_attached) {
            word.fetch_and(!bit, Ordering::SeqCst);
        }
        is_clear
    }

    /// In a process that was forked: attaches it to every ring of which it has a copied end, in the same
    /// roles.
    pub(crate) fn attach_all(&self, heap: &Heap) {
        let bit = heap.me().bit();
        for (&at, counts) in &*self.lock() {
            let Some(block) = heap.another_handle(at) else { continue };
            if let Some(ring) = RingWords::of(&block) {
                if counts.sends > 0 {
                    ring.senders().fetch_or(bit, Ordering::SeqCst);
                }
                if counts.receives > 0 {
                    ring.receivers().fetch_or(bit, Ordering::SeqCst);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, RoleCounts>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
