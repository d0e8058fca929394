//! Tests of the process table, with a handler that takes notes.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::*;
use crate::service::LEFT_TO_OTHERS;
use crate::{Memory, ServiceHandler, Spin, deaths_seen, wait_any_until};

/// The members that were swept, one entry for each sweep, and how often there was a tick.
#[derive(Default)]
struct Notes(Mutex<Vec<Vec<Member>>>, AtomicU64);

impl ServiceHandler for Notes {
    fn sweep(&self, dead: &[Member]) -> bool {
        self.0.lock().unwrap().push(dead.to_vec());
        true
    }

    fn tick(&self) -> Option<Duration> {
        self.1.fetch_add(1, Ordering::SeqCst);
        None
    }

    fn is_held(&self, _name: u64) -> bool {
        false
    }
}

/// Puts a process into a free slot whose number is above any that Linux assigns.
fn nobody_in(domain: &Domain, slot: u8, author: Member, phase: Phase) {
    let entry = domain.slot(slot).unwrap();
    entry.set_identity(Identity { pid: 1 << 22, ..PidFd::of_self().unwrap().identity().unwrap() });
    let free = State { epoch: 0, author: 0, phase: Phase::Free };
    assert!(entry.change(free, State { epoch: 1, author: author.slot, phase }));
}

#[test]
fn what_a_leaver_could_not_finish_sweeping_is_swept_by_another() {
    let first = Domain::builder().create().unwrap();
    let admission = first.admit(&PidFd::of_self().unwrap()).unwrap();
    let second = Domain::join(first.as_fd().try_clone_to_owned().unwrap(), admission).unwrap();
    nobody_in(&first, 2, second.me(), Phase::Dead);

    let memory = Memory::over(Arc::clone(&first));
    let notes: Arc<dyn ServiceHandler> = Arc::new(Notes::default());
    memory.start_service(Arc::downgrade(&notes)).unwrap();
    first.sweep_dead();
    assert_eq!(first.sweeps(), 0, "it is being swept by a living member");
    drop(second);
    first.sweep_dead();
    assert_eq!(first.sweeps(), 1);
    assert_eq!(first.members().len(), 1);
    drop((memory, notes));
}

#[test]
fn a_dead_member_is_unswept_until_its_sweep_is_done() {
    let domain = Domain::builder().create().unwrap();
    let (me, dead) = (domain.me(), Member { slot: 2, epoch: 1 });
    let states = || [me, dead].map(|member| (domain.is_live(member), domain.is_unswept(member)));
    assert_eq!(states(), [(true, true), (false, false)]);
    nobody_in(&domain, dead.slot, me, Phase::Dead);
    assert_eq!(states(), [(true, true), (false, true)]);
    assert!(!domain.is_unswept(Member { epoch: 2, ..dead }));
    let _served = served(&domain);
    domain.sweep_dead();
    assert_eq!(states(), [(true, true), (false, false)]);
}

/// Starts a service whose handler notes the members that it sweeps.
fn served(domain: &Arc<Domain>) -> (Memory, Arc<Notes>, Arc<dyn ServiceHandler>) {
    let notes = Arc::new(Notes::default());
    let handler: Arc<dyn ServiceHandler> = Arc::<Notes>::clone(&notes);
    let memory = Memory::over(Arc::clone(domain));
    memory.start_service(Arc::downgrade(&handler)).unwrap();
    (memory, notes, handler)
}

#[test]
fn what_is_put_off_is_done_by_the_service_thread_until_it_is_done() {
    let domain = Domain::builder().create().unwrap();
    assert!(!domain.defer(|| panic!("there is no thread for it")));
    let _served = served(&domain);
    let (tell, told) = std::sync::mpsc::channel();
    let mut n_left = 3;
    assert!(domain.defer(move || {
        n_left -= 1;
        tell.send(std::thread::current().name().map(str::to_owned)).unwrap();
        n_left == 0
    }));
    for _ in 0..3 {
        domain.wake_service();
        let thread = told.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(thread.as_deref(), Some("tensorferry"));
    }
    // The work is dropped when it is done, and with it the sender.
    assert_eq!(
        told.recv_timeout(Duration::from_secs(60)),
        Err(std::sync::mpsc::RecvTimeoutError::Disconnected)
    );
}

