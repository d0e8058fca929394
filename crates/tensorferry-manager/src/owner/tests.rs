//! What the object's thread makes of a take that has failed.

use tensorferry_domain::DomainError;
use tensorferry_storage::Heap;

use super::*;
use crate::requests::Requests;

type Adder = Owner<u64, u64, fn(&mut u64, u64) -> u64>;

fn add(total: &mut u64, number: u64) -> u64 {
    *total += number;
    *total
}

fn adder() -> (Requests<u64, u64>, Adder) {
    let (requests, ring) = Requests::create(Heap::current().unwrap()).unwrap();
    (requests, Owner::new(ring, 0, add))
}

/// As where the kernel does not let this process map what a request names.
fn passing() -> RingTakeError {
    StorageError::Domain(DomainError::ProcessTableFull { slots: 64 }).into()
}

#[test]
fn what_may_pass_is_tried_again_for_30_s() {
    let (_requests, mut owner) = adder();
    let begin = Instant::now();
    assert!(owner.goes_on_after(passing()) && owner.goes_on_after(passing()));
    let since = owner.failing_since.unwrap();
    assert!(begin <= since && since.elapsed() >= TRY_AGAIN, "since the first failure");
    owner.failing_since = since.checked_sub(Duration::from_secs(30));
    assert!(!owner.goes_on_after(passing()));
}

#[test]
fn an_object_that_was_closed_waits_for_nothing_that_may_pass() {
    let (requests, mut owner) = adder();
    requests.ring().close();
    assert!(!owner.goes_on_after(passing()));
}

#[test]
fn a_request_that_is_read_begins_the_30_s_anew() {
    let (requests, mut owner) = adder();
    assert!(owner.goes_on_after(passing()) && owner.failing_since.is_some());
    requests.put(Head { link: 0, kind: Kind::Tell }, &7_u64, Deadline::Never).unwrap();
    assert!(owner.take(&mut IncomingMessage::default()));
    assert_eq!((owner.state, owner.failing_since), (7, None));
}

#[test]
fn a_request_that_makes_no_sense_is_lost_and_others_are_still_read() {
    let (requests, mut owner) = adder();
    requests.put(Head { link: 0, kind: Kind::Tell }, &7_u64, Deadline::Never).unwrap();
    requests.ring().close();
    let lost = StorageError::BadReference { reference: 1, what: "it grants nothing that is known" };
    assert!(owner.goes_on_after(lost.into()));
    assert_eq!(owner.failing_since, None);
    assert_eq!(owner.run::<u64>().unwrap(), 7);
}

#[test]
fn an_object_outlives_its_callers_and_not_its_ring() {
    let (_requests, mut owner) = adder();
    for gone in [RingTakeError::NoSenders, RingTakeError::PeerDied] {
        assert!(owner.goes_on_after(gone));
    }
    assert!(!owner.goes_on_after(RingTakeError::Closed));
}
