//! What is published at an address, and those who take it there.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use tensorferry::listen::{
    ConnectError, ListenError, Listener, PublishError, attach, attach_any, attach_timeout, publish,
    publish_any, publish_in,
};
use tensorferry::queue::{GetError, channel_in, spsc_in};
use tensorferry::reduce::{EncodeError, TransitError};
use tensorferry::tensor::{AnyTensor, Tensor, TensorMut};
use tensorferry::{Bundle, Heap};
use tensorferry_kit::tasks::{Attacher, Publisher, Shelf};
use tensorferry_kit::{Child, DEADLINE, Leftovers, Loner, alone, uncounted, until, with_family};

use crate::hardened::{has_settled, left};
use crate::{SHORT, address};

/// A process that publishes nothing yet.
pub(crate) fn publisher(address: &str) -> Child {
    Loner::start(&Publisher { address: address.to_owned() }, &[])
}

/// A process that is in no domain yet.
pub(crate) fn attacher(address: &str) -> Child {
    Loner::start(&Attacher { address: address.to_owned() }, &[])
}

/// Has a child do something that it confirms.
#[track_caller]
pub(crate) fn does(child: &Child, line: &str) {
    child.say(line);
    child.expect(line);
}

#[track_caller]
pub(crate) fn attaches(child: &Child) {
    child.say("attach 60");
    child.expect("attached");
}

#[track_caller]
pub(crate) fn has(child: &Child, number: u64) {
    child.say("check");
    child.expect(&number.to_string());
}

/// Waits until a publisher has counted so many who have attached and were refused.
#[track_caller]
pub(crate) fn counts(publisher: &Child, counts: &str) {
    until("all are counted", || {
        publisher.say("counts");
        publisher.hear() == counts
    });
}

/// Makes the default domain of this process, which stays.
fn make_default_domain() {
    uncounted(|| {
        let address = address();
        let published = publish(&address, &1_u8).unwrap();
        assert_eq!(attach::<u8>(&address).unwrap(), 1);
        drop(published);
    });
}

fn path() -> String {
    std::env::temp_dir().join(&address()[1..]).to_str().unwrap().to_owned()
}

#[test]
fn any_process_finds_a_value_by_its_name_and_nothing_is_copied() {
    alone(|| {
        let address = address();
        let publisher = publisher(&address);
        let early = attacher(&address);
        early.say("await 60");
        early.wait_until_asleep();
        does(&publisher, "publish 7");
        early.expect("attached");
        let late = attacher(&address);
        attaches(&late);
        // Each of them checks that it has copied nothing.
        for child in [&early, &late] {
            has(child, 7);
        }
        attaches(&late);
        has(&late, 7);
        // Where it has become a member, it is one.
        counts(&publisher, "3 0");
        for child in [early, late, publisher] {
            child.finish();
        }
    });
}

#[test]
fn the_name_of_a_killed_publisher_is_free_and_what_was_taken_stays() {
    alone(|| {
        for address in [address(), path()] {
            let killed = publisher(&address);
            does(&killed, "publish 1");
            let attacher = attacher(&address);
            attaches(&attacher);
            killed.kill();
            attacher.say("attach 60");
            assert!(attacher.hear().starts_with(&format!("cannot connect to {address}: ")));
            let next = publisher(&address);
            does(&next, "publish 2");
            // The memory of the first one has outlived it, beside that of the second.
            has(&attacher, 1);
            attaches(&attacher);
            has(&attacher, 2);
            does(&attacher, "drop");
            let late = publisher(&address);
            late.say("publish 3");
            assert!(late.hear().starts_with(&format!("cannot listen at {address}: ")));
            late.finish();
            attacher.finish();
            next.finish();
            // A program that ends by itself lets go of its publication.
            assert!(!Path::new(&address).exists());
        }
    });
}

#[test]
fn dropping_the_handle_frees_the_name_and_what_was_taken_stays() {
    with_family(|family| {
        for address in [address(), path()] {
            let shelf = Shelf::new(family.heap(), 3);
            let published = publish_in(family.heap(), &address, &shelf).unwrap();
            // The publication has what it needs of it.
            drop(shelf);
            let taken = publish_in(family.heap(), &address, &1).unwrap_err();
            assert!(matches!(taken, PublishError::Listen(ListenError::Bind { .. })), "{taken}");
            let attacher = attacher(&address);
            attaches(&attacher);
            let is_socket = || fs::metadata(&address).is_ok_and(|found| found.file_type().is_socket());
            assert_eq!(is_socket(), address.starts_with('/'));
            drop(published);
            assert!(!Path::new(&address).exists());
            attacher.say("attach 60");
            assert!(attacher.hear().starts_with(&format!("cannot connect to {address}: ")));
            has(&attacher, 3);
            drop(publish_in(family.heap(), &address, &1).unwrap());
            attacher.finish();
        }
    });
}

