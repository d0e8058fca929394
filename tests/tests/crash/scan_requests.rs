//! Who alone knows that something of the dead may be free now, and cannot see to it.

use tensorferry::GetError;
use tensorferry::domain::Member;
use tensorferry::queue::{Receiver, Sender, channel_in};
use tensorferry::storage::Heap;
use tensorferry_kit::tasks::{Dropper, Passer, Puppet};
use tensorferry_kit::{Audit, Child, DEADLINE, Family, Item, until, with_family};
use tensorferry_os::pidfd::PidFd;

/// How often a process is stopped that may be in the middle of a scan, until it is stopped outside of one.
const MAX_TRIES: usize = 20;

/// Another member in this process, which can leave.
#[track_caller]
fn second(family: &Family) -> Heap {
    let domain = family.heap().domain();
    let admission = domain.admit(&PidFd::of_self().unwrap()).unwrap();
    Heap::attach(domain.fds().unwrap(), admission).unwrap()
}

/// The receiver of a channel whose only sender lies in a message to `senders`, put there by a process that is
/// dead now.
#[track_caller]
fn receiver_of_the_dead(family: &Family, senders: Sender<Sender<Item>>) -> Receiver<Item> {
    let (receivers, passed) = channel_in(family.heap(), 4).unwrap();
    let n_members = family.members().len();
    let passer = family.start(Passer { senders, receivers });
    passer.expect("passed");
    let receiver = passed.get().unwrap();
    drop(passed);
    passer.kill();
    family.wait_members(n_members);
    assert!(matches!(receiver.get_nowait(), Err(GetError::Empty)), "its sender may still arrive");
    receiver
}

#[track_caller]
fn assert_is_told(receiver: &Receiver<Item>) {
    let end = receiver.get_timeout(DEADLINE);
    assert!(matches!(end, Err(GetError::PeerDied | GetError::Disconnected)), "{end:?}");
}

#[test]
fn a_receiver_is_told_although_who_dropped_the_last_sender_has_left() {
    with_family(|family| {
        let second = second(family);
        let (senders, carrier) = channel_in(&second, 4).unwrap();
        let receiver = receiver_of_the_dead(family, senders);
        // With the sender in it, of which nobody else knows; and gone before its service thread looks again.
        drop(carrier);
        drop(second);
        assert_is_told(&receiver);
    });
}

#[test]
fn a_receiver_is_told_although_who_dropped_the_last_sender_is_stopped() {
    let was_shown = (0..MAX_TRIES).any(|_| {
        let mut is_out_of_the_way = false;
        with_family(|family| {
            let (senders, carrier) = channel_in(family.heap(), 4).unwrap();
            let receiver = receiver_of_the_dead(family, senders);
            let dropper = family.start(Dropper { carrier });
            // This process knows no more of it.
            family.heap().collect();
            dropper.say("go");
            dropper.expect("gone");
            dropper.wait_stopped();
            is_out_of_the_way = !holds_anything(family, dropper.member());
            assert_is_told(&receiver);
            dropper.go_on();
            Child::finish(dropper);
        });
        is_out_of_the_way
    });
    assert!(was_shown, "each time it was stopped in the middle of a scan");
}

/// Whether a member has anything, if it is only what its scan is looking at.
fn holds_anything(family: &Family, member: Member) -> bool {
    let live = Audit::of(family.heap().domain()).into_live();
    live.iter().any(|block| block.holders & member.bit() != 0)
}

#[test]
fn what_a_message_of_the_dead_named_is_free_although_who_dropped_it_has_left() {
    with_family(|family| {
        let second = second(family);
        let (to, from) = channel_in::<Item>(&second, 4).unwrap();
        let puppet = family.start(Puppet { to: Some(to), ..Puppet::default() });
        assert_eq!(puppet.ask("put 1 0 1000000"), "put");
        puppet.kill();
        family.wait_members(2);
        drop(from);
        drop(second);
        family.wait_members(1);
        until("the item is free", || Audit::of(family.heap().domain()).live().is_empty());
        // Nobody has what the dead one and the one who has left had populated.
        until("it is given back", || {
            let _ = family.heap().trim();
            family.heap().domain().populated_bytes() < 1_000_000
        });
    });
}

#[test]
fn messages_of_the_dead_that_nobody_can_take_are_discarded() {
    for is_receiver_first in [true, false] {
        with_family(|family| {
            let (to, from) = channel_in::<Item>(family.heap(), 4).unwrap();
            let puppet = family.start(Puppet { to: Some(to.clone()), ..Puppet::default() });
            assert_eq!(puppet.ask("put 1 0 1000000"), "put");
            // It cannot discard the message itself.
            puppet.stop();
            if is_receiver_first {
                drop(from);
                puppet.kill();
                family.wait_members(1);
            } else {
                puppet.kill();
                family.wait_members(1);
                drop(from);
            }
            // The sender here keeps nothing but the channel.
            family.wait_blocks(1);
            drop(to);
        });
    }
}
