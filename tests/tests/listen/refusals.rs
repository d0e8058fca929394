//! Who is not let in.

use std::io::{ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use tensorferry::listen::AcceptError;
use tensorferry_kit::{Item, where_possible, with_family};

use crate::{accept, address, caller, connected, listen, refusal};

/// The head of a message: what it is, version 1, and the length of what follows.
const HEAD: [u8; 8] = *b"TFLI\x01\0\0\0";

pub(crate) fn socket(address: &str) -> SocketAddr {
    SocketAddr::from_abstract_name(&address[1..]).unwrap()
}

#[test]
fn who_says_anything_else_is_refused_and_the_next_one_is_let_in() {
    with_family(|family| {
        let (listener, address) = listen(family);
        let with_len = |len_bytes: u32| [&HEAD[..], &len_bytes.to_le_bytes()].concat();
        let other_version = [b"TFLI\x02\0\0\0", &[0; 4][..]].concat();
        let hostile = [
            (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "another protocol"),
            (other_version, "another version"),
            (with_len(u32::MAX), "too long"),
            ([with_len(3), vec![0xff, 0xff, 0xff]].concat(), "malformed"),
            ([with_len(1), vec![9]].concat(), "malformed"),
        ];
        for (said, why) in hostile {
            let mut stream = UnixStream::connect_addr(&socket(&address)).unwrap();
            stream.write_all(&said).unwrap();
            let error = refusal(&listener);
            assert!(matches!(error, AcceptError::BadGreeting { .. }) && error.is_of_peer());
            assert!(error.to_string().contains(why), "{error}");
            // It is told why.
            let mut told = Vec::new();
            // What the listener has not read is an error first.
            while let Err(error) = stream.read_to_end(&mut told) {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            }
            assert!(String::from_utf8_lossy(&told).contains(why), "{told:?}");
        }
        assert_eq!(family.members().len(), 1);
        let child = caller(&address);
        drop(connected(&child, &listener));
        child.finish();
    });
}

#[test]
fn who_says_nothing_or_goes_away_does_not_keep_others_waiting() {
    with_family(|family| {
        let (listener, address) = listen(family);
        drop(UnixStream::connect_addr(&socket(&address)).unwrap());
        assert!(refusal(&listener).to_string().contains("it went away"));
        let mut half = UnixStream::connect_addr(&socket(&address)).unwrap();
        half.write_all(&HEAD).unwrap();
        let child = caller(&address);
        child.say("connect 60");
        assert!(refusal(&listener).to_string().contains("it said nothing"));
        drop(accept(&listener));
        child.expect("connected");
        child.finish();
        drop(half);
    });
}

#[test]
fn who_listens_and_is_no_listener_is_told_apart() {
    let address = address();
    let listener = UnixListener::bind_addr(&socket(&address)).unwrap();
    let child = caller(&address);
    for (answer, why) in [
        (&b"220 mail.example ESMTP\r\n"[..], "another protocol"),
        (&b""[..], "it went away"),
        (&HEAD[..], "it went away"),
    ] {
        child.say("connect 60");
        let (mut stream, _) = listener.accept().unwrap();
        let mut hello = [0; 12];
        stream.read_exact(&mut hello).unwrap();
        stream.write_all(answer).unwrap();
        drop(stream);
        let said = child.hear();
        assert!(said.contains("is no listener of this library") && said.contains(why), "{said}");
    }
    child.finish();
}

#[test]
fn another_user_is_refused() {
    where_possible(|| {
        let nobody = 65_534;
        let own_uid = rustix::process::geteuid();
        if !own_uid.is_root() {
            tensorferry_kit::not_here("root, which can be another user");
        }
        with_family(|family| {
            let (listener, address) = listen(family);
            // The calls change this thread only.
            let other = rustix::process::Uid::from_raw(nobody);
            let stream = std::thread::spawn(move || {
                rustix::thread::set_thread_res_uid(own_uid, other, own_uid).unwrap();
                UnixStream::connect_addr(&socket(&address)).unwrap()
            });
            let error = refusal(&listener);
            assert!(
                matches!(error, AcceptError::OtherUser { uid, own_uid: 0, .. } if uid == nobody),
                "{error}"
            );
            assert!(error.is_of_peer());
            drop(stream.join().unwrap());
        });
    });
}

#[test]
fn nobody_connects_to_the_listener_of_another_user() {
    where_possible(|| {
        let own_uid = rustix::process::geteuid();
        if !own_uid.is_root() {
            tensorferry_kit::not_here("root, which can be another user");
        }
        let address = address();
        let name = socket(&address);
        let listener = std::thread::spawn(move || {
            let other = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(own_uid, other, own_uid).unwrap();
            UnixListener::bind_addr(&name).unwrap()
        });
        let listener = listener.join().unwrap();
        let child = caller(&address);
        child.say("connect 60");
        let said = child.hear();
        assert!(said.starts_with(&format!("user 65534 listens at {address}: ")), "{said}");
        child.finish();
        drop(listener);
    });
}

#[test]
fn other_types_than_the_listener_has_in_mind_are_an_error() {
    with_family(|family| {
        let (listener, address) = listen(family);
        let child = caller(&address);
        child.say("connect 60");
        let error = listener.accept_timeout::<Item, u8>(1, tensorferry_kit::DEADLINE).unwrap_err();
        assert!(error.is_of_peer() && error.to_string().contains("it went away"), "{error}");
        assert!(child.hear().contains("the queue carries another type than"));
        // A connection of any type is whatever the other side likes.
        child.say("connect 60");
        let any = listener.accept_any(1, None).unwrap();
        child.expect("connected");
        let (sender, receiver) = any.into_ends::<Item, Item>().unwrap();
        sender.put(Item::new(family.heap(), 1, 0, &[3])).unwrap();
        child.say("echo");
        child.expect("echoed");
        receiver.get().unwrap().check();
        child.finish();
    });
}
