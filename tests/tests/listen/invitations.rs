//! Invitations into a domain, by a text that reaches another process somehow.

use tensorferry::listen::{invite_in, offer_in};
use tensorferry::queue::{GetError, channel_in};
use tensorferry_kit::{Child, DEADLINE, alone, with_family};

use crate::offers::{asked, bearer, cannot_take, takes, with_own_domain};
use crate::publishing::does;

#[track_caller]
fn cannot_join(child: &Child, token: &str, why: &str) {
    let said = asked(child, &format!("join {token}"));
    assert!(said.contains(why), "{said}");
}

#[test]
fn any_number_of_processes_join_by_one_invitation_and_what_they_make_lies_there() {
    alone(|| {
        let maker = with_own_domain();
        let (token, domain) = (asked(&maker, "invite"), asked(&maker, "domain"));
        let guests = [bearer(), bearer()];
        for guest in &guests {
            assert_eq!(asked(guest, &format!("join {token}")), "joined");
            assert_eq!(asked(guest, &format!("join {token}")), "joined", "a member already");
            assert_eq!(asked(guest, "domain"), domain);
        }
        let [one, other] = guests;
        takes(&maker, &asked(&one, "offer 1"), "1");
        takes(&other, &asked(&one, "offer 2"), "2");
        assert_eq!(asked(&maker, &format!("join {token}")), "joined", "the one that invites");
        cannot_take(&one, &token, "is an invitation");
        for child in [maker, one, other] {
            child.finish();
        }
    });
}

#[test]
fn a_process_that_has_a_domain_keeps_it_as_its_default_one() {
    alone(|| {
        let (maker, guest) = (with_own_domain(), with_own_domain());
        let own = asked(&guest, "domain");
        assert_eq!(asked(&guest, &format!("join {}", asked(&maker, "invite"))), "joined");
        assert_eq!(asked(&guest, "domain"), own);
        takes(&guest, &asked(&maker, "offer 1"), "1");
        for child in [maker, guest] {
            child.finish();
        }
    });
}

#[test]
fn an_invitation_ends_when_it_is_dropped_and_one_that_was_left_with_its_process() {
    alone(|| {
        let (maker, early, late) = (with_own_domain(), bearer(), bearer());
        let token = asked(&maker, "invite");
        asked(&maker, "drop");
        cannot_join(&late, &token, "cannot connect to @tensorferry-offers-");
        let token = asked(&maker, "invite-for-good");
        asked(&maker, "drop");
        assert_eq!(asked(&early, &format!("join {token}")), "joined");
        maker.finish();
        cannot_join(&late, &token, "cannot connect to @tensorferry-offers-");
        for child in [early, late] {
            child.finish();
        }
    });
}

#[test]
fn a_process_is_invited_into_any_domain_of_this_one() {
    with_family(|family| {
        let invitation = invite_in(family.heap()).unwrap();
        let guest = bearer();
        assert_eq!(asked(&guest, &format!("join {}", invitation.token())), "joined");
        assert_eq!(asked(&guest, "domain"), family.heap().domain().id().to_string());
        guest.finish();
    });
}

#[test]
fn the_end_is_announced_in_every_domain() {
    with_family(|family| {
        for (is_announced, own) in [(true, false), (true, true), (false, true)] {
            let (sender, receiver) = channel_in::<u8>(family.heap(), 1).unwrap();
            let child = if own { with_own_domain() } else { bearer() };
            let offered = offer_in(family.heap(), &sender).unwrap();
            assert_eq!(asked(&child, &format!("hold {}", offered.token())), "hold");
            drop((sender, offered));
            if is_announced {
                does(&child, "announce");
            }
            child.kill();
            let error = receiver.get_timeout(DEADLINE).unwrap_err();
            let is_told = matches!(error, GetError::PeerDied);
            assert_eq!(is_told, !is_announced, "{error}");
            assert!(is_told || matches!(error, GetError::Disconnected), "{error}");
        }
    });
}

#[test]
fn who_joins_by_the_token_of_an_offer_takes_nothing() {
    alone(|| {
        let (maker, guest) = (with_own_domain(), bearer());
        let token = asked(&maker, "offer 1");
        assert_eq!(asked(&guest, &format!("join {token}")), "joined");
        assert_eq!(asked(&maker, "taken"), "false");
        takes(&guest, &token, "1");
        for child in [maker, guest] {
            child.finish();
        }
    });
}