#[test]
fn another_type_is_an_error_and_no_garbage() {
    with_family(|family| {
        let address = address();
        let published = publish_in(family.heap(), &address, &Shelf::new(family.heap(), 1)).unwrap();
        let attacher = attacher(&address);
        attacher.say("types");
        let said = attacher.hear();
        assert!(said.contains("::Shelf is published at ") && said.ends_with("::Item"), "{said}");
        let said = attacher.hear();
        assert!(said.contains("not of the expected type"), "{said}");
        let said = attacher.hear();
        assert!(said.contains("not of the expected type"), "{said}");
        until("all are noted", || published.n_refused() == 3);
        let reason = published.last_refusal().unwrap();
        assert!(reason.is_of_peer() && reason.to_string().contains("it went away"), "{reason}");
        attaches(&attacher);
        attacher.finish();
        until("it is counted", || published.n_attached() == 1);
        drop(published);

        // Of two tensors with as many bytes one is the wrong one, with and without names.
        let tensor = TensorMut::from_slice_in(family.heap(), &[1.0_f32, 2.0], [2]).unwrap().freeze();
        let published = publish_in(family.heap(), &address, &tensor).unwrap();
        let error = attach::<Tensor<u32>>(&address).unwrap_err();
        assert!(matches!(error, ConnectError::WrongType { .. }), "{error}");
        let error = attach_any::<Tensor<u32>>(&address, None).unwrap_err();
        assert!(matches!(error, ConnectError::Decode(_)), "{error}");
        let any: AnyTensor = attach_any(&address, None).unwrap();
        assert_eq!(any.clone().downcast::<f32>().unwrap(), tensor);
        drop((any, tensor, published));

        // A listener has published nothing.
        let listener = Listener::bind_in(family.heap(), &address).unwrap();
        std::thread::scope(|scope| {
            let outcome = scope.spawn(|| attach_timeout::<u8>(&address, DEADLINE));
            let error = listener.accept_timeout::<u8, u8>(1, DEADLINE).unwrap_err();
            assert!(error.is_of_peer(), "{error}");
            let error = outcome.join().unwrap().unwrap_err();
            assert!(error.to_string().contains("something that was published"), "{error}");
        });
    });
}

#[test]
fn what_only_one_can_have_is_refused_and_stays_where_it_is() {
    make_default_domain();
    with_family(|family| {
        let address = address();
        let mut tensor = TensorMut::<u8>::zeros_in(family.heap(), [4]).unwrap();
        let (mut sender, mut receiver) = spsc_in::<u8>(family.heap(), 1).unwrap();
        for error in
            [publish_any(&address, &tensor).unwrap_err(), publish_any(&address, &[&sender]).unwrap_err()]
        {
            // They lie in another domain than the default one, too.
            assert!(matches!(error, PublishError::Encode(EncodeError::Transit(_))), "{error}");
        }
        let heap = Heap::current().unwrap();
        let own = TensorMut::<u8>::zeros([4]).unwrap();
        let (own_sender, own_receiver) = spsc_in::<u8>(heap, 1).unwrap();
        for error in
            [publish_any(&address, &own).unwrap_err(), publish_any(&address, &[&own_sender]).unwrap_err()]
        {
            let is_it =
                matches!(error, PublishError::Encode(EncodeError::Transit(TransitError::NotRepeatable)));
            assert!(is_it, "{error}");
        }
        drop((own.freeze(), own_sender, own_receiver));
        tensor.as_mut_slice().fill(1);
        sender.put(1).unwrap();
        assert_eq!(receiver.get().unwrap(), 1);
    });
}

