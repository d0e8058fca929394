//! What is offered to one process, by a text that reaches it somehow.

use tensorferry::Heap;
use tensorferry::listen::{
    ConnectError, PublishError, Token, offer_any, offer_in, take, take_any, take_timeout,
};
use tensorferry::queue::{GetError, spsc_in};
use tensorferry::reduce::{DecodeError, EncodeError};
use tensorferry::tensor::{AnyTensor, Tensor, TensorMut};
use tensorferry_kit::tasks::Bearer;
use tensorferry_kit::{Child, DEADLINE, Loner, alone, uncounted, until, with_family};

use crate::SHORT;
use crate::publishing::does;

pub(super) fn bearer() -> Child {
    Loner::start(&Bearer, &[])
}

/// A process that has a domain.
pub(super) fn with_own_domain() -> Child {
    let child = bearer();
    does(&child, "own");
    child
}

#[track_caller]
pub(super) fn asked(child: &Child, line: &str) -> String {
    child.say(line);
    child.hear()
}

#[track_caller]
pub(super) fn takes(child: &Child, token: &str, number: &str) {
    assert_eq!(asked(child, &format!("take {token}")), number);
}

#[track_caller]
pub(super) fn cannot_take(child: &Child, token: &str, why: &str) {
    let said = asked(child, &format!("take {token}"));
    assert!(said.contains(why), "{said}");
}

#[test]
fn a_token_is_a_value_in_any_process_that_gets_it_and_in_one_only() {
    alone(|| {
        let (maker, stranger, late) = (with_own_domain(), bearer(), bearer());
        let (kept, left) = (asked(&maker, "offer 1"), asked(&maker, "leave 2"));
        assert_eq!((asked(&maker, "taken"), asked(&maker, "unopened")), ("false".into(), "1".into()));
        takes(&stranger, &kept, "1");
        // It is a member now.
        takes(&stranger, &left, "2");
        assert_eq!((asked(&maker, "taken"), asked(&maker, "unopened")), ("true".into(), "0".into()));
        for token in [&kept, &left] {
            cannot_take(&late, token, "was taken already");
            cannot_take(&maker, token, "was taken already");
        }
        // One of the new members offers something to another one, and the first one to itself.
        takes(&late, &asked(&stranger, "offer 3"), "3");
        takes(&maker, &asked(&maker, "offer 4"), "4");
        for child in [maker, stranger, late] {
            child.finish();
        }
    });
}

#[test]
fn of_many_who_come_at_once_one_has_it() {
    alone(|| {
        let maker = with_own_domain();
        let token = asked(&maker, "offer 1");
        let crowd: Vec<_> = (0..4).map(|_| bearer()).collect();
        crowd.iter().for_each(|child| child.say(format!("race {token}")));
        assert_eq!(crowd.iter().map(Child::hear_number).sum::<u64>(), 1);
        crowd.into_iter().for_each(Child::finish);
        maker.finish();
    });
}

#[test]
fn a_member_takes_it_while_the_one_that_offers_it_is_stopped() {
    alone(|| {
        let (maker, member, stranger) = (with_own_domain(), bearer(), bearer());
        takes(&member, &asked(&maker, "offer 1"), "1");
        let (one, two) = (asked(&maker, "leave 2"), asked(&maker, "leave 3"));
        maker.stop();
        takes(&member, &one, "2");
        // Who is no member has to be let in.
        stranger.say(format!("take {two}"));
        stranger.wait_until_asleep();
        assert!(!stranger.has_spoken());
        maker.go_on();
        stranger.expect("3");
        for child in [maker, member, stranger] {
            child.finish();
        }
    });
}

#[test]
fn an_offer_ends_with_its_process_and_what_was_taken_stays() {
    alone(|| {
        let (member, stranger) = (bearer(), bearer());
        for is_killed in [true, false] {
            let maker = with_own_domain();
            takes(&member, &asked(&maker, "leave 1"), "1");
            let (one, two) = (asked(&maker, "leave 2"), asked(&maker, "leave 3"));
            assert_eq!(asked(&maker, "unopened"), "2");
            if is_killed {
                maker.kill();
            } else {
                maker.finish();
            }
            cannot_take(&stranger, &one, "cannot connect to @tensorferry-offers-");
            until("its death is noticed", || {
                let said = asked(&member, &format!("take {two}"));
                said.contains("is offered no more")
            });
        }
        member.finish();
        stranger.finish();
    });
}

#[test]
fn memory_comes_back_from_a_process_that_was_killed_with_what_it_had_taken() {
    alone(|| {
        let maker = with_own_domain();
        let before = asked(&maker, "blocks");
        let token = asked(&maker, "leave 1");
        let taker = bearer();
        takes(&taker, &token, "1");
        taker.kill();
        until("all has come back", || asked(&maker, "blocks") == before);
        // Of what nobody takes, what is dropped comes back.
        let token = asked(&maker, "offer 2");
        assert_ne!(asked(&maker, "blocks"), before);
        does(&maker, "drop");
        until("all has come back", || asked(&maker, "blocks") == before);
        let stranger = bearer();
        cannot_take(&stranger, &token, "is offered no more");
        takes(&stranger, &asked(&maker, "offer 3"), "3");
        stranger.finish();
        maker.finish();
    });
}

#[test]
fn nobody_is_let_in_where_nothing_is_offered_any_more() {
    alone(|| {
        let (maker, stranger) = (with_own_domain(), bearer());
        let token = asked(&maker, "offer 1");
        does(&maker, "drop");
        cannot_take(&stranger, &token, "cannot connect to @tensorferry-offers-");
        takes(&stranger, &asked(&maker, "offer 2"), "2");
        stranger.finish();
        maker.finish();
    });
}

