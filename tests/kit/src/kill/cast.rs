//! Everybody but the one who is killed: the test process, which has a queue, and a peer. And what both must
//! find afterwards.

use std::time::Duration;

use tensorferry::queue::{GetError, Queue};
use tensorferry::sync::{BrokenBy, LastOwner, LockError, WaitError};
use tensorferry::tensor::TensorMut;
use tensorferry_domain::ExtentOwner;

use super::subject::{SPILLED_LEN_BYTES, SUBJECT};
use super::{Operation, Subject};
use crate::leftovers::{n_descriptors_of, n_pidfds_of};
use crate::tasks::{Primitives, Puppet};
use crate::{Child, DEADLINE, Family, Item, assert_all_slots_work, until};

/// What the peer calls itself in its items.
const PEER: u32 = 2;
/// What the test process calls itself in its items.
const DIRECTOR: u32 = 3;

/// The members that stay.
pub(super) struct Cast<'a> {
    pub(super) family: &'a Family,
    queue: Queue<Item>,
    exclusive: Option<Queue<TensorMut<u64>>>,
    primitives: Option<Primitives>,
    peer: Child,
    /// Of this process and of the peer, before anybody else came.
    n_descriptors: [usize; 2],
}

/// Whether a message has to be in the queue after the death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Must,
    May,
    MustNot,
}

impl<'a> Cast<'a> {
    pub(super) fn new(family: &'a Family, operation: Operation) -> Self {
        let heap = family.heap();
        let queue =
            if operation.leases() { Queue::with_leases_in(heap, 4, 2) } else { Queue::new_in(heap, 4) };
        let queue = queue.unwrap();
        let exclusive = operation.is_exclusive().then(|| Queue::new_in(heap, 4).unwrap());
        let primitives = operation.synchronizes().then(|| Primitives::create(heap));
        let peer = family.start(Puppet { queue: Some(queue.clone()), ..Puppet::default() });
        let pids = [std::process::id(), peer.pid()];
        // Each of the two comes to watch the other; only then is there something to compare with.
        until("the peer is watched", || n_pidfds_of(pids[0]) == 2);
        until("the peer watches", || n_pidfds_of(pids[1]) == 1);
        let n_descriptors = pids.map(n_descriptors_of);
        Self { family, queue, exclusive, primitives, peer, n_descriptors }
    }

    pub(super) fn subject(&self, operation: Operation) -> Subject {
        Subject {
            operation,
            queue: self.queue.clone(),
            exclusive: self.exclusive.clone(),
            primitives: self.primitives.clone(),
        }
    }

    /// What the others do before a child comes. It gets this before it is warm, and then it knows the peer's
    /// memory.
    pub(super) fn greet(&self, operation: Operation) {
        if !operation.is_first_use() {
            assert_eq!(self.peer.ask("put 2 9 2 3"), "put");
        }
    }

    /// What the others do before a child that is warm gets ready. Returns what the child is told.
    pub(super) fn set(&self, operation: Operation, child: &Child) -> String {
        match operation {
            Operation::Get
            | Operation::GetStandingStill
            | Operation::DropOthers
            | Operation::Lease
            | Operation::Ack
            | Operation::GiveBack => {
                assert_eq!(self.peer.ask("put 2 0 2 3"), "put");
            }
            Operation::LeaseAgain => {
                assert_eq!(self.peer.ask("put 2 0 2 3"), "put");
                self.queue.get_leased().unwrap().give_back();
            }
            Operation::GetExclusive => {
                for sequence in 0..2 {
                    let mut tensor = TensorMut::empty_in(self.family.heap(), [2]).unwrap();
                    tensor.as_mut_slice().copy_from_slice(&[DIRECTOR.into(), sequence]);
                    self.exclusive.as_ref().unwrap().put(tensor).unwrap();
                }
            }
            Operation::GetSpilled => {
                assert_eq!(self.peer.ask("make 2 0 2 3"), "made");
                assert_eq!(self.peer.ask(&format!("note {SPILLED_LEN_BYTES}")), "noted");
                assert_eq!(self.peer.ask("pass"), "put");
            }
            Operation::GetBundle | Operation::DropBundle => {
                assert_eq!(self.peer.ask("make 2 0 2 3"), "made");
                assert_eq!(self.peer.ask("bundle"), "bundled");
                assert_eq!(self.peer.ask("pass"), "put");
            }
            Operation::DropOrphans => {
                let queue = Some(self.queue.clone());
                let owner = self.family.start(Puppet { queue, ..Puppet::default() });
                assert_eq!(owner.ask("put 2 0 2 3"), "put");
                owner.kill();
                until("the owner is swept", || self.family.members().len() == 3);
            }
            Operation::AllocateAdopting => {
                let owner = self.family.start(Puppet::default());
                assert_eq!(owner.ask("try_make 2"), "made");
                owner.kill();
                until("the owner is swept", || self.family.members().len() == 3);
            }
            Operation::PutToSleeper => {
                self.peer.begin("get");
                self.peer.wait_until_asleep();
            }
            _ => {}
        }
        if operation.gets() {
            assert_eq!(self.peer.ask("put 2 1 2"), "put");
        }
        if operation == Operation::LeaveDomain {
            let admission = self.family.heap().domain().admit(child.pidfd()).unwrap();
            return serde_json::to_string(&admission).unwrap();
        }
        "set".to_owned()
    }