#[test]
fn who_attaches_after_a_replacement_has_the_new_value() {
    alone(|| {
        let address = address();
        let publisher = publisher(&address);
        does(&publisher, "publish 1");
        let alone = left(&publisher);
        let (before, after) = (attacher(&address), attacher(&address));
        attaches(&before);
        does(&publisher, "replace 2");
        attaches(&after);
        has(&after, 2);
        has(&before, 1);
        does(&before, "drop");
        // Nobody has the first one any more, and nothing is left of it; then nothing of the second one.
        has_settled(&publisher, alone, 2);
        does(&publisher, "replace 3");
        does(&after, "drop");
        has_settled(&publisher, alone, 2);
        for child in [before, after, publisher] {
            child.finish();
        }
    });
}

#[test]
fn an_end_of_a_queue_is_there_for_as_long_as_somebody_may_still_come_for_it() {
    with_family(|family| {
        let address = address();
        let (sender, receiver) = channel_in::<u32>(family.heap(), 4).unwrap();
        let published = publish_in(family.heap(), &address, &sender).unwrap();
        drop(sender);
        assert!(matches!(receiver.get_timeout(SHORT), Err(GetError::Empty)));
        let taken: tensorferry::queue::Sender<u32> = attach(&address).unwrap();
        taken.put(5).unwrap();
        assert_eq!(receiver.get().unwrap(), 5);
        drop((taken, published));
        assert!(matches!(receiver.get_timeout(DEADLINE), Err(GetError::Disconnected)));
    });
}

#[test]
fn nobody_is_waited_for_longer_than_said() {
    alone(|| {
        let address = address();
        let attacher = attacher(&address);
        attacher.say("attach 60");
        assert!(attacher.hear().starts_with(&format!("cannot connect to {address}: ")));
        attacher.say("await 0.05");
        attacher.expect(&format!("nobody has come to listen at {address}"));
        let silent = UnixListener::bind_addr(&crate::refusals::socket(&address)).unwrap();
        attacher.say("attach 0.05");
        attacher.expect("the listener has not accepted");
        drop(silent);
        attacher.finish();
    });
}

#[test]
fn a_process_with_a_domain_of_its_own_keeps_it() {
    alone(|| {
        let address = address();
        let publisher = publisher(&address);
        does(&publisher, "publish 4");
        let attacher = attacher(&address);
        does(&attacher, "own");
        attaches(&attacher);
        attaches(&attacher);
        has(&attacher, 4);
        does(&attacher, "compare");
        does(&attacher, "drop");
        attacher.finish();
        publisher.finish();
    });
}

#[test]
fn threads_of_one_process_that_attach_at_once_are_one_member() {
    with_family(|family| {
        let address = address();
        let published = publish_in(family.heap(), &address, &Shelf::new(family.heap(), 1)).unwrap();
        for _ in 0..5 {
            let attacher = attacher(&address);
            does(&attacher, "threads 12");
            assert_eq!(family.members().len(), 2, "{:?}", family.members());
            attacher.finish();
            family.wait_alone();
        }
        until("all are counted", || published.n_attached() == 60);
    });
}

#[test]
fn a_process_finds_what_it_has_published_itself_in_whatever_domain() {
    make_default_domain();
    with_family(|family| {
        let address = address();
        let bundle = Bundle::new([("a", TensorMut::<u8>::zeros([4]).unwrap().freeze())]).unwrap();
        let cycle = || {
            let published = publish(&address, &bundle).unwrap();
            let taken: Bundle = attach(&address).unwrap();
            assert_eq!(taken.len(), 1);
            drop((published, taken));
            let shelf = Shelf::new(family.heap(), 2);
            let published = publish_in(family.heap(), &address, &shelf).unwrap();
            let taken: Shelf = attach(&address).unwrap();
            assert_eq!(taken.check(), 2);
            assert_eq!(taken.loose.tensors[0].storage_id(), shelf.loose.tensors[0].storage_id());
            assert_eq!(family.members().len(), 1);
            drop(published);
        };
        cycle();
        let before = Leftovers::look();
        (0..50).for_each(|_| cycle());
        before.wait_nothing_more();
    });
}

#[test]
fn a_publisher_that_executes_another_program_publishes_nothing() {
    alone(|| {
        let address = address();
        let (former, next) = (publisher(&address), publisher(&address));
        does(&former, "publish 1");
        next.say("publish 2");
        assert!(next.hear().starts_with(&format!("cannot listen at {address}: ")));
        does(&former, "exec");
        until("the name is free", || {
            next.say("publish 2");
            next.hear() == "publish 2"
        });
        let attacher = attacher(&address);
        attaches(&attacher);
        has(&attacher, 2);
        for child in [attacher, next, former] {
            child.finish();
        }
    });
}
