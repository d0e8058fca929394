//! A process that offers values, and takes those that others offer.

use serde::{Deserialize, Serialize};
use tensorferry::domain::Domain;
use tensorferry::listen::{
    Invitation, Offer, Token, announce_end, invite, is_offered, join_timeout, offer, offer_any, take,
    take_any, withdraw,
};
use tensorferry::queue::AnyEnd;
use tensorferry::reduce::bytes_copied;
use tensorferry::storage::Heap;
use tensorferry::tensor::{Tensor, TensorMut};

use super::Shelf;
use crate::{DEADLINE, Link, RootTask};

/// Offers shelves, and takes them. Hears
///
/// - `own`, and makes a domain of its own;
/// - `offer NUMBER`, and says the token; `taken`, and says whether each was taken; `drop`, and offers none
///   any more, and invites nobody;
/// - `leave NUMBER`, and says the token; `unopened`, and says how many are left;
/// - `take TOKEN`, and says the number of what it has taken, or why there is none;
/// - `wrong TOKEN`, and says why that is no number;
/// - `race TOKEN`, takes it in eight threads at once, and says in how many it was there;
/// - `invite` and `invite-for-good`, and says the token; `join TOKEN`, and says `joined`, or why it cannot;
///   `domain`, and says the number of its default domain;
/// - `withdraw TOKEN` and `offered TOKEN`, and says whether it did and whether it is;
/// - `hold TOKEN`, and has the end of a queue that it stands for; `announce`, and announces its end;
/// - `bytes TOKEN`, and says the sum of the bytes that it has taken; `leave-bytes`, and says the token of 6
///   and 5;
/// - `blocks`, and says how many somebody holds of those that it has made.
#[derive(Debug, Serialize, Deserialize)]
pub struct Bearer;

impl RootTask for Bearer {
    const NAME: &'static str = "bearer";

    fn run(self, link: &Link) {
        let mut bearing = Bearing::default();
        while let Ok(Some(line)) = link.hear_until(None) {
            let (verb, what) = line.split_once(' ').unwrap_or((&line, ""));
            link.say(&bearing.obey(verb, what));
        }
    }
}

/// What it has.
#[derive(Default)]
struct Bearing {
    offers: Vec<Offer>,
    invitations: Vec<Invitation>,
    shelves: Vec<Shelf>,
    senders: Vec<AnyEnd>,
}

impl Bearing {
    fn obey(&mut self, verb: &str, what: &str) -> String {
        let Self { offers, invitations, shelves, senders } = self;
        let token = || what.parse::<Token>().unwrap();
        let offered = || {
            let shelf = Shelf::new(Heap::current().unwrap(), what.parse().unwrap());
            offer(&shelf).unwrap()
        };
        match verb {
            "own" => {
                let small = Domain::builder().address_space_bytes(1 << 30).limit_bytes(64 << 20);
                Heap::create(small).unwrap().make_current().unwrap();
            }
            "offer" => {
                offers.push(offered());
                return offers.last().unwrap().token().to_string();
            }
            "taken" => {
                let taken: Vec<_> = offers.iter().map(|offer| offer.is_taken().to_string()).collect();
                return taken.join(" ");
            }
            "leave" => return offered().leave().to_string(),
            "unopened" => return Heap::current().unwrap().n_unopened_parcels().to_string(),
            "take" => match take::<Shelf>(token()) {
                Ok(shelf) => {
                    shelves.push(shelf);
                    let numbers: Vec<_> = shelves.iter().map(Shelf::check).collect();
                    assert_eq!(bytes_copied(), 0);
                    return numbers.last().unwrap().to_string();
                }
                Err(error) => return error.to_string(),
            },
            "wrong" => return take::<u64>(token()).unwrap_err().to_string(),
            "race" => {
                let taken = std::thread::scope(|scope| {
                    let threads: Vec<_> =
                        (0..8).map(|_| scope.spawn(|| take::<Shelf>(token()).is_ok())).collect();
                    threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
                });
                return taken.into_iter().filter(|is_ok| *is_ok).count().to_string();
            }
            "invite" => {
                let invitation = invite().unwrap();
                let token = invitation.token().to_string();
                invitations.push(invitation);
                return token;
            }
            "invite-for-good" => return invite().unwrap().leave().to_string(),
            "join" => match join_timeout(token(), DEADLINE) {
                Ok(()) => return "joined".to_owned(),
                Err(error) => return error.to_string(),
            },
            "hold" => senders.push(take_any(token(), Some(DEADLINE)).unwrap()),
            "announce" => announce_end(),
            "withdraw" => return withdraw(token()).to_string(),
            "offered" => return is_offered(token()).to_string(),
            "domain" => return Heap::current().unwrap().domain().id().to_string(),
            "bytes" => {
                let bytes: Tensor<u8> = take_any(token(), None).unwrap();
                return bytes.to_vec().iter().map(|&byte| u32::from(byte)).sum::<u32>().to_string();
            }
            "leave-bytes" => {
                let bytes = TensorMut::from_slice(&[6_u8, 5], [2]).unwrap().freeze();
                return offer_any(&bytes).unwrap().leave().to_string();
            }
            "blocks" => {
                let heap = Heap::current().unwrap();
                heap.collect();
                return heap.stats().own.live_blocks.to_string();
            }
            _ => {
                offers.clear();
                invitations.clear();
                shelves.clear();
            }
        }
        verb.to_owned()
    }
}
