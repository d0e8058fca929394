//! A domain, the children in it, and the proof that nothing is left of them.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use tensorferry::domain::{Domain, DomainBuilder, Member};
use tensorferry::reduce::Parcel;
use tensorferry::storage::Heap;

use crate::task::{OPENED, Welcome};
use crate::{Audit, Child, Leftovers, Limit, Stepper, Task, until};

/// A domain that this process made, and from which it starts children.
#[derive(Debug)]
pub struct Family {
    heap: Heap,
}

/// Runs a test in a domain of 1 GiB of address space and 512 MiB of memory, and checks that nothing is left
/// of it.
#[track_caller]
pub fn with_family(body: impl FnOnce(&Family)) {
    with_family_of(Domain::builder().address_space_bytes(1 << 30).limit_bytes(512 << 20), body);
}

/// As [`with_family`], in a domain with these settings.
#[track_caller]
pub fn with_family_of(settings: DomainBuilder, body: impl FnOnce(&Family)) {
    alone(|| {
        let family = Family { heap: Heap::create(settings).unwrap() };
        body(&family);
        family.wait_alone();
        family.wait_no_blocks();
    });
}

/// Runs a test that makes its own domains, if any, and checks that nothing is left of it. One at a time,
/// because descriptors and mappings belong to the whole process.
#[track_caller]
pub fn alone(body: impl FnOnce()) {
    uncounted(|| {
        let before = Leftovers::look();
        body();
        before.wait_nothing_more();
    });
}

/// Does what leaves something in this process for good, while nobody counts.
#[track_caller]
pub fn uncounted(body: impl FnOnce()) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    body();
}

impl Family {
    /// The family of a child that starts children itself, in a domain that it joined.
    #[must_use]
    pub fn of(heap: &Heap) -> Self {
        Self { heap: heap.clone() }
    }

    /// The heap of the test process.
    #[must_use]
    pub fn heap(&self) -> &Heap {
        &self.heap
    }

    /// Starts a child and waits until it has its task.
    #[track_caller]
    pub fn start<T: Task>(&self, task: T) -> Child {
        self.start_limited(task, &[])
    }

    /// As [`Family::start`], with limits.
    #[track_caller]
    pub fn start_limited<T: Task>(&self, task: T, limits: &[(Limit, u64)]) -> Child {
        self.start_with(task, limits, &[])
    }

    /// As [`Family::start_limited`], with these variables in the child's environment.
    #[track_caller]
    pub fn start_with<T: Task>(
        &self,
        task: T,
        limits: &[(Limit, u64)],
        variables: &[(&str, &OsStr)],
    ) -> Child {
        let mut child = Child::start_with(T::NAME, variables);
        let _parcel = self.invite(&mut child, &task, limits, false);
        child.expect(OPENED);
        child
    }

    /// Starts a child under control of the calling thread, up to where it is about to join. Its arguments are
    /// in the parcel; it says `opened` when it has them.
    ///
    /// # Errors
    /// EPERM where this process may not trace its children.
    #[track_caller]
    pub fn start_halted<T: Task>(&self, task: T) -> Result<(Child, Parcel, Stepper), Errno> {
        let mut child = Child::start(T::NAME);
        let stepper = Stepper::seize(&child)?;
        let parcel = self.invite(&mut child, &task, &[], true);
        stepper.wait_until_halted();
        Ok((child, parcel, stepper))
    }

    fn invite<T: Task>(&self, child: &mut Child, task: &T, limits: &[(Limit, u64)], halts: bool) -> Parcel {
        let domain = self.heap.domain();
        let admission = domain.admit(child.pidfd()).unwrap();
        child.member = Some(admission.member());
        let parcel = Parcel::pack(&self.heap, task).unwrap();
        let membership = Some((admission, parcel.id()));
        let fds: Vec<OwnedFd> = domain.fds().unwrap().into_message().collect();
        child.welcome(
            &Welcome { limits: limits.to_vec(), membership, halts },
            &fds.iter().map(AsFd::as_fd).collect::<Vec<_>>(),
        );
        parcel
    }

    /// The members of the domain at this moment.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        self.heap.domain().members().iter().map(|info| info.member).collect()
    }

    /// Waits until this process is the only member.
    #[track_caller]
    pub fn wait_alone(&self) {
        until("every other member is gone and swept", || self.members() == [self.heap.domain().me()]);
    }

    /// Waits until the domain has so many members.
    #[track_caller]
    pub fn wait_members(&self, n_members: usize) {
        until("the dead are swept", || self.members().len() == n_members);
    }

    /// Waits until so many blocks are held by anybody, rings and messages included.
    #[track_caller]
    pub fn wait_blocks(&self, n_blocks: usize) {
        let mut audit = None;
        let settled = || {
            self.heap.collect();
            let now = Audit::of(self.heap.domain());
            let done = now.live().len() == n_blocks;
            audit = Some(now);
            done
        };
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until("memory comes back", settled);
        }));
        assert!(
            outcome.is_ok(),
            "{n_blocks} blocks should be held, these are: {:#?}",
            audit.map(Audit::into_live)
        );
    }

    /// Waits until no block of the domain is held by anybody, and until this process's own count says the
    /// same.
    #[track_caller]
    pub fn wait_no_blocks(&self) {
        self.wait_blocks(0);
        self.wait_own_blocks(0);
        let stats = self.heap.stats();
        assert_eq!((stats.own.live_bytes, stats.messages_pinned), (0, 0), "{stats:?}");
    }

    /// Waits until this process counts so many blocks of its own that somebody holds.
    #[track_caller]
    pub fn wait_own_blocks(&self, n_blocks: u64) {
        until("the owner learns what came back", || {
            self.heap.collect();
            self.heap.stats().own.live_blocks == n_blocks
        });
    }
}
