//! Publications among strangers, in crowds, and without descriptors.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use tensorferry::listen::{AcceptError, attach_timeout, publish_in};
use tensorferry_kit::tasks::{Publisher, Shelf};
use tensorferry_kit::{Child, DEADLINE, Leftovers, Limit, Loner, alone, until, where_possible, with_family};

use crate::address;
use crate::publishing::{attacher, attaches, counts, does, has, publisher};
use crate::refusals::socket;

#[test]
fn strangers_who_say_nothing_or_stop_half_way_keep_nobody_waiting_for_each_of_them() {
    with_family(|family| {
        let address = address();
        let published = publish_in(family.heap(), &address, &Shelf::new(family.heap(), 1)).unwrap();
        // One after the other they would take longer than any deadline here: two seconds each.
        let strangers: Vec<_> = (0..40)
            .map(|number| {
                let mut stream = UnixStream::connect_addr(&socket(&address)).unwrap();
                if number % 2 == 0 {
                    stream.write_all(b"TFLI\x01\0\0\0").unwrap();
                }
                stream
            })
            .collect();
        let attacher = attacher(&address);
        attaches(&attacher);
        has(&attacher, 1);
        for mut stranger in strangers {
            let mut told = Vec::new();
            stranger.read_to_end(&mut told).unwrap();
            assert!(String::from_utf8_lossy(&told).contains("it said nothing"), "{told:?}");
        }
        until("all are counted", || (published.n_attached(), published.n_refused()) == (1, 40));
        attacher.finish();
    });
}

#[test]
fn who_stops_on_its_way_in_keeps_nobody_waiting_and_nothing() {
    with_family(|family| {
        let address = address();
        let published = publish_in(family.heap(), &address, &Shelf::new(family.heap(), 1)).unwrap();
        let (half, other) = (attacher(&address), attacher(&address));
        // It was let in, and does not come. Ten seconds for each, if others had to wait for it.
        does(&half, "half 10");
        attaches(&other);
        has(&other, 1);
        assert_eq!(family.members().len(), 3);
        half.kill();
        until("it is given up", || published.n_refused() == 10);
        until("it is counted", || published.n_attached() == 1);
        other.finish();
    });
}

#[test]
fn another_user_is_refused_and_told_so() {
    where_possible(|| {
        let own_uid = rustix::process::geteuid();
        if !own_uid.is_root() {
            tensorferry_kit::not_here("root, which can be another user");
        }
        with_family(|family| {
            let address = address();
            let published = publish_in(family.heap(), &address, &1_u8).unwrap();
            let name = socket(&address);
            // The calls change this thread only.
            let stranger = std::thread::spawn(move || {
                let other = rustix::process::Uid::from_raw(65_534);
                rustix::thread::set_thread_res_uid(own_uid, other, own_uid).unwrap();
                let mut told = Vec::new();
                UnixStream::connect_addr(&name).unwrap().read_to_end(&mut told).unwrap();
                told
            });
            let told = stranger.join().unwrap();
            assert!(String::from_utf8_lossy(&told).contains("only user 0 may connect"), "{told:?}");
            until("it is counted", || published.n_refused() == 1);
            let reason = published.last_refusal().unwrap();
            assert!(matches!(*reason, AcceptError::OtherUser { uid: 65_534, .. }), "{reason}");
            assert_eq!(attach_timeout::<u8>(&address, DEADLINE).unwrap(), 1);
            until("all are counted", || (published.n_attached(), published.n_refused()) == (1, 1));
        });
    });
}

#[test]
fn many_attach_at_once_and_nothing_is_left_of_them() {
    with_family(|family| {
        let address = address();
        let published = publish_in(family.heap(), &address, &Shelf::new(family.heap(), 5)).unwrap();
        let attachers: Vec<_> = (0..24).map(|_| attacher(&address)).collect();
        for attacher in &attachers {
            attacher.say("attach 60");
        }
        for attacher in &attachers {
            attacher.expect("attached");
            has(attacher, 5);
        }
        until("all are counted", || (published.n_attached(), published.n_refused()) == (24, 0));
        assert_eq!(family.members().len(), 25);
        for (number, attacher) in attachers.into_iter().enumerate() {
            // Some are killed with what they have.
            if number % 3 == 0 { attacher.kill() } else { attacher.finish() }
        }
        family.wait_alone();
        let shelf: Shelf = attach_timeout(&address, DEADLINE).unwrap();
        assert_eq!(shelf.n_checks.load([0]).unwrap(), 24);
    });
}

