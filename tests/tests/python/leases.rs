//! Leases of workers in Python that do not come to the end of their work, and who waits for it.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry::listen::Listener;
use tensorferry::queue::{JoinError, Queue, Receiver, Sender, channel_with_leases_in};
use tensorferry_kit::{Child, DEADLINE, Family, until, where_possible, with_family};

use crate::{address, program};

/// A program in Python with an end of a queue.
fn with_end<T: Serialize + DeserializeOwned>(family: &Family, end: T) -> Child {
    let address = address();
    let listener = Listener::bind_in(family.heap(), &address).unwrap();
    let child = program("leasing.py", &[&address]);
    let mut connection = listener.accept_timeout::<T, ()>(1, DEADLINE).unwrap();
    connection.send(end).unwrap();
    child.expect("ready");
    child
}

fn jobs(family: &Family) -> (Sender<String>, Receiver<String>) {
    channel_with_leases_in(family.heap(), 4, 2).unwrap()
}

/// It leases a value, says it and how often it was delivered, and acknowledges it.
#[track_caller]
fn does(worker: &Child, leased: &str) {
    worker.say("lease");
    worker.expect(leased);
    worker.say("ack");
    worker.expect("acknowledged");
}

#[test]
fn what_a_killed_worker_had_leased_is_done_by_another_one() {
    where_possible(|| {
        with_family(|family| {
            let (jobs, work) = jobs(family);
            let victim = with_end(family, work.clone());
            let heir = with_end(family, work);
            jobs.put("job".into()).unwrap();
            jobs.put("next".into()).unwrap();
            victim.say("lease");
            victim.expect("job 1");
            victim.kill();
            until("the job is back", || jobs.len() == 2);
            does(&heir, "job 2");
            let joined = jobs.join_timeout(Duration::ZERO);
            assert!(matches!(joined, Err(JoinError::TimedOut { n_left: 1 })), "{joined:?}");
            does(&heir, "next 1");
            jobs.join().unwrap();
            heir.say("end");
            heir.finish();
        });
    });
}

#[test]
fn a_worker_whose_block_raises_or_that_ends_gives_back_what_it_had() {
    where_possible(|| {
        with_family(|family| {
            let queue = Queue::<String>::with_leases_in(family.heap(), 4, 1).unwrap();
            let heir = with_end(family, queue.clone());
            let fails = with_end(family, queue.clone());
            let ends = with_end(family, queue.receiver().unwrap());
            queue.put("job".into()).unwrap();
            fails.say("fail");
            fails.expect("job 1");
            let stderr = fails.fail();
            assert!(stderr.contains("ValueError: the work failed"), "{stderr}");
            // It has the lease in a variable of its module to the last.
            ends.say("lease");
            ends.expect("job 2");
            ends.say("end");
            ends.finish();
            does(&heir, "job 3");
            queue.join().unwrap();
            // A plain get needs none.
            heir.say("put: plain");
            heir.expect("put");
            assert_eq!(queue.get().unwrap(), "plain");
            heir.say("end");
            heir.finish();
        });
    });
}

#[test]
fn a_program_may_end_while_a_thread_of_it_waits_for_a_lease() {
    where_possible(|| {
        with_family(|family| {
            let (jobs, work) = jobs(family);
            let heir = with_end(family, work.clone());
            let leaves = with_end(family, work);
            leaves.say("wait in a thread");
            leaves.expect("waiting");
            leaves.say("end");
            leaves.finish();
            jobs.put("job".into()).unwrap();
            does(&heir, "job 1");
            heir.say("end");
            heir.finish();
        });
    });
}

#[test]
fn a_loop_over_leases_ends_as_one_over_values() {
    where_possible(|| {
        with_family(|family| {
            for (is_killed, told) in [(false, "done"), (true, "PeerDied")] {
                let (jobs, work) = jobs(family);
                let (puts, works) = (with_end(family, jobs), with_end(family, work));
                puts.say("put: one");
                puts.expect("put");
                works.say("all");
                works.expect("one");
                works.wait_until_asleep();
                if is_killed {
                    puts.kill();
                } else {
                    puts.say("end");
                    puts.finish();
                }
                works.expect(told);
                works.say("end");
                works.finish();
            }
        });
    });
}

#[test]
fn who_joins_is_told_that_the_work_is_done_or_never_will_be() {
    where_possible(|| {
        with_family(|family| {
            let (jobs, work) = jobs(family);
            let joins = with_end(family, jobs);
            let works = with_end(family, work.clone());
            let put = |job: &str| {
                joins.say(format!("put: {job}"));
                joins.expect("put");
                joins.say("join");
                joins.expect("waiting");
                joins.wait_until_asleep();
            };
            put("one");
            does(&works, "one 1");
            joins.expect("done");
            put("two");
            kill(Pid::from_raw(joins.pid().try_into().unwrap()), Signal::SIGINT).unwrap();
            joins.expect("KeyboardInterrupt");
            does(&works, "two 1");
            put("three");
            works.say("lease");
            works.expect("three 1");
            drop(work);
            works.kill();
            joins.expect("PeerDied");
            joins.say("end");
            joins.finish();
        });
    });
}
