//! Calls and their values.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::future::Future as _;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tensorferry::pool::{AsyncResult, Pool, SubmitErrorKind, TaskError};
use tensorferry::spawn::StartMethod;
use tensorferry::sync::{Event, RawValue};
use tensorferry::{BoxedError, Tensor, TensorMut, bytes_copied, func};
use tensorferry_kit::{DEADLINE, until};

use crate::{get, pid, pool, square};

#[func]
fn difference(_worker: usize, a: i64, b: i64) -> Result<i64, String> {
    Ok(a - b)
}

/// Sends the tensor back, with the sum of its elements.
#[func]
fn sum(_worker: usize, tensor: Tensor<f32>) -> Result<(Tensor<f32>, f32), BoxedError> {
    let sum = tensor.as_slice()?.iter().sum();
    Ok((tensor, sum))
}

#[func]
fn index(worker: usize, is_well: bool) -> Result<(usize, String), String> {
    // What `ps` shows.
    let name = std::fs::read_to_string("/proc/self/comm").map_err(|error| error.to_string())?;
    is_well.then_some((worker, name.trim().to_owned())).ok_or_else(|| "unwell".to_owned())
}

#[test]
fn clones_of_the_settings_make_pools_whose_workers_are_counted_together() {
    let settings = Pool::builder().processes(2).name("half").initializer(square, (3,));
    let pools = [0, 2].map(|first| settings.clone().first_index(first).start().unwrap());
    let workers = pools.iter().map(|pool| {
        let mut seen = BTreeSet::new();
        until("both workers have come", || {
            seen.insert(pool.apply(index, (true,)).unwrap());
            seen.len() == 2
        });
        seen.into_iter().map(|(worker, name)| format!("{worker} {name}")).collect::<Vec<_>>()
    });
    let workers: Vec<_> = workers.collect();
    assert_eq!(workers, [["0 half 0", "1 half 1"], ["2 half 2", "3 half 3"]]);
    let TaskError::Raised(error) = pools[1].apply(index, (false,)).unwrap_err() else { panic!() };
    assert!(
        error.worker >= 2 && error.to_string().contains(&format!("in worker {}", error.worker)),
        "{error}"
    );
}

#[test]
fn whichever_is_done_first_is_found_by_all_who_wait() {
    let pool = pool(3);
    let go = [(); 3].map(|()| Event::new().unwrap());
    let says = RawValue::new(0).unwrap();
    let wait = |go: &Event| pool.apply_async(crate::wait, (says.clone(), go.clone())).unwrap();
    let mut results = go.each_ref().map(wait).map(Some);
    let any = |results: &[Option<AsyncResult<u32>>], timeout| {
        AsyncResult::wait_any(results.iter().flatten(), timeout)
    };
    assert_eq!(any(&results, Some(Duration::from_millis(10))), None);
    assert_eq!(any(&results, Some(Duration::ZERO)), None);
    for (nth, place) in [(1, 1), (0, 0), (2, 0)] {
        let begun = Instant::now();
        thread::scope(|scope| {
            let waiters = [(); 2].map(|()| scope.spawn(|| any(&results, Some(DEADLINE))));
            go[nth].set();
            waiters.into_iter().for_each(|waiter| assert_eq!(waiter.join().unwrap(), Some(place)));
        });
        assert!(begun.elapsed() < DEADLINE, "nobody was told");
        assert!(get(results[nth].take().unwrap()).is_ok());
    }
    assert_eq!(any(&results, None), None, "of none");
}

#[func]
fn filled(_worker: usize, n_elements: usize, value: f32) -> Result<TensorMut<f32>, BoxedError> {
    Ok(TensorMut::full([n_elements], value)?)
}

#[func]
fn first(_worker: usize, mut tensor: TensorMut<f32>) -> Result<f32, String> {
    Ok(tensor.as_slice()[0])
}

/// Item 0 waits for the event.
#[func]
fn held_back(_worker: usize, (n, go): (usize, Event)) -> Result<usize, String> {
    if n == 0 {
        go.wait().map_err(|error| error.to_string())?;
    }
    Ok(n)
}

