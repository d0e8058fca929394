//! A start that fails half-way, and the descriptors by which processes are watched.

use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Deserializer, Serialize};
use tensorferry::spawn::{StartErrorKind, StartMethod, func, get_context};
use tensorferry::{Heap, Queue, TensorMut};
use tensorferry_kit::Leftovers;
use tensorferry_os::socket::{Interest, wait_ready};
use tensorferry_process::{Failure, Inherited, Start};

use crate::support::{DEADLINE, Guest, Meeting, attend, for_every_method, for_every_program, told};

tensorferry_process::entry! {
    static CRAMPED = "test.cramped" => cramped;
}

#[func]
fn nothing(_rank: usize) {}

/// Keeps what a process has, until it is told to end.
#[func]
fn stay(_rank: usize, end: Queue<()>) {
    drop(end.get());
}

#[func]
fn take_tensor(_rank: usize, _tensor: TensorMut<u8>) {}

#[func]
fn meet(rank: usize, meeting: String) {
    attend(&meeting, rank);
}

/// Starts three processes with room for ever more descriptors, until it succeeds, and looks each time at what
/// is left. Tells which process could not be started.
fn cramped(inherited: &mut Inherited) -> Result<(), Failure> {
    let method = get_context(told(inherited).0);
    // What stays is there from here on: the domain, and what the first use of a library opens.
    method.spawn(nothing, (), 1)?;
    let heap = Heap::current()?;
    let end = Queue::new(3)?;
    let before = Leftovers::look();
    // The limit is one of numbers, and a few that are lower than the count may be free.
    let none = u64::try_from(before.n_descriptors())?.saturating_sub(8);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let mut failed_at = Vec::new();
    for room in 0..200 {
        let limit = none + room;
        let tensor = TensorMut::from_slice(&[7_u8; 100], [100])?;
        setrlimit(Resource::RLIMIT_NOFILE, limit, hard)?;
        let refused = method.start_processes(take_tensor, (tensor,), 1).err();
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?;
        heap.domain().sweep_dead();
        setrlimit(Resource::RLIMIT_NOFILE, limit, hard)?;
        let started = method.start_processes(stay, (end.clone(),), 3);
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?;
        if let Some(refused) = refused {
            assert!(
                refused.into_args().0.as_slice().iter().all(|&element| element == 7),
                "with room for {room} more"
            );
        }
        let mut is_enough = false;
        match started.map_err(|error| error.kind) {
            // A fork has this process's limit, and needs room for what is its own.
            Ok(mut context) => {
                (0..3).try_for_each(|_| end.put(()))?;
                is_enough = context.join().is_ok();
                // Who failed did not ask for it.
                while end.get_nowait().is_ok() {}
            }
            Err(StartErrorKind::Process { rank, .. }) => failed_at.push(rank),
            Err(StartErrorKind::Memory(_)) => {}
            Err(other) => return Err(other.into()),
        }
        if !is_enough {
            // At once, and not when somebody gets to it.
            assert_eq!(heap.domain().members().len(), 1, "with room for {room} more");
        }
        before.wait_nothing_more();
        if is_enough {
            assert!(failed_at.contains(&0) && failed_at.contains(&2), "{failed_at:?}");
            assert_eq!(method.spawn(nothing, (), 2)?.len(), 2, "all is well again");
            return Ok(());
        }
    }
    Err(Failure::Refused(format!("200 descriptors are not enough: {failed_at:?}")))
}

/// An argument that takes as long to read as the test wants.
#[derive(Serialize)]
struct Slow(String);

impl<'de> Deserialize<'de> for Slow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let meeting = String::deserialize(deserializer)?;
        attend(&meeting, 0);
        Ok(Self(meeting))
    }
}

#[func]
fn take_slowly(rank: usize, slow: Slow) -> Result<usize, String> {
    Ok(rank + slow.0.len())
}

for_every_method! {
    fn what_takes_time_in_a_new_process_happens_in_all_of_them_at_once(method: Context) {
        let meeting = Meeting::new();
        let context = method.start_processes(take_slowly, (Slow(meeting.name()),), 4).unwrap();
        // None is let go on before all have come.
        meeting.guests(4).iter().for_each(Guest::release);
        let len = meeting.name().len();
        assert_eq!(context.into_values().unwrap(), [len, len + 1, len + 2, len + 3]);
    }

    fn a_sentinel_is_readable_when_its_process_has_ended(method: Context) {
        let meeting = Meeting::new();
        let mut context = method.start_processes(meet, (meeting.name(),), 3).unwrap();
        let guests = meeting.guests(3);
        let ready = |timeout| {
            let sentinels: Vec<_> = context.sentinels().into_iter().map(|fd| (fd, Interest::Readable)).collect();
            wait_ready(&sentinels, Some(timeout)).unwrap()
        };
        assert_eq!(ready(Duration::ZERO), [false, false, false]);
        guests[1].release();
        assert_eq!(ready(DEADLINE), [false, true, false]);
        guests[0].release();
        guests[2].release();
        // One by one: waiting for several is over when the first is ready.
        for sentinel in context.sentinels() {
            assert_eq!(wait_ready(&[(sentinel, Interest::Readable)], Some(DEADLINE)).unwrap(), [true]);
        }
        assert!(context.join_timeout(DEADLINE).unwrap());
        assert_eq!(context.sentinels().len(), 3);
    }

    fn no_process_has_no_sentinel_and_ends_at_once(method: Context) {
        let mut context = method.start_processes(nothing, (), 0).unwrap();
        assert!(context.pids().is_empty() && context.sentinels().is_empty());
        assert!(context.join_timeout(Duration::ZERO).unwrap());
        assert!(context.into_values().unwrap().is_empty());
    }
}

for_every_program! {
    fn a_start_that_fails_half_way_leaves_nothing(method: StartMethod) {
        let mut child = Start::new(&CRAMPED).payload(format!("{method} ")).start().unwrap();
        let exit = child.wait_timeout(DEADLINE * 2).unwrap().expect("it did not end");
        assert!(exit.is_success(), "{exit:#}");
    }
}

/// The processors that the calling thread may run on.
fn own_cpus() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

#[func]
fn cpus(_rank: usize) -> Result<Vec<usize>, String> {
    Ok(own_cpus())
}

/// What a child may run on that a thread has started which runs on these processors.
fn cpus_of_child(of_thread: &[usize]) -> Vec<usize> {
    let mut set = CpuSet::new();
    of_thread.iter().for_each(|&cpu| set.set(cpu));
    let start = move || {
        sched_setaffinity(None, &set).unwrap();
        get_context(StartMethod::Spawn).spawn(cpus, (), 1).unwrap().remove(0)
    };
    std::thread::spawn(start).join().unwrap()
}

#[test]
fn a_child_has_the_affinity_of_the_thread_that_starts_it() {
    let all = own_cpus();
    let (first, last) = (&all[..1], &all[all.len() - 1..]);
    if first == last {
        println!("skipped in part: there is one processor");
    }
    for of_thread in [first, last, &all] {
        assert_eq!(cpus_of_child(of_thread), of_thread);
    }
}
