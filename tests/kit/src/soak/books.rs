//! What is noted down in shared memory, and the account in the end.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tensorferry::storage::Heap;
use tensorferry::tensor::SharedTensor;

/// No producer puts more.
pub(super) const MAX_ITEMS: usize = 20_000;

/// What became of one producer's messages.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ledger {
    /// How many it has put.
    n_put: SharedTensor<i64>,
    /// How often each came.
    pub(super) came: SharedTensor<u8>,
}

impl Ledger {
    pub(super) fn new(heap: &Heap) -> Self {
        Self {
            n_put: SharedTensor::zeros_in(heap, [1]).unwrap(),
            came: SharedTensor::zeros_in(heap, [MAX_ITEMS]).unwrap(),
        }
    }

    /// The producer has put so many.
    pub(super) fn note_put(&self, n_put: usize) {
        self.n_put.store([0], i64::try_from(n_put).unwrap()).unwrap();
    }
}

/// What a taker has in its hands: one message or none.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Hand(SharedTensor<i64>);

impl Hand {
    pub(super) fn empty(heap: &Heap) -> Self {
        Self(SharedTensor::zeros_in(heap, [1]).unwrap())
    }

    pub(super) fn take(&self, sender: u32, sequence: u64) {
        let name = (i64::from(sender) + 1) << 32 | i64::try_from(sequence).unwrap();
        self.0.store([0], name).unwrap();
    }

    pub(super) fn give_away(&self) {
        self.0.store([0], 0).unwrap();
    }

    fn content(&self) -> Option<(usize, usize)> {
        let name = self.0.load([0]).unwrap();
        let (sender, sequence) = (name >> 32, name & 0xffff_ffff);
        (name != 0).then(|| (usize::try_from(sender - 1).unwrap(), usize::try_from(sequence).unwrap()))
    }
}

/// All ledgers of a soak, by producer, and what the dead had in their hands.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) ledgers: Vec<Ledger>,
    died_with: BTreeSet<(usize, usize)>,
    n_died_without_note: u64,
}

/// The account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Account {
    /// Messages that were promised.
    pub put: u64,
    /// Messages that came.
    pub came: u64,
    /// Messages that came more than once.
    pub doubled: u64,
    /// Messages that are missing and that a killed taker had in its hands, by its own note.
    pub died_with_taker: u64,
    /// Messages that are missing and in no note.
    pub missing_without_note: u64,
    /// Takers that were killed with empty hands: the most that may be missing without a note.
    pub killed_without_note: u64,
}

impl Books {
    /// A taker was killed.
    pub(super) fn note_death(&mut self, hand: &Hand) {
        match hand.content() {
            Some(message) => {
                self.died_with.insert(message);
            }
            None => self.n_died_without_note += 1,
        }
    }

    /// Adds everything up.
    pub(super) fn account(&self) -> Account {
        let mut account = Account { killed_without_note: self.n_died_without_note, ..Account::default() };
        for (sender, ledger) in self.ledgers.iter().enumerate() {
            let n_put = usize::try_from(ledger.n_put.load([0]).unwrap()).unwrap();
            account.put += n_put as u64;
            for (sequence, times) in ledger.came.to_vec().into_iter().enumerate() {
                account.came += u64::from(times > 0);
                account.doubled += u64::from(times > 1);
                // The next one may have been put without its producer living to count it.
                assert!(times == 0 || sequence <= n_put, "message {sender}/{sequence} of {n_put} came");
                if times == 0 && sequence < n_put {
                    let is_noted = self.died_with.contains(&(sender, sequence));
                    account.died_with_taker += u64::from(is_noted);
                    account.missing_without_note += u64::from(!is_noted);
                }
            }
        }
        account
    }
}

impl Account {
    /// Nothing is doubled, and nothing is missing but what died with its taker.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.doubled == 0 && self.missing_without_note <= self.killed_without_note && self.came > 0
    }

    pub(super) fn add(&mut self, other: Self) {
        self.put += other.put;
        self.came += other.came;
        self.doubled += other.doubled;
        self.died_with_taker += other.died_with_taker;
        self.missing_without_note += other.missing_without_note;
        self.killed_without_note += other.killed_without_note;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensorferry::Domain;

    #[test]
    fn what_is_missing_is_told_from_what_died_with_its_taker() {
        let heap = Heap::create(Domain::builder().address_space_bytes(16 << 20)).unwrap();
        let mut books = Books { ledgers: vec![Ledger::new(&heap), Ledger::new(&heap)], ..Books::default() };
        books.ledgers[1].note_put(4);
        for came in [0, 3] {
            books.ledgers[1].came.fetch_add([came], 1).unwrap();
        }
        let hand = Hand::empty(&heap);
        hand.take(1, 2);
        books.note_death(&hand);
        let account = books.account();
        assert_eq!((account.put, account.came, account.died_with_taker), (4, 2, 1));
        assert!(!account.is_right(), "message 1 is missing and nobody had it");
        hand.give_away();
        books.note_death(&hand);
        assert!(books.account().is_right(), "one who died had no time for a note");
        books.ledgers[1].came.fetch_add([3], 1).unwrap();
        assert!(!books.account().is_right(), "message 3 came twice");
    }
}
