//! Invitations into a domain, by a text that reaches another process somehow.

use tensorferry_kit::{Child, alone};

use crate::offers::{asked, bearer, cannot_take, takes, with_own_domain};

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
        cannot_take(&one, &token, "is offered no more");
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
