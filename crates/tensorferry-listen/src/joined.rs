//! The domains of which this process is a member: those that it has joined by connecting, among others.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tensorferry_domain::{Admission, DomainFds};
use tensorferry_storage::{Heap, StorageError};

use crate::Token;

/// The one of this process. Held while it joins, so that it does not join one domain twice.
static JOINED: Mutex<Joined> = Mutex::new(Joined { heaps: Vec::new(), served: Vec::new() });

/// Heaps beside the default one. A process stays a member until it ends.
#[derive(Debug)]
pub(crate) struct Joined {
    heaps: Vec<Heap>,
    /// Those to which this process lets others in, each as often as it does.
    served: Vec<Heap>,
}

impl Joined {
    pub(crate) fn lock() -> MutexGuard<'static, Self> {
        JOINED.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The domains of which this process is a member.
    pub(crate) fn ids(&self) -> Vec<u64> {
        self.members_of().map(|heap| heap.domain().id()).collect()
    }

    pub(crate) fn find(&self, domain_id: u64) -> Option<Heap> {
        self.members_of().find(|heap| heap.domain().id() == domain_id).cloned()
    }

    /// Those of the process that this one was forked from are none of its own.
    fn members_of(&self) -> impl Iterator<Item = &Heap> {
        let current = Heap::current_if_any();
        current
            .into_iter()
            .chain(&self.heaps)
            .chain(&self.served)
            .filter(|heap| heap.domain().is_owning_process())
    }

    /// Joins a domain, which becomes the default one if this process has none.
    pub(crate) fn join(&mut self, fds: DomainFds, admission: Admission) -> Result<Heap, StorageError> {
        let heap = Heap::attach(fds, admission)?;
        match heap.make_current() {
            Ok(()) => {}
            Err(StorageError::AlreadyJoined) => self.heaps.push(heap.clone()),
            Err(error) => return Err(error),
        }
        Ok(heap)
    }
}

/// Announces that this process is about to end in order, in each domain of which it is a member: as when it
/// had let go of everything, others are not told of a death. For a process that is about to end without
/// running the destructors of what it holds. A death that comes after this all the same is hidden.
pub fn announce_end() {
    Joined::lock().members_of().for_each(|heap| heap.domain().announce_end());
}

/// Whether the process that made this token has ended, or [announced](announce_end) that it will. Only a
/// member of its domain can tell: for others it is false.
#[must_use]
pub fn is_ending(token: Token) -> bool {
    let heap = Joined::lock().find(token.domain_id);
    heap.is_some_and(|heap| {
        let domain = heap.domain();
        !domain.is_live(token.member) || domain.has_announced_end(token.member)
    })
}

/// While this exists, a thread of this process that connects finds that it is a member of this domain
/// already, whatever the default domain is.
#[derive(Debug)]
pub(crate) struct Serving {
    heap: Heap,
}

impl Serving {
    pub(crate) fn domain_of(heap: &Heap) -> Self {
        Joined::lock().served.push(heap.clone());
        Self { heap: heap.clone() }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let mut joined = Joined::lock();
        let is_it =
            |heap: &Heap| heap.is_same_domain(&self.heap) && heap.domain().me() == self.heap.domain().me();
        let known = joined.served.iter().position(is_it).map(|at| joined.served.swap_remove(at));
        // Dropping the last handle on a domain takes a while, and nobody waits for it here.
        drop(joined);
        drop(known);
    }
}