    /// The child is ready: the peer does nothing from here on, so that all that changes is the child's doing.
    pub(super) fn freeze(&self, operation: Operation) {
        if operation.needs_others_blocks() {
            // The sender lets go of what was taken.
            let _ = self.peer.ask("live");
        }
        self.peer.stop();
    }

    pub(super) fn unfreeze(&self) {
        self.peer.go_on();
    }

    /// While the child stands still: the others take what is there and look after all memory. Returns how
    /// many messages they took.
    pub(super) fn go_on_meanwhile(&self) -> usize {
        self.unfreeze();
        let _ = self.peer.ask("live");
        let taken = self.drain();
        assert!(taken.contains(&(PEER, 1)), "{taken:?}");
        let _ = self.peer.ask("live");
        self.family.heap().collect();
        taken.len()
    }

    /// After the death: nothing is lost, doubled or left, and everything works.
    pub(super) fn check_death(&self, operation: Operation, done: bool) {
        until("the dead one is swept", || self.family.members().len() == 2);
        if operation == Operation::PutToSleeper {
            self.check_sleeper(done);
        }
        check_came(&self.drain(), &expected(operation, done));
        check_came(&self.drain_exclusive(), &expected_exclusive(operation, done));
        if let Some(primitives) = &self.primitives {
            check_primitives(primitives, operation, done);
        }
        self.check_rest();
    }

    /// After the end of a child that stood still and went on.
    pub(super) fn check_end(&self) {
        until("the child is swept", || self.family.members().len() == 2);
        check_came(&self.drain(), &[]);
        self.check_rest();
    }

    /// A newcomer has to find a domain like any other.
    fn check_rest(&self) {
        assert_all_slots_work(self.family, &self.queue);
        self.check_memory();
        let newcomer = self.family.start(Puppet { queue: Some(self.queue.clone()), ..Puppet::default() });
        assert_eq!(newcomer.ask("put 4 0 2 3"), "put");
        assert_eq!(self.peer.ask("get"), "got 4/0");
        assert_eq!(self.peer.ask("let_go"), "let go");
        newcomer.finish();
        until("the newcomer is swept", || self.family.members().len() == 2);
        self.check_memory();
        for (pid, n_before) in [std::process::id(), self.peer.pid()].into_iter().zip(self.n_descriptors) {
            until("descriptors are closed", || n_descriptors_of(pid) <= n_before);
        }
    }

    /// Ends the peer.
    pub(super) fn leave(self) {
        self.peer.finish();
    }

    /// The one who slept has what was put, if it was; nobody else needs to wake it.
    fn check_sleeper(&self, done: bool) {
        if done || !self.queue.is_empty() {
            assert_eq!(self.peer.hear(), "got 1/2");
        } else {
            self.queue.put(Item::new(self.family.heap(), DIRECTOR, 0, &[])).unwrap();
            let got = self.peer.hear();
            assert!(["got 1/2", "got 3/0"].contains(&got.as_str()), "{got}");
        }
        assert_eq!(self.peer.ask("let_go"), "let go");
    }