#[test]
fn what_is_not_urgent_does_not_wait_until_the_service_thread_looks_around_by_itself() {
    let domain = Domain::builder().create().unwrap();
    let _served @ (_, notes, _) = &served(&domain);
    // By itself the thread has a turn twice a second, which would be too slow.
    let deadline = Instant::now() + Duration::from_secs(60);
    for _ in 0..130 {
        let before = notes.1.load(Ordering::SeqCst);
        domain.wake_service_soon();
        while notes.1.load(Ordering::SeqCst) == before {
            assert!(Instant::now() < deadline, "it has no turn soon");
            std::thread::yield_now();
        }
    }
}

#[test]
fn whoever_waits_for_deaths_is_woken_by_one() {
    if !tensorferry_os::futex::can_wait_any() {
        return;
    }
    let domain = Domain::builder().create().unwrap();
    let _served = served(&domain);
    let is_asleep = AtomicBool::new(false);
    let waited = std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let spin = Spin::default();
            spin.set_fixed(Some(Duration::ZERO));
            let look = || {
                is_asleep.store(true, Ordering::SeqCst);
                (domain.sweeps() > 0).then_some(())
            };
            let deadline = Instant::now() + Duration::from_secs(60);
            wait_any_until(&[deaths_seen()], &spin, Some(deadline), look)
        });
        while !is_asleep.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        nobody_in(&domain, 2, domain.me(), Phase::Live);
        domain.wake_service();
        waits.join().unwrap()
    });
    assert!(waited.is_ok(), "{waited:?}");
}

/// How many threads of this process serve domains.
fn n_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name == "tensorferry\n").count()
}

#[test]
fn the_thread_of_a_member_that_joined_starts_when_it_is_needed() {
    type Need = fn(&Memory);
    let needs: [Need; 5] = [
        |memory| memory.ensure_service_started(),
        |memory| memory.wake_service_if_idle(),
        |memory| memory.domain().wake_service(),
        |memory| memory.domain().wake_service_soon(),
        |_| {
            let word = std::sync::atomic::AtomicU32::new(0);
            let soon = Some(Instant::now() + Duration::from_micros(10));
            crate::WaitWord::new(&word).wait_until(&crate::Spin::default(), soon, || None::<()>).unwrap_err();
        },
    ];
    for need in needs {
        let first = Domain::builder().create().unwrap();
        let admission = first.admit(&PidFd::of_self().unwrap()).unwrap();
        let second = Domain::join(first.as_fd().try_clone_to_owned().unwrap(), admission).unwrap();
        let (memory, notes, _handler) = served(&second);
        // Whatever a thread of the other tests does, it has no ticks here.
        second.sweep_dead();
        assert_eq!(notes.1.load(Ordering::SeqCst), 0);
        need(&memory);
        let deadline = Instant::now() + Duration::from_secs(60);
        while notes.1.load(Ordering::SeqCst) == 0 {
            assert!(Instant::now() < deadline, "no thread");
            std::thread::yield_now();
        }
        assert!(n_threads() > 0);
    }
}

/// One past the last slot.
fn end() -> u8 {
    u8::try_from(MAX_MEMBERS).unwrap()
}

