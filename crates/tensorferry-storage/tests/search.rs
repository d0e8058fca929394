//! What is called before a process makes its default domain. A process has one, so this is a program of its
//! own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};

use tensorferry_domain::Domain;
use tensorferry_storage::Heap;

static N_CALLS: AtomicUsize = AtomicUsize::new(0);

fn finds_one() {
    N_CALLS.fetch_add(1, Ordering::SeqCst);
    let found = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
    // Another thread may have found one too.
    let _ = found.make_current();
}

fn never_called() {
    N_CALLS.store(usize::MAX, Ordering::SeqCst);
}

#[test]
fn the_first_search_is_made_before_a_domain_is_and_what_it_finds_is_the_default_one() {
    assert!(Heap::search_first(finds_one));
    assert!(!Heap::search_first(never_called), "the first one stays");
    let ids: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..8).map(|_| scope.spawn(|| Heap::current().unwrap().domain().id())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(ids.iter().all(|&id| id == ids[0]), "{ids:?}");
    assert_eq!(Heap::current().unwrap().domain().layout().data_len_bytes, 64 << 20);
    let n_calls = N_CALLS.load(Ordering::SeqCst);
    assert!((1..=8).contains(&n_calls), "{n_calls}");
    Heap::current().unwrap();
    assert_eq!(N_CALLS.load(Ordering::SeqCst), n_calls, "there is one by now");
}
