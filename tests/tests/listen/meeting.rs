//! Who connects, and what becomes of it.

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

use tensorferry::listen::{AcceptError, ListenError, Listener};
use tensorferry::queue::{GetError, PutErrorKind};
use tensorferry::reduce::bytes_copied;
use tensorferry_kit::{DEADLINE, Item, until, with_family};
use tensorferry_os::socket::{self, Interest};

use crate::{SHORT, accept, address, caller, connected, listen, refusal};

#[test]
fn a_process_that_something_else_has_started_becomes_a_member_and_nothing_is_copied() {
    with_family(|family| {
        let (listener, address) = listen(family);
        let child = caller(&address);
        let mut connection = connected(&child, &listener);
        assert_eq!(family.members().len(), 2);
        let copied = bytes_copied();
        let sent = Item::new(family.heap(), 3, 0, &[1000, 0, 2]);
        let id = sent.tensors[0].storage_id();
        connection.send(sent).unwrap();
        child.say("echo");
        child.expect("echoed");
        let came = connection.recv().unwrap();
        came.check();
        assert_eq!((came.tensors[0].storage_id(), bytes_copied()), (id, copied));
        drop((came, connection));
        child.say("echo");
        child.expect("Disconnected");
        child.finish();
    });
}

#[test]
fn who_connects_again_is_the_same_member() {
    with_family(|family| {
        let (listener, address) = listen(family);
        let child = caller(&address);
        let mut connections = Vec::new();
        for _ in 0..3 {
            connections.push(connected(&child, &listener));
            assert_eq!(family.members().len(), 2);
        }
        // Each connection is one of its own.
        let mut last = connections.pop().unwrap();
        child.say("drop");
        child.expect("dropped");
        assert!(matches!(last.recv(), Err(GetError::Disconnected)));
        let mut next = connections.pop().unwrap();
        next.send(Item::new(family.heap(), 1, 1, &[5])).unwrap();
        child.say("echo");
        child.expect("echoed");
        next.recv().unwrap().check();
        child.finish();
    });
}

#[test]
fn the_death_of_who_connected_is_told_and_its_place_is_free_again() {
    with_family(|family| {
        let (listener, address) = listen(family);
        let child = caller(&address);
        let mut connection = connected(&child, &listener);
        child.kill();
        assert!(matches!(connection.recv(), Err(GetError::PeerDied)));
        let refused = connection.send(Item::new(family.heap(), 1, 1, &[5])).unwrap_err();
        assert!(matches!(refused.kind, PutErrorKind::PeerDied), "{refused}");
        family.wait_alone();
    });
}

#[test]
fn who_dies_before_it_has_joined_costs_nobody_anything() {
    with_family(|family| {
        let (listener, address) = listen(family);
        let child = caller(&address);
        // It has connected as far as the kernel is concerned, and is killed where it waits for the answer.
        child.say("connect 60");
        child.wait_until_asleep();
        child.stop();
        let heap = family.heap().clone();
        let killer = std::thread::spawn(move || {
            // It was admitted, and the listener waits for it to join.
            until("it is admitted", || heap.domain().members().len() == 2);
            child.kill();
        });
        let error = refusal(&listener);
        // Before it was told or after.
        let text = error.to_string();
        assert!(
            error.is_of_peer() && (text.contains("it went away") || text.contains("Broken pipe")),
            "{error}"
        );
        killer.join().unwrap();
        family.wait_alone();
    });
}

#[test]
fn nobody_is_waited_for_longer_than_said_and_no_listener_is_an_error() {
    with_family(|family| {
        let (listener, address) = listen(family);
        assert!(matches!(listener.accept_timeout::<u8, u8>(1, SHORT), Err(AcceptError::TimedOut)));
        let child = caller(&address);
        child.say("connect 0.05");
        child.expect("the listener has not accepted");
        drop(listener);
        child.say("connect 60");
        assert!(child.hear().starts_with(&format!("cannot connect to {address}: ")));
        child.finish();
    });
}

#[test]
fn a_listener_that_is_not_there_yet_is_waited_for_if_that_is_wanted() {
    with_family(|family| {
        let stale = std::env::temp_dir().join(format!("tensorferry-test-stale-{}", std::process::id()));
        for address in [address(), stale.to_str().unwrap().to_owned()] {
            let child = caller(&address);
            child.say("await 0.05");
            child.expect(&format!("nobody has come to listen at {address}"));
            child.say("await 60");
            child.wait_until_asleep();
            if address.starts_with('/') {
                // What a killed listener leaves is nobody.
                drop(UnixListener::bind(&address).unwrap());
                child.wait_until_asleep();
            }
            // One that goes before it has accepted anybody is nobody either.
            let former = Listener::bind_in(family.heap(), &address).unwrap();
            let comes = socket::wait_ready(&[(former.as_fd(), Interest::Readable)], Some(DEADLINE)).unwrap();
            assert_eq!(comes, [true]);
            drop(former);
            let listener = Listener::bind_in(family.heap(), &address).unwrap();
            let connection = accept(&listener);
            child.expect("connected");
            drop(connection);
            child.finish();
        }
    });
}

#[test]
fn who_gives_up_again_and_again_takes_one_place() {
    with_family(|family| {
        let (listener, address) = listen(family);
        let child = caller(&address);
        for _ in 0..5 {
            child.say("connect 0.01");
            child.expect("the listener has not accepted");
            assert!(refusal(&listener).is_of_peer());
            assert!(family.members().len() <= 2, "{:?}", family.members());
        }
        drop(connected(&child, &listener));
        assert_eq!(family.members().len(), 2);
        child.finish();
    });
}

#[test]
fn where_too_many_wait_to_be_accepted_nobody_waits_longer_than_said() {
    let address = crate::address();
    let name = rustix::net::SocketAddrUnix::new_abstract_name(&address.as_bytes()[1..]).unwrap();
    let socket = rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None);
    let socket = socket.unwrap();
    rustix::net::bind(&socket, &name).unwrap();
    rustix::net::listen(&socket, 0).unwrap();
    let first = UnixStream::connect_addr(&crate::refusals::socket(&address)).unwrap();
    let child = caller(&address);
    child.say("connect 0.05");
    child.expect("the listener has not accepted");
    child.finish();
    drop((first, socket));
}

#[test]
fn a_path_is_closed_to_others_and_is_removed_with_the_listener() {
    with_family(|family| {
        let path = std::env::temp_dir().join(format!("tensorferry-test-listen-{}", std::process::id()));
        // What a killed listener leaves.
        drop(UnixListener::bind(&path).unwrap());
        let listener = Listener::bind_in(family.heap(), &path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let Err(ListenError::Bind { address, .. }) = Listener::bind_in(family.heap(), &path) else {
            panic!("two listeners at one path");
        };
        assert_eq!(address, path);
        let child = caller(path.to_str().unwrap());
        let connection = connected(&child, &listener);
        drop(listener);
        assert!(!path.exists());
        // A connection does not need its listener.
        drop(connection);
        child.say("echo");
        child.expect("Disconnected");
        child.finish();
        let file = std::env::temp_dir().join(format!("tensorferry-test-file-{}", std::process::id()));
        fs::write(&file, "kept").unwrap();
        assert!(matches!(Listener::bind_in(family.heap(), &file), Err(ListenError::Bind { .. })));
        assert_eq!(fs::read(&file).unwrap(), b"kept");
        fs::remove_file(&file).unwrap();
    });
}