#[test]
fn the_dead_of_a_full_table_make_room_in_one_sweep() {
    let first = Domain::builder().create().unwrap();
    // Slot 1 was sweeping slot 2, which was sweeping slot 3, when both died. Slot 1 had admitted the next
    // ones.
    nobody_in(&first, 1, first.me(), Phase::Live);
    nobody_in(&first, 2, Member { slot: 1, epoch: 1 }, Phase::Dead);
    nobody_in(&first, 3, Member { slot: 2, epoch: 1 }, Phase::Dead);
    (4..20).for_each(|slot| nobody_in(&first, slot, Member { slot: 1, epoch: 1 }, Phase::Live));
    (20..end()).for_each(|slot| nobody_in(&first, slot, first.me(), Phase::Live));
    let myself = PidFd::of_self().unwrap();
    let full = first.admit(&myself).unwrap_err();
    assert!(matches!(full, DomainError::ProcessTableFull { slots: MAX_MEMBERS }), "{full}");

    let _served @ (_, notes, _) = &served(&first);
    first.admit(&myself).unwrap();
    let mut swept = notes.0.lock().unwrap().concat();
    swept.sort_by_key(|member| member.slot);
    let all: Vec<_> = (1..end()).map(|slot| Member { slot, epoch: 1 }).collect();
    assert_eq!(swept, all);
    assert_eq!(notes.0.lock().unwrap().len(), 1, "in one");
    assert_eq!(first.sweeps(), u64::from(end()) - 1);
}

#[test]
fn who_needs_room_looks_at_those_too_whom_others_have_admitted() {
    let first = Domain::builder().create().unwrap();
    let myself = PidFd::of_self().unwrap();
    let admissions = [(); 3].map(|()| first.admit(&myself).unwrap());
    // Two living neighbours, so that members after them are not watched from here.
    let _living = admissions
        .map(|admission| Domain::join(first.as_fd().try_clone_to_owned().unwrap(), admission).unwrap());
    // They hold no lock yet, so their locks do not show their death.
    (4..end()).for_each(|slot| nobody_in(&first, slot, Member { slot: 3, epoch: 1 }, Phase::Invited));
    let _served @ (_, notes, _) = &served(&first);
    first.sweep_dead();
    assert!(notes.0.lock().unwrap().is_empty(), "the one who has admitted them looks after them");
    first.admit(&myself).unwrap();
    assert_eq!(notes.0.lock().unwrap().concat().len(), usize::from(end()) - 4);
}

#[test]
fn a_death_far_away_is_seen_also_where_those_who_should_watch_do_not_look() {
    let first = Domain::builder().create().unwrap();
    let myself = PidFd::of_self().unwrap();
    let admissions = [(); 3].map(|()| first.admit(&myself).unwrap());
    // The admitter and the other predecessor of slot 4. Neither has a service.
    let _living = admissions
        .map(|admission| Domain::join(first.as_fd().try_clone_to_owned().unwrap(), admission).unwrap());
    nobody_in(&first, 4, Member { slot: 3, epoch: 1 }, Phase::Live);
    let _served @ (_, notes, _) = &served(&first);
    first.sweep_dead();
    assert_eq!(notes.0.lock().unwrap().concat(), [Member { slot: 4, epoch: 1 }]);
}

/// A handler that reaches nothing, and notes when it was called.
#[derive(Default)]
struct Helpless(Mutex<Vec<Instant>>);

impl ServiceHandler for Helpless {
    fn sweep(&self, _dead: &[Member]) -> bool {
        self.0.lock().unwrap().push(Instant::now());
        false
    }

    fn tick(&self) -> Option<Duration> {
        None
    }

    fn is_held(&self, _name: u64) -> bool {
        false
    }
}

#[test]
fn what_cannot_be_swept_from_here_is_left_to_others() {
    let first = Domain::builder().create().unwrap();
    let admission = first.admit(&PidFd::of_self().unwrap()).unwrap();
    let second = Domain::join(first.as_fd().try_clone_to_owned().unwrap(), admission).unwrap();
    let helpless = Arc::new(Helpless::default());
    let handler: Arc<dyn ServiceHandler> = Arc::<Helpless>::clone(&helpless);
    let memory = Memory::over(Arc::clone(&second));
    nobody_in(&first, 2, second.me(), Phase::Live);
    memory.start_service(Arc::downgrade(&handler)).unwrap();
    second.sweep_dead();
    assert!(!helpless.0.lock().unwrap().is_empty());
    let _served @ (_, notes, _) = &served(&first);
    let deadline = Instant::now() + Duration::from_secs(60);
    // The helpless member may be sweeping once more at this moment.
    while first.sweeps() == 0 {
        assert!(Instant::now() < deadline, "nobody else sweeps it");
        first.sweep_dead();
    }
    assert_eq!(notes.0.lock().unwrap().concat(), [Member { slot: 2, epoch: 1 }]);
    drop((memory, handler));
}