    fn drain(&self) -> Vec<(u32, u64)> {
        let mut came = Vec::new();
        loop {
            match self.queue.get_nowait() {
                Ok(item) => {
                    item.check();
                    came.push((item.sender, item.sequence));
                }
                Err(GetError::Empty) => return came,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// What comes is this process's alone: it is written to.
    fn drain_exclusive(&self) -> Vec<(u32, u64)> {
        let mut came = Vec::new();
        let Some(queue) = &self.exclusive else { return came };
        let mut told = false;
        loop {
            match queue.get_nowait() {
                Ok(mut tensor) => {
                    let words = tensor.as_mut_slice();
                    came.push((u32::try_from(words[0]).unwrap(), words[1]));
                    words.fill(0);
                }
                Err(GetError::Empty) => break,
                // Nobody else has this queue.
                Err(GetError::PeerDied) if !told => told = true,
                Err(error) => panic!("{error}"),
            }
        }
        // More than once through each slot.
        for number in 0..6 {
            queue.put_nowait(TensorMut::full_in(self.family.heap(), [2], number).unwrap()).unwrap();
            assert_eq!(queue.get_nowait().unwrap().as_slice(), [number; 2]);
        }
        came
    }

    fn check_memory(&self) {
        until("the peer has its memory back", || self.peer.ask("live") == "0");
        // The rings alone, and locks and the like.
        let n_rings = 1 + usize::from(self.exclusive.is_some());
        let n_blocks = n_rings + self.primitives.as_ref().map_or(0, |_| Primitives::N_BLOCKS);
        self.family.wait_blocks(n_blocks);
        self.family.wait_own_blocks(n_blocks as u64);
        let domain = self.family.heap().domain();
        let members = self.family.members();
        for extent in 0..domain.extents_high_water() {
            let owner = domain.extent_owner(extent);
            let is_dead = matches!(owner, ExtentOwner::Member(member) if !members.contains(&member));
            assert!(!is_dead, "extent {extent} belongs to {owner:?}");
        }
    }
}

/// Nothing is taken, and whoever has to know of the death is told.
fn check_primitives(primitives: &Primitives, operation: Operation, done: bool) {
    let may_be_told = |is_it: bool| is_it && !done;
    match primitives.lock.lock_timeout(DEADLINE) {
        Ok(_) => {}
        Err(LockError::Poisoned { mut guard, last_owner: LastOwner::Died })
            if may_be_told(operation == Operation::Lock) =>
        {
            guard.clear_poison();
        }
        Err(error) => panic!("{error}"),
    }
    drop(primitives.lock.try_lock().unwrap());
    let n_added = primitives.count.get();
    assert!(
        if done { n_added == u64::from(operation == Operation::Lock) } else { n_added <= 1 },
        "{n_added}"
    );
    match primitives.rw_lock.write_timeout(DEADLINE) {
        Ok(_) => {}
        Err(LockError::Poisoned { mut guard, last_owner: LastOwner::Died })
            if may_be_told(operation == Operation::Write) =>
        {
            guard.clear_poison();
        }
        Err(error) => panic!("{error}"),
    }
    drop(primitives.rw_lock.try_write().unwrap());
    drop([(); 2].map(|()| primitives.semaphore.acquire_timeout(DEADLINE).unwrap()));
    assert_eq!(primitives.semaphore.available_permits(), 2);
    assert!(matches!(primitives.event.wait_timeout(DEADLINE), Err(WaitError::PeerDied)));
    assert!(matches!(primitives.event.wait_timeout(Duration::ZERO), Err(WaitError::TimedOut)));
    assert_eq!(primitives.barrier.broken_by(), Some(BrokenBy::Death));
}

fn expected(operation: Operation, done: bool) -> Vec<((u32, u64), Presence)> {
    let by_then = if done { Presence::Must } else { Presence::May };
    match operation {
        Operation::Put | Operation::PutSpilled | Operation::PutBundle => {
            vec![((SUBJECT, 1), Presence::Must), ((SUBJECT, 2), by_then)]
        }
        Operation::PutToSleeper => vec![((DIRECTOR, 0), Presence::May)],
        Operation::Lease | Operation::LeaseAgain | Operation::GiveBack => {
            // Whatever its taker did but acknowledge it: it comes again, and first.
            vec![((PEER, 0), Presence::Must), ((PEER, 1), Presence::Must)]
        }
        _ if operation.gets() => {
            // It dies with its taker, or it is still there; it is never both.
            let first = if done { Presence::MustNot } else { Presence::May };
            vec![((PEER, 0), first), ((PEER, 1), Presence::Must)]
        }
        _ if operation.is_first_use() => Vec::new(),
        _ => vec![((SUBJECT, 1), Presence::Must)],
    }
}

fn expected_exclusive(operation: Operation, done: bool) -> Vec<((u32, u64), Presence)> {
    match operation {
        Operation::PutExclusive => vec![((SUBJECT, 2), if done { Presence::Must } else { Presence::May })],
        Operation::GetExclusive => {
            let first = if done { Presence::MustNot } else { Presence::May };
            vec![((DIRECTOR, 0), first), ((DIRECTOR, 1), Presence::Must)]
        }
        _ => Vec::new(),
    }
}

fn check_came(came: &[(u32, u64)], expected: &[((u32, u64), Presence)]) {
    let mut rest = came.iter().peekable();
    for (message, presence) in expected {
        let is_owner = rest.next_if_eq(&message).is_some();
        let is_right = match presence {
            Presence::Must => is_owner,
            Presence::May => true,
            Presence::MustNot => !is_owner,
        };
        assert!(is_right, "{came:?} came, expected {expected:?}");
    }
    assert!(rest.next().is_none(), "{came:?} came, expected {expected:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_may_be_missing_is_no_excuse_for_another() {
        let expected = [((1, 1), Presence::Must), ((1, 2), Presence::May), ((1, 3), Presence::MustNot)];
        check_came(&[(1, 1)], &expected);
        check_came(&[(1, 1), (1, 2)], &expected);
        for wrong in [&[][..], &[(1, 2)], &[(1, 2), (1, 1)], &[(1, 1), (1, 1)], &[(1, 1), (1, 3)]] {
            let outcome = std::panic::catch_unwind(|| check_came(wrong, &expected));
            assert!(outcome.is_err(), "{wrong:?}");
        }
    }
}
