//! Processes that only ever look, and never wait, learn of deaths too.

use std::time::Duration;

use tensorferry::queue::{Queue, wait_timeout};
use tensorferry::spawn::{StartMethod, func, get_context};
use tensorferry::sync::{Event, Semaphore};

#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
enum Look {
    GetNowait,
    PutNowait,
    GetUntilNow,
    WaitUntilNow,
    EventUntilNow,
    TryAcquire,
}

const LOOKS: [Look; 6] = [
    Look::GetNowait,
    Look::PutNowait,
    Look::GetUntilNow,
    Look::WaitUntilNow,
    Look::EventUntilNow,
    Look::TryAcquire,
];

fn n_threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// How many threads this process has before it looks, and after.
#[func]
fn look(
    rank: usize,
    empty: Queue<u32>,
    full: Queue<u32>,
    event: Event,
    semaphore: Semaphore,
) -> Result<(usize, usize), String> {
    let before = n_threads();
    let is_in_vain = match LOOKS[rank] {
        Look::GetNowait => empty.get_nowait().is_err(),
        Look::PutNowait => full.put_nowait(2).is_err(),
        Look::GetUntilNow => empty.get_timeout(Duration::ZERO).is_err(),
        Look::WaitUntilNow => wait_timeout(&[&empty], Duration::ZERO).is_err(),
        Look::EventUntilNow => event.wait_timeout(Duration::ZERO).is_err(),
        Look::TryAcquire => semaphore.try_acquire().is_err(),
    };
    if is_in_vain { Ok((before, n_threads())) } else { Err(format!("{:?} found something", LOOKS[rank])) }
}

#[test]
fn a_look_in_vain_starts_the_thread_that_watches_the_others() {
    let (empty, full) = (Queue::new(1).unwrap(), Queue::new(1).unwrap());
    full.put(1).unwrap();
    let arguments = (empty, full, Event::new().unwrap(), Semaphore::new(0).unwrap());
    let found = get_context(StartMethod::Spawn).spawn(look, arguments, LOOKS.len()).unwrap();
    assert_eq!(found, [(1, 2); LOOKS.len()], "{LOOKS:?}");
}