#[test]
fn what_could_not_be_swept_is_tried_again_when_others_have_had_the_time() {
    let first = Domain::builder().create().unwrap();
    let helpless = Arc::new(Helpless::default());
    let handler: Arc<dyn ServiceHandler> = Arc::<Helpless>::clone(&helpless);
    let memory = Memory::over(Arc::clone(&first));
    nobody_in(&first, 1, first.me(), Phase::Live);
    memory.start_service(Arc::downgrade(&handler)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let tries = loop {
        let tries = helpless.0.lock().unwrap().clone();
        if tries.len() > 1 {
            break tries;
        }
        assert!(Instant::now() < deadline, "it is not tried again");
        // As any other work wakes it.
        first.wake_service();
        std::thread::yield_now();
    };
    assert!(tries[1] - tries[0] >= LEFT_TO_OTHERS, "{:?}", tries[1] - tries[0]);
    drop((memory, handler));
}

#[test]
fn a_newcomer_of_another_namespace_that_never_joined_goes_with_its_admitter() {
    let first = Domain::builder().create().unwrap();
    nobody_in(&first, 1, first.me(), Phase::Live);
    for slot in [2, 3] {
        nobody_in(&first, slot, Member { slot: 1, epoch: 1 }, Phase::Invited);
    }
    // No process here can tell whether this one lives.
    let other = first.slot(2).unwrap();
    let identity = other.identity();
    other.set_identity(Identity { namespace: identity.namespace + 1, ..identity });
    let _served @ (_, notes, _) = &served(&first);
    first.sweep_dead();
    assert_eq!(first.members().len(), 1);
    let mut swept = notes.0.lock().unwrap().concat();
    swept.sort_by_key(|member| member.slot);
    assert_eq!(swept.iter().map(|member| member.slot).collect::<Vec<_>>(), [1, 3], "it held nothing");
}

#[test]
fn newcomers_that_have_not_joined_are_left_to_a_member_that_can_watch_them() {
    let first = Domain::builder().create().unwrap();
    let admission = first.admit(&PidFd::of_self().unwrap()).unwrap();
    let second = Domain::join(first.as_fd().try_clone_to_owned().unwrap(), admission).unwrap();
    for slot in [2, 3] {
        nobody_in(&first, slot, second.me(), Phase::Invited);
    }
    // No member is left in the namespace of this one.
    let other = first.slot(3).unwrap();
    let identity = other.identity();
    other.set_identity(Identity { namespace: identity.namespace + 1, ..identity });
    drop(second);
    let state = |slot| first.slot(slot).unwrap().state();
    assert_eq!((state(2).phase, state(2).author), (Phase::Invited, first.me().slot));
    assert_eq!(state(3).phase, Phase::Free);
}

#[test]
fn work_that_panics_does_not_end_the_service_thread() {
    let domain = Domain::builder().create().unwrap();
    let (_memory, _notes, _handler) = served(&domain);
    assert!(domain.defer(|| panic!("the work failed")));
    // What it has may panic when it is dropped, and so may what it panics with.
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("when it is dropped");
        }
    }
    let bomb = Bomb;
    assert!(domain.defer(move || size_of_val(&bomb) == 0));
    assert!(domain.defer(|| std::panic::panic_any(Bomb)));
    let (done, is_done) = std::sync::mpsc::channel();
    assert!(domain.defer(move || done.send(()).is_ok()));
    domain.wake_service();
    is_done.recv_timeout(Duration::from_secs(30)).unwrap();
    // In a later turn, too.
    let (done, is_done) = std::sync::mpsc::channel();
    assert!(domain.defer(move || done.send(()).is_ok()));
    domain.wake_service();
    is_done.recv_timeout(Duration::from_secs(30)).unwrap();
}

