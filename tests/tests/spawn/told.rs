//! Who waits on a queue for processes that it started is told when they are gone, without joining them
//! meanwhile.

use std::sync::OnceLock;
use std::time::Duration;

use tensorferry::domain::Phase;
use tensorferry::queue::{GetError, PutErrorKind, Receiver, Sender, channel};
use tensorferry::spawn::{SpawnError, func};
use tensorferry::{Queue, Tensor, TensorMut};
use tensorferry_kit::until;

use crate::support::{DEADLINE, Meeting, attend, for_every_method};

/// Puts one tensor and fails, one way or another.
#[func]
fn put_and_fail(rank: usize, results: Queue<Tensor<u8>>) -> Result<(), String> {
    let tensor = TensorMut::zeros([100]).map_err(|e| e.to_string())?.freeze();
    results.put(tensor).map_err(|e| e.to_string())?;
    match rank {
        0 => panic!("on purpose"),
        1 => Err("on purpose".to_owned()),
        _ => std::process::abort(),
    }
}

#[func]
fn send_one(_: usize, to: Sender<u8>) -> Result<(), String> {
    to.put(1).map_err(|e| e.to_string())
}

/// Holds the receiving end and never receives.
#[func]
fn hold(rank: usize, _from: Receiver<Vec<u8>>, meeting: String) -> Result<(), String> {
    attend(&meeting, rank);
    Err("full".to_owned())
}

#[func]
fn never_opens(_: usize, _: Sender<u8>, _: crate::functions::OneWay) {}

/// Gets one job and panics, returns an error, or returns.
#[func]
fn get_and_end(rank: usize, jobs: Queue<u8>, results: Queue<u8>) -> Result<(), String> {
    let job = jobs.get().map_err(|e| e.to_string())?;
    results.put(job).map_err(|e| e.to_string())?;
    match rank {
        0 => panic!("on purpose"),
        1 => Err("on purpose".to_owned()),
        _ => Ok(()),
    }
}

/// Gives back the end that it was given.
#[func]
fn give_back(_: usize, to: Sender<u8>) -> Result<Sender<u8>, String> {
    Ok(to)
}

/// Ends with an end that it never drops.
#[func]
fn keep(_: usize, to: Sender<u8>) {
    static KEPT: OnceLock<Sender<u8>> = OnceLock::new();
    assert!(KEPT.set(to).is_ok());
}

/// Sends its own end on.
#[func]
fn send_on(_: usize, to: Sender<u8>, via: Sender<Sender<u8>>) -> Result<(), String> {
    via.put(to).map_err(|e| e.to_string())
}

#[func]
fn close_to(_: usize, _from: Receiver<Vec<u8>>) {}

