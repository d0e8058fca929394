//! Ends of a channel that a process sent before it was killed: who got one and drops it ends what hung on it.

use std::time::Duration;

use tensorferry::queue::{GetError, channel_in};
use tensorferry_kit::tasks::MakeChannel;
use tensorferry_kit::{DEADLINE, with_family};

/// The maker of a channel owns its memory, so nobody owns it after the death.
#[test]
fn the_last_sender_came_from_a_dead_process_and_is_dropped() {
    with_family(|family| {
        let (receivers, take_receiver) = channel_in(family.heap(), 1).unwrap();
        let (senders, take_sender) = channel_in(family.heap(), 1).unwrap();
        let maker = family.start(MakeChannel { receivers, senders });
        maker.expect("made");
        let receiver = take_receiver.get().unwrap();
        maker.kill();
        family.wait_alone();
        // The sender is on its way, so the channel has one.
        assert!(matches!(receiver.get_timeout(Duration::from_millis(300)), Err(GetError::Empty)));
        let sender = take_sender.get().unwrap();
        sender.put(7).unwrap();
        assert_eq!(receiver.get().unwrap(), 7);
        drop(sender);
        let end = receiver.get_timeout(DEADLINE);
        assert!(matches!(end, Err(GetError::PeerDied)), "{end:?}");
    });
}