#[test]
fn who_joins_while_its_admitter_is_swept_is_not_refused() {
    for trial in 0..300 {
        let first = Domain::builder().address_space_bytes(64 << 20).create().unwrap();
        nobody_in(&first, 1, first.me(), Phase::Live);
        let admission = first.admit(&PidFd::of_self().unwrap()).unwrap();
        // As if the member in slot 1 had admitted it. Its death is not known yet.
        let entry = first.slot(admission.member().slot).unwrap();
        assert!(entry.change(entry.state(), State { author: 1, ..entry.state() }));
        let barrier = std::sync::Barrier::new(2);
        let fd = first.as_fd().try_clone_to_owned().unwrap();
        std::thread::scope(|scope| {
            let joining = scope.spawn(|| {
                barrier.wait();
                // At every moment of the sweep.
                let from = Instant::now() + Duration::from_micros(trial % 100 * 4);
                while Instant::now() < from {}
                Domain::join(fd, admission)
            });
            barrier.wait();
            let _served = served(&first);
            first.sweep_dead();
            assert!(joining.join().unwrap().is_ok());
        });
    }
}

#[test]
fn what_does_not_fit_is_no_burden_to_who_asks_beside_it() {
    const MIB: u64 = 1 << 20;
    let domain = Domain::builder().address_space_bytes(1 << 30).limit_bytes(256 * MIB).create().unwrap();
    let memory = Memory::over(domain);
    let _runs = [memory.claim_extents(1).unwrap(), memory.claim_extents(1).unwrap()];
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let greedy = scope.spawn(|| {
            while !is_done.load(Ordering::SeqCst) {
                memory.count_populated(0, 500 * MIB).unwrap_err();
            }
        });
        let refused = (0..20_000).filter(|_| match memory.count_populated(1, MIB) {
            Ok(()) => {
                memory.count_returned_to_system(1, MIB);
                false
            }
            Err(_) => true,
        });
        let n_refused = refused.count();
        is_done.store(true, Ordering::SeqCst);
        greedy.join().unwrap();
        assert_eq!(n_refused, 0, "of 20,000");
    });
}

#[test]
fn a_state_that_nobody_can_have_written_is_nobodys() {
    let first = Domain::builder().create().unwrap();
    let _served @ (_, notes, _) = &served(&first);
    let dead = State { epoch: 1, author: first.me().slot, phase: Phase::Dead };
    let word = &first.slot(1).unwrap().words[crate::layout::slot::STATE];
    word.store(dead.pack() | 1 << 20, Ordering::SeqCst);
    first.sweep_dead();
    assert!(notes.0.lock().unwrap().is_empty());
    assert_eq!(first.members().len(), 1);
    // A search for a free slot skips it.
    assert_eq!(first.admit(&PidFd::of_self().unwrap()).unwrap().member().slot, 2);
}

#[test]
fn who_has_been_declared_dead_sweeps_nobody() {
    let domain = Domain::builder().create().unwrap();
    let (_memory, notes, _handler) = served(&domain);
    let own = domain.slot(domain.me().slot).unwrap();
    let (live, gone) = (own.state(), State { phase: Phase::Free, ..own.state() });
    assert!(own.change(live, gone));
    // After this the service thread has seen it too, or has ended.
    domain.sweep_dead();
    // Stamped with the slot that belonged to this member.
    nobody_in(&domain, 2, domain.me(), Phase::Dead);
    domain.sweep_dead();
    domain.sweep_all_dead();
    assert!(notes.0.lock().unwrap().is_empty() && domain.sweeps() == 0);
    assert!(own.change(gone, live));
    domain.sweep_dead();
    assert_eq!(domain.sweeps(), 1);
}

#[test]
fn who_is_admitted_again_before_it_joins_has_one_slot() {
    let domain = Domain::builder().create().unwrap();
    let myself = PidFd::of_self().unwrap();
    let admission = domain.admit_once(&myself).unwrap();
    assert_eq!(domain.admit_once(&myself).unwrap(), admission);
    assert_eq!(domain.members().len(), 2);
    let _joined = Domain::join(domain.as_fd().try_clone_to_owned().unwrap(), admission).unwrap();
    // It was used.
    assert_ne!(domain.admit_once(&myself).unwrap().member(), admission.member());
    assert_eq!(domain.members().len(), 3);
}