#[func]
fn count(_worker: usize, n_initialized: RawValue<u32>) {
    n_initialized.fetch_add(1);
}

#[func]
fn of_environment(worker: usize) -> Result<(usize, Option<String>, Option<String>), String> {
    let variable = |name| std::env::var(name).ok();
    Ok((worker, variable("OF_A_TEST"), variable("TENSORFERRY_SEED")))
}

#[test]
fn values_come_in_the_order_of_many_more_items_than_wait_at_a_time() {
    let pool = pool(3);
    let squares = pool.map(square, 0..3000).unwrap();
    assert!(squares.iter().zip(0_u64..).all(|(square, n)| *square == n * n));
    assert_eq!(squares.len(), 3000);
    assert_eq!(pool.map(square, []).unwrap(), [0; 0]);
    assert_eq!(pool.n_pending(), 0);
}

#[test]
fn the_tuples_of_starmap_are_spread_and_any_function_can_be_called() {
    let pool = pool(2);
    assert_eq!(pool.starmap(difference, [(5, 3), (3, 5)]).unwrap(), [2, -2]);
    assert_eq!(pool.apply(square, (12,)).unwrap(), 144);
    assert_eq!(pool.apply(difference, (1, 2)).unwrap(), -1);
}

#[test]
fn several_threads_share_a_pool() {
    let pool = &pool(2);
    thread::scope(|scope| {
        for n in 0..4_u64 {
            scope.spawn(move || {
                assert_eq!(pool.map(square, n * 50..n * 50 + 50).unwrap()[7], (n * 50 + 7).pow(2))
            });
        }
    });
}

#[test]
fn imap_takes_items_as_they_are_needed() {
    let pool = pool(2);
    let n_taken = Cell::new(0_u64);
    let items = (0..).inspect(|_| n_taken.set(n_taken.get() + 1));
    let mut squares = pool.imap(square, items);
    assert_eq!(n_taken.get(), 0);
    for n in 0..20 {
        assert_eq!(squares.next().unwrap().unwrap(), n * n);
        assert!(n_taken.get() <= n + 4, "{} items for {n}", n_taken.get());
    }
    assert_eq!(pool.imap(square, 0..7).map(Result::unwrap).sum::<u64>(), 91);
}

#[test]
fn imap_unordered_gives_what_is_done_first() {
    let (pool, go) = (pool(2), Event::new().unwrap());
    let mut outcomes = pool.imap_unordered(held_back, (0..10).map(|n| (n, go.clone())));
    let mut places = BTreeSet::new();
    for _ in 1..10 {
        let (place, outcome) = outcomes.next().unwrap();
        assert_eq!(outcome.unwrap(), place);
        assert_ne!(place, 0, "it is held back");
        assert!(places.insert(place));
    }
    go.set();
    let (place, outcome) = outcomes.next().unwrap();
    assert_eq!((place, outcome.unwrap()), (0, 0));
    assert!(outcomes.next().is_none());
}

#[test]
fn a_result_is_a_future() {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let (pool, go) = (pool(1), Event::new().unwrap());
    let mut future = pin!(pool.apply_async(held_back, ((0, go.clone()),)).unwrap());
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut context = Context::from_waker(&waker);
    assert!(future.as_mut().poll(&mut context).is_pending());
    go.set();
    let value = loop {
        thread::park_timeout(DEADLINE);
        if let Poll::Ready(outcome) = future.as_mut().poll(&mut context) {
            break outcome.unwrap();
        }
        assert!(!future.is_ready(), "woken for nothing but a time-out");
    };
    assert_eq!(value, 0);
    assert!(future.as_mut().poll(&mut context).is_pending(), "it was taken");
}

/// Panics when it is woken, or drops a pool.
struct Careless(Mutex<Option<Arc<Pool>>>);

impl Wake for Careless {
    fn wake(self: Arc<Self>) {
        let pool = self.0.lock().unwrap().take();
        assert!(pool.is_some(), "a waker that panics");
    }
}