#[test]
fn an_offer_that_was_left_is_withdrawn_while_nobody_has_it() {
    alone(|| {
        let (maker, taker) = (with_own_domain(), bearer());
        let (one, two) = (asked(&maker, "leave 1"), asked(&maker, "leave 2"));
        takes(&taker, &two, "2");
        for (token, is_there) in [(&one, "true"), (&two, "false"), (&one, "false")] {
            assert_eq!(asked(&maker, &format!("offered {token}")), is_there);
            assert_eq!(asked(&taker, &format!("withdraw {token}")), "false", "it is another one's");
            assert_eq!(asked(&maker, &format!("withdraw {token}")), is_there);
        }
        cannot_take(&taker, &one, "is offered no more");
        assert_eq!(asked(&maker, "unopened"), "0");
        maker.finish();
        taker.finish();
    });
}

#[test]
fn another_type_is_an_error_and_the_value_is_still_offered() {
    alone(|| {
        let (maker, taker) = (with_own_domain(), bearer());
        let token = asked(&maker, "offer 1");
        let said = asked(&taker, &format!("wrong {token}"));
        assert!(said.contains("another type than u64"), "{said}");
        takes(&taker, &token, "1");
        maker.finish();
        taker.finish();
    });
    with_family(|family| {
        let tensor = TensorMut::from_slice_in(family.heap(), &[1.0_f32, 2.0], [2]).unwrap().freeze();
        let offered = offer_in(family.heap(), &tensor).unwrap();
        let error = take::<Tensor<u32>>(offered.token()).unwrap_err();
        assert!(matches!(error, ConnectError::OfferedType { .. }), "{error}");
        let any: AnyTensor = take_any(offered.token(), None).unwrap();
        assert_eq!(any.downcast::<f32>().unwrap(), tensor);
        // Without types it is taken for what it is not, and is gone.
        let offered = offer_in(family.heap(), &tensor).unwrap();
        let error = take_any::<Tensor<u32>>(offered.token(), Some(DEADLINE)).unwrap_err();
        assert!(matches!(error, ConnectError::Decode(_)), "{error}");
        assert!(offered.is_taken());
    });
}

#[test]
fn exclusive_tensors_move_and_come_back() {
    with_family(|family| {
        let tensor = TensorMut::<u8>::zeros_in(family.heap(), [1000]).unwrap();
        let offered = offer_in(family.heap(), &tensor).unwrap();
        assert!(tensor.is_moved());
        offered.take_back();
        assert!(!tensor.is_moved());
        let offered = offer_in(family.heap(), &tensor).unwrap();
        let mut taken: TensorMut<u8> = take_timeout(offered.token(), DEADLINE).unwrap();
        taken.as_mut_slice().fill(7);
        offered.take_back();
        assert!(tensor.is_moved(), "somebody has it");
        // Nor is it lost when there can be no offer.
        let other = Heap::create(tensorferry::Domain::builder().address_space_bytes(64 << 20)).unwrap();
        let error = offer_in(&other, &taken).unwrap_err();
        assert!(matches!(error, PublishError::Encode(EncodeError::Transit(_))), "{error}");
        assert!(taken.as_slice().iter().all(|&element| element == 7));
    });
}

#[test]
fn an_end_of_a_queue_is_one_while_it_is_offered() {
    with_family(|family| {
        let (sender, mut receiver) = spsc_in::<u8>(family.heap(), 1).unwrap();
        let offered = offer_in(family.heap(), &sender).unwrap();
        drop(sender);
        assert!(matches!(receiver.get_timeout(SHORT), Err(GetError::Empty)));
        let mut sender: tensorferry::queue::SoleSender<u8> = take(offered.token()).unwrap();
        sender.put(1).unwrap();
        assert_eq!(receiver.get().unwrap(), 1);
        drop(sender);
        assert!(matches!(receiver.get_timeout(SHORT), Err(GetError::Empty)), "the offer has one, too");
        drop(offered);
        assert!(matches!(receiver.get_timeout(DEADLINE), Err(GetError::Disconnected)));
    });
}

#[test]
fn a_token_that_somebody_has_made_up_is_an_error() {
    with_family(|family| {
        let offered = offer_in(family.heap(), &1_u8).unwrap();
        let token = offered.token().to_string();
        let parts: Vec<_> = token.split('-').collect();
        for (at, others) in
            [(1, "123456789abcdef"), (4, "0"), (4, "ffffffffffffffff"), (4, "1"), (4, "8000000000000040")]
        {
            let mut parts = parts.clone();
            parts[at] = others;
            let error = take::<u8>(parts.join("-").parse().unwrap()).unwrap_err();
            let is_right = match error {
                ConnectError::Connect { .. } => at == 1,
                ConnectError::NoValue { .. }
                | ConnectError::NotOffered { .. }
                | ConnectError::Decode(DecodeError::Storage(_)) => at == 4,
                _ => false,
            };
            assert!(is_right, "{error}");
        }
        assert_eq!(take::<u8>(offered.token()).unwrap(), 1);
    });
}

#[test]
fn a_token_travels_in_a_message_and_in_text() {
    with_family(|family| {
        let offered = offer_in(family.heap(), &1_u8).unwrap();
        let text = serde_json::to_string(&offered.token()).unwrap();
        assert_eq!(text, format!("\"{}\"", offered.token()));
        let token: Token = serde_json::from_str(&text).unwrap();
        assert!(serde_json::from_str::<Token>("\"tf1-1\"").unwrap_err().to_string().contains("no token"));
        assert_eq!(take::<u8>(token).unwrap(), 1);
    });
    uncounted(|| {
        let offered = offer_any(&2_u8).unwrap();
        assert_eq!(take::<u8>(offered.token()).unwrap(), 2);
    });
}