for_every_method! {
    fn workers_that_fail_are_missed_by_who_waits_for_their_results(method: Context) {
        let results = Queue::new(8).unwrap();
        let mut workers = method.start_processes(put_and_fail, (results.clone(),), 3).unwrap();
        let mut n_results = 0;
        let end = loop {
            match results.get_timeout(DEADLINE) {
                Ok(tensor) => n_results += tensor.n_elements() / 100,
                Err(end) => break end,
            }
        };
        assert!(matches!(end, GetError::PeerDied), "{end}");
        assert_eq!(n_results, 3, "what they had put before comes first");
        workers.set_grace_period(DEADLINE);
        let Err(SpawnError::Failed(errors)) = workers.join() else { panic!("they failed") };
        assert_eq!(errors.failures().len(), 3);
    }

    /// Everybody has both ends here, the parent included, and nobody is killed.
    fn workers_that_let_go_in_order_are_missed_too_by_who_could_put_and_get_himself(method: Context) {
        let (jobs, results) = (Queue::new(1).unwrap(), Queue::new(8).unwrap());
        let mut workers = method.start_processes(get_and_end, (jobs.clone(), results.clone()), 3).unwrap();
        for job in 0..3 {
            jobs.put(job).unwrap();
        }
        let mut n_results = 0;
        let end = loop {
            match results.get_timeout(DEADLINE) {
                Ok(_) => n_results += 1,
                Err(end) => break end,
            }
        };
        assert!(matches!(end, GetError::Disconnected), "{end}");
        assert_eq!(n_results, 3);
        jobs.put(3).unwrap();
        let refused = jobs.put_timeout(4, DEADLINE).unwrap_err();
        assert!(matches!(refused.kind, PutErrorKind::Disconnected), "{refused}");
        // Told once: from here on it is this process's own queue.
        assert!(jobs.put_nowait(4).unwrap_err().is_full());
        assert_eq!(jobs.get().unwrap(), 3);
        workers.set_grace_period(DEADLINE);
        assert!(workers.join().is_err());
    }

    fn after_join_nobody_puts_to_the_dead_and_their_places_are_free(method: Context) {
        let mut rounds = 0;
        until("three families were swept by nobody else", || {
            let (to, from) = channel(4).unwrap();
            let mut workers = method.start_processes(close_to, (from,), 2).unwrap();
            workers.join().unwrap();
            let pids = workers.pids();
            let mut members = tensorferry::Heap::current().unwrap().domain().members();
            members.retain(|member| pids.contains(&member.identity.pid));
            // The process that started this one is a member of this domain too. It may have been the first to
            // notice, and may still be at it: then this round does not count.
            if members.is_empty()
                && let Err(refused) = to.put_nowait(vec![1])
            {
                assert!(matches!(refused.kind, PutErrorKind::Disconnected), "{refused}");
                rounds += 1;
            }
            assert!(members.iter().all(|member| member.phase == Phase::Dead), "{members:?}");
            rounds == 3
        });
    }

    fn workers_that_end_well_close_their_side(method: Context) {
        let (to, from) = channel(8).unwrap();
        let mut workers = method.start_processes(send_one, (to,), 2).unwrap();
        assert_eq!((from.get_timeout(DEADLINE).unwrap(), from.get_timeout(DEADLINE).unwrap()), (1, 1));
        let end = from.get_timeout(DEADLINE).unwrap_err();
        assert!(matches!(end, GetError::Disconnected), "{end}");
        workers.join().unwrap();
    }

    fn what_a_process_that_ended_in_order_still_had_is_no_death(method: Context) {
        let (to, from) = channel(1).unwrap();
        method.start_processes(keep, (to,), 1).unwrap().join().unwrap();
        let end = from.get_timeout(DEADLINE).unwrap_err();
        assert!(matches!(end, GetError::Disconnected), "{end}");

        let (to, from) = channel(1).unwrap();
        let came_back = method.spawn(give_back, (to,), 1).unwrap();
        drop(came_back);
        let end = from.get_timeout(DEADLINE).unwrap_err();
        assert!(matches!(end, GetError::Disconnected), "{end}");

        let (to, from) = channel(1).unwrap();
        let (via, passed) = channel(1).unwrap();
        method.start_processes(send_on, (to, via), 1).unwrap().join().unwrap();
        drop(passed.get_timeout(DEADLINE).unwrap());
        let end = from.get_timeout(DEADLINE).unwrap_err();
        assert!(matches!(end, GetError::Disconnected), "{end}");
    }

    fn a_receiver_that_fails_is_missed_by_who_waits_for_room(method: Context) {
        let (to, from) = channel(1).unwrap();
        let meeting = Meeting::new();
        let mut workers = method.start_processes(hold, (from, meeting.name()), 1).unwrap();
        let guest = meeting.guests(1);
        to.put(vec![1]).unwrap();
        guest[0].release();
        let refused = to.put_timeout(vec![2], DEADLINE).unwrap_err();
        assert!(matches!(refused.kind, PutErrorKind::PeerDied | PutErrorKind::Disconnected), "{refused}");
        assert_eq!(refused.into_value(), [2]);
        assert!(workers.join().is_err());
    }

    fn arguments_that_were_never_opened_hold_nothing_once_their_process_is_gone(method: Context) {
        let (to, from) = channel::<u8>(1).unwrap();
        let mut workers = method.start_processes(never_opens, (to, crate::functions::OneWay(1)), 1).unwrap();
        let end = from.get_timeout(DEADLINE).unwrap_err();
        assert!(matches!(end, GetError::Disconnected | GetError::PeerDied), "{end}");
        workers.set_grace_period(Duration::ZERO);
        assert!(workers.join().is_err());
    }
}