#[test]
fn a_full_domain_refuses_and_lets_in_again_when_there_is_room() {
    with_family(|family| {
        let address = address();
        let published = publish_in(family.heap(), &address, &Shelf::new(family.heap(), 1)).unwrap();
        let (filler, attacher) = (attacher(&address), attacher(&address));
        let n_admitted = (0..).take_while(|_| family.heap().domain().admit(filler.pidfd()).is_ok()).count();
        assert_eq!(n_admitted, 62);
        attacher.say("attach 60");
        let said = attacher.hear();
        assert!(said.starts_with("the listener refused: process "), "{said}");
        until("it is counted", || published.n_refused() == 1);
        let reason = published.last_refusal().unwrap();
        assert!(matches!(*reason, AcceptError::Admit { .. }), "{reason}");
        filler.kill();
        family.wait_alone();
        attaches(&attacher);
        has(&attacher, 1);
        attacher.finish();
    });
}

#[test]
fn without_descriptors_nobody_gets_in_until_there_are_some_again() {
    alone(|| {
        let address = address();
        let publisher = Loner::start(&Publisher { address: address.clone() }, &[(Limit::OpenFiles, 64)]);
        does(&publisher, "publish 6");
        let alone = left(&publisher);
        let attacher = attacher(&address);
        attaches(&attacher);
        let waiting = attacher.pid();
        has_settled(&publisher, alone, 1);
        // None for the socket: it waits to be accepted. One: nobody can be told from others.
        does(&publisher, "fill 0");
        attacher.say("attach 60");
        until("it is noted", || {
            publisher.say("reason");
            publisher.hear().starts_with("cannot accept a connection: ")
        });
        does(&publisher, "empty");
        attacher.expect("attached");
        has_settled(&publisher, alone, 1);
        does(&publisher, "fill 1");
        attacher.say("attach 60");
        let said = attacher.hear();
        assert!(
            said.starts_with(&format!("the listener refused: the socket to process {waiting}: ")),
            "{said}"
        );
        does(&publisher, "empty");
        attaches(&attacher);
        has(&attacher, 6);
        counts(&publisher, "3 1");
        attacher.finish();
        publisher.finish();
    });
}

#[test]
fn a_thousand_attachments_leave_nothing_at_the_publisher() {
    alone(|| {
        let address = address();
        let publisher = publisher(&address);
        does(&publisher, "publish 8");
        let alone = left(&publisher);
        let attacher = attacher(&address);
        attaches(&attacher);
        does(&attacher, "drop");
        has_settled(&publisher, alone, 1);
        let before = Leftovers::look();
        does(&attacher, "cycles 1000");
        has_settled(&publisher, alone, 1);
        counts(&publisher, "1001 0");
        before.wait_nothing_more();
        attacher.finish();
        publisher.finish();
    });
}

/// What a publisher has: descriptors, mappings, and blocks that somebody holds.
#[track_caller]
pub(crate) fn left(publisher: &Child) -> [usize; 3] {
    publisher.say("left");
    let said = publisher.hear();
    let numbers: Vec<_> = said.split(' ').map(|number| number.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

/// Waits until a publisher has what it had alone, and what it takes to have other members: a socket pair for
/// questions to its descriptor store, and a descriptor by which it watches each of them, which it opens when
/// it gets around to it.
#[track_caller]
pub(crate) fn has_settled(publisher: &Child, alone: [usize; 3], n_others: usize) {
    let [descriptors, mappings, blocks] = alone;
    let mut last = alone;
    let settled = || {
        last = left(publisher);
        last == [descriptors + 2 + n_others, mappings, blocks]
    };
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| until("it settles", settled)));
    assert!(outcome.is_ok(), "alone: {alone:?}, now: {last:?}");
}