#[test]
fn whoever_is_woken_may_panic_or_drop_the_pool() {
    for drops in [false, true] {
        let (pool, go) = (Arc::new(pool(1)), Event::new().unwrap());
        let mut future = pin!(pool.apply_async(held_back, ((0, go.clone()),)).unwrap());
        let waker = Arc::new(Careless(Mutex::new(drops.then(|| Arc::clone(&pool))))).into();
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let next = pool.apply_async(square, (5,)).unwrap();
        let _kept = (!drops).then_some(pool);
        go.set();
        assert!(future.wait_timeout(DEADLINE));
        // Nobody waits for a pool in vain, whether it is gone or not.
        assert_eq!(get(next).is_err(), drops);
    }
}

#[test]
fn tensors_are_not_copied_and_values_may_be_exclusive() {
    let pool = pool(2);
    let before = bytes_copied();
    let tensor = TensorMut::full([1000], 0.5).unwrap().freeze();
    let (back, total) = pool.apply(sum, (tensor.clone(),)).unwrap();
    assert_eq!((back.storage_id(), total), (tensor.storage_id(), 500.0));
    let mut filled = pool.apply(filled, (3, 7.0)).unwrap();
    filled.as_mut_slice()[0] = 8.0;
    assert_eq!(filled.as_slice(), [8.0, 7.0, 7.0]);
    assert_eq!(bytes_copied(), before);
}

#[test]
fn what_a_second_worker_could_not_have_is_refused_and_given_back() {
    let pool = pool(1);
    let refused = pool.apply_async(first, (TensorMut::full([2], 3.0).unwrap(),)).unwrap_err();
    assert!(matches!(refused.kind, SubmitErrorKind::NotRepeatable), "{refused}");
    let (mut tensor,) = refused.into_args();
    assert_eq!(tensor.as_slice(), [3.0; 2]);
    assert_eq!(pool.n_pending(), 0);
}

#[test]
fn each_process_is_initialized_once() {
    let n_initialized = RawValue::new(0).unwrap();
    let builder = Pool::builder().processes(2).max_tasks_per_process(1);
    let pool = builder.initializer(count, (n_initialized.clone(),)).start().unwrap();
    until("the initializer ran in both", || n_initialized.get() == 2);
    let pids: BTreeSet<u32> = (0..4).map(|_| get(pool.apply_async(pid, ()).unwrap()).unwrap()).collect();
    assert_eq!(pids.len(), 4, "each task in a process of its own: {pids:?}");
    until("and in those that took their places", || n_initialized.get() == 6);
}

#[test]
fn a_worker_is_replaced_after_so_many_tasks() {
    let pool = Pool::builder().processes(1).max_tasks_per_process(2).start().unwrap();
    let pids: Vec<u32> = (0..6).map(|_| get(pool.apply_async(pid, ()).unwrap()).unwrap()).collect();
    assert!(pids.chunks(2).all(|two| two[0] == two[1]), "{pids:?}");
    assert_eq!(pids.iter().collect::<BTreeSet<_>>().len(), 3, "{pids:?}");
    // What was submitted is done, however many processes that takes.
    let results: Vec<_> = (0..9).map(|n| pool.apply_async(square, (n,)).unwrap()).collect();
    pool.join().unwrap();
    assert!(results.into_iter().zip(0_u64..).all(|(result, n)| get(result).unwrap() == n * n));
}

#[test]
fn workers_have_the_settings_of_the_pool() {
    for method in [StartMethod::Spawn, StartMethod::Forkserver] {
        let builder = Pool::builder().processes(1).name("of a test").env("OF_A_TEST", "yes").seed(7);
        let pool = builder.start_method(method).start().unwrap();
        let (worker, variable, seed) = pool.apply(of_environment, ()).unwrap();
        assert_eq!((worker, variable.as_deref()), (0, Some("yes")));
        assert_eq!(seed, Some(tensorferry::rank_seed(7, 0).to_string()));
        let [process] = pool.processes().try_into().unwrap();
        assert_eq!((process.name(), process.rank()), ("of a test 0", Some(0)));
    }
}
