//! The lease protocol of `tensorferry-storage/src/lease.rs` with its recovery in `sweep.rs`: every shared
//! access is a step. Workers lease messages, acknowledge them or give them back. A worker is a thread of a
//! process. Any process may be killed, or stopped for ever, before any step, and a sweep may be broken off
//! and started over.
//!
//! What must hold: a message is in the hands of one worker at a time, is acknowledged once, and as long as a
//! worker is neither dead nor stopped, everything that no stopped one holds is acknowledged in the end.

use crate::explore::{Model, explore};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Slot {
    Ready,
    Claimed(u8),
    Moved(u8),
    Free,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Tag {
    Free,
    Filling,
    Leased,
    Waiting,
    Taking,
}

/// A record: its state word, and which message its data holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Record {
    serial: u8,
    deliveries: u8,
    owner: u8,
    tag: Tag,
    message: u8,
}

/// What of a record the compare-and-swap compares.
type Seen = (u8, u8, u8, Tag);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Idle,
    // What was given back comes first.
    Look { returns: u8, record: u8 },
    Claim { record: u8 },
    Taking { record: u8, seen: Seen },
    // Then the next message.
    Next,
    Record { message: u8 },
    Fill { message: u8, record: u8, seen: Seen },
    Move { message: u8, record: u8, seen: Seen },
    Count { message: u8, record: u8, seen: Seen },
    FreeSlot { message: u8, record: u8, seen: Seen },
    // With a lease.
    Has { record: u8, seen: Seen },
    Acknowledge { record: u8, seen: Seen },
    GiveBack { record: u8, seen: Seen },
    CountReturn,
    Dead,
}

/// Where a sweep is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sweep {
    Slot { victim: u8, slot: u8 },
    Record { victim: u8, record: u8 },
    CountReturn { victim: u8 },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    slots: Vec<Slot>,
    records: Vec<Record>,
    returns: u8,
    at: Vec<At>,
    /// Each worker's own: the count at which it found nothing waiting.
    returns_seen: Vec<Option<u8>>,
    /// Bits of processes.
    stopped: u8,
    to_sweep: u8,
    sweep: Option<Sweep>,
    /// How often each message was acknowledged.
    acknowledged: Vec<u8>,
    kills_left: u8,
    stops_left: u8,
    restarts_left: u8,
    gives_left: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// The record counts before the slot says so.
    CountsFirst,
    /// A sweep looks at records before slots.
    RecordsFirst,
    /// A sweep does not count returns.
    SweepTellsNobody,
    /// A return is counted before the message is given back, and not after.
    CountsBefore,
    /// What the dead one was filling waits to be delivered.
    FillingWaits,
    /// A record that was never filled seems to hold the first message.
    FreshHoldsFirst,
    /// A sweep frees what the dead one was filling, and the record still seems to hold it.
    FreedHolds,
}

struct Leasing {
    /// The process of each worker.
    processes: &'static [u8],
    n_messages: u8,
    n_records: u8,
    kills: u8,
    stops: u8,
    restarts: u8,
    gives: u8,
    broken: Broken,
}

fn seen(record: Record) -> Seen {
    (record.serial, record.deliveries, record.owner, record.tag)
}

/// The compare-and-swap of a record's state word; `None` when it has changed.
fn change(record: &mut Record, from: Seen, tag: Tag, owner: u8) -> Option<Seen> {
    if seen(*record) != from {
        return None;
    }
    let delivered = tag == Tag::Leased;
    let freed = tag == Tag::Free;
    record.tag = tag;
    record.owner = owner;
    record.deliveries = if freed { 0 } else { record.deliveries + u8::from(delivered) };
    record.serial += u8::from(freed);
    Some(seen(*record))
}

const NOBODY: u8 = u8::MAX;

impl Leasing {
    fn workers(&self) -> std::ops::Range<u8> {
        0..u8::try_from(self.processes.len()).expect("few workers")
    }

    fn process(&self, worker: u8) -> u8 {
        self.processes[usize::from(worker)]
    }

    fn n_processes(&self) -> u8 {
        self.processes.iter().max().map_or(0, |last| last + 1)
    }

    /// Whether a worker is neither dead nor stopped.
    fn can_move(&self, state: &State, worker: u8) -> bool {
        state.at[usize::from(worker)] != At::Dead && state.stopped & 1 << self.process(worker) == 0
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each place where a worker can be")]
    fn step(&self, state: &State, worker: u8, steps: &mut Vec<State>) {
        let me = usize::from(worker);
        let owner = self.process(worker);
        let mut go = |change: &dyn Fn(&mut State) -> At| {
            let mut next = state.clone();
            let at = change(&mut next);
            next.at[me] = at;
            steps.push(next);
        };
        let n_records = self.n_records;
        match state.at[me] {
            At::Idle if state.returns_seen[me] == Some(state.returns) => {
                if state.slots.contains(&Slot::Ready) {
                    go(&|_| At::Next);
                }
            }
            At::Idle => go(&|next| At::Look { returns: next.returns, record: 0 }),
            At::Look { returns, record } if record == n_records => go(&|next| {
                next.returns_seen[me] = Some(returns);
                At::Next
            }),
            At::Look { returns, record } => go(&|next| match next.records[usize::from(record)].tag {
                Tag::Waiting => At::Claim { record },
                _ => At::Look { returns, record: record + 1 },
            }),
            At::Claim { record } => go(&|next| {
                let record_now = &mut next.records[usize::from(record)];
                let from = seen(*record_now);
                if from.3 != Tag::Waiting {
                    return At::Idle;
                }
                match change(record_now, from, Tag::Taking, owner) {
                    Some(seen) => At::Taking { record, seen },
                    None => At::Idle,
                }
            }),
            At::Taking { record, seen } => {
                go(&|next| match change(&mut next.records[usize::from(record)], seen, Tag::Leased, owner) {
                    Some(seen) => At::Has { record, seen },
                    None => At::Idle,
                });
            }
            At::Next => go(&|next| {
                let free = next.records.iter().any(|record| record.tag == Tag::Free);
                match next.slots.iter().position(|&slot| slot == Slot::Ready) {
                    Some(slot) if free => {
                        next.slots[slot] = Slot::Claimed(owner);
                        At::Record { message: u8::try_from(slot).expect("few slots") }
                    }
                    _ => At::Idle,
                }
            }),
            At::Record { message } => go(&|next| {
                let Some(record) = next.records.iter().position(|record| record.tag == Tag::Free) else {
                    next.slots[usize::from(message)] = Slot::Ready;
                    return At::Idle;
                };
                let from = seen(next.records[record]);
                let seen = change(&mut next.records[record], from, Tag::Filling, owner);
                let record = u8::try_from(record).expect("few records");
                At::Fill { message, record, seen: seen.expect("one step") }
            }),
            At::Fill { message, record, seen } => go(&|next| {
                next.records[usize::from(record)].message = message;
                if self.broken == Broken::CountsFirst {
                    At::Count { message, record, seen }
                } else {
                    At::Move { message, record, seen }
                }
            }),
            At::Move { message, record, seen } => go(&|next| {
                next.slots[usize::from(message)] = Slot::Moved(owner);
                if self.broken == Broken::CountsFirst {
                    At::FreeSlot { message, record, seen }
                } else {
                    At::Count { message, record, seen }
                }
            }),
            At::Count { message, record, seen } => {
                go(&|next| match change(&mut next.records[usize::from(record)], seen, Tag::Leased, owner) {
                    Some(seen) if self.broken == Broken::CountsFirst => At::Move { message, record, seen },
                    Some(seen) => At::FreeSlot { message, record, seen },
                    None => At::Idle,
                });
            }
            At::FreeSlot { message, record, seen } => go(&|next| {
                next.slots[usize::from(message)] = Slot::Free;
                At::Has { record, seen }
            }),
            At::Has { record, seen } => {
                go(&|_| At::Acknowledge { record, seen });
                if state.gives_left > 0 {
                    go(&|next| {
                        next.gives_left -= 1;
                        if self.broken == Broken::CountsBefore {
                            next.returns += 1;
                        }
                        At::GiveBack { record, seen }
                    });
                }
            }
            At::Acknowledge { record, seen } => go(&|next| {
                let message = next.records[usize::from(record)].message;
                if change(&mut next.records[usize::from(record)], seen, Tag::Free, NOBODY).is_some() {
                    // What was never written is no message; that somebody has it is a fault of its own.
                    if let Some(times) = next.acknowledged.get_mut(usize::from(message)) {
                        *times += 1;
                    }
                }
                At::Idle
            }),
            At::GiveBack { record, seen } => {
                go(&|next| match change(&mut next.records[usize::from(record)], seen, Tag::Waiting, NOBODY) {
                    Some(_) if self.broken != Broken::CountsBefore => At::CountReturn,
                    _ => At::Idle,
                })
            }
            At::CountReturn => go(&|next| {
                next.returns += 1;
                At::Idle
            }),
            At::Dead => {}
        }
    }

    fn sweep(&self, state: &State, steps: &mut Vec<State>) {
        let Some(sweep) = state.sweep else {
            for victim in 0..self.n_processes() {
                if state.to_sweep & 1 << victim != 0 {
                    let first = match self.broken {
                        Broken::RecordsFirst => Sweep::Record { victim, record: 0 },
                        _ => Sweep::Slot { victim, slot: 0 },
                    };
                    steps.push(State { sweep: Some(first), ..state.clone() });
                }
            }
            return;
        };
        if state.restarts_left > 0 {
            steps.push(State { sweep: None, restarts_left: state.restarts_left - 1, ..state.clone() });
        }
        let mut next = state.clone();
        next.sweep = match sweep {
            Sweep::Slot { victim, slot } if usize::from(slot) < next.slots.len() => {
                match next.slots[usize::from(slot)] {
                    Slot::Claimed(owner) if owner == victim => next.slots[usize::from(slot)] = Slot::Ready,
                    // Two steps: the record counts, then the slot is free. Between them the sweep may be
                    // broken off.
                    Slot::Moved(owner) if owner == victim => {
                        let is_uncounted = |record: &&mut Record| {
                            record.tag == Tag::Filling && record.owner == victim && record.message == slot
                        };
                        let mut has_counted = false;
                        for record in next.records.iter_mut().filter(is_uncounted) {
                            let from = seen(*record);
                            has_counted |= change(record, from, Tag::Leased, victim).is_some();
                        }
                        if has_counted {
                            steps.push(next);
                            return;
                        }
                        next.slots[usize::from(slot)] = Slot::Free;
                    }
                    _ => {}
                }
                Some(Sweep::Slot { victim, slot: slot + 1 })
            }
            Sweep::Slot { victim, .. } if self.broken == Broken::RecordsFirst => {
                Some(Sweep::CountReturn { victim })
            }
            Sweep::Slot { victim, .. } => Some(Sweep::Record { victim, record: 0 }),
            Sweep::Record { victim, record } if record < self.n_records => {
                let found = &mut next.records[usize::from(record)];
                let from = seen(*found);
                if found.owner == victim {
                    match found.tag {
                        Tag::Filling if self.broken == Broken::FillingWaits => {
                            change(found, from, Tag::Waiting, NOBODY);
                        }
                        Tag::Filling => {
                            if self.broken != Broken::FreedHolds {
                                found.message = NOBODY;
                            }
                            change(found, from, Tag::Free, NOBODY);
                        }
                        Tag::Leased | Tag::Taking => {
                            change(found, from, Tag::Waiting, NOBODY);
                        }
                        Tag::Free | Tag::Waiting => {}
                    }
                }
                Some(Sweep::Record { victim, record: record + 1 })
            }
            Sweep::Record { victim, .. } if self.broken == Broken::RecordsFirst => {
                Some(Sweep::Slot { victim, slot: 0 })
            }
            Sweep::Record { victim, .. } => Some(Sweep::CountReturn { victim }),
            Sweep::CountReturn { victim } => {
                if self.broken != Broken::SweepTellsNobody {
                    next.returns += 1;
                }
                next.to_sweep &= !(1 << victim);
                None
            }
        };
        steps.push(next);
    }

    /// What the workers and a sweeper can do by themselves.
    fn progress(&self, state: &State) -> Vec<State> {
        let mut steps = Vec::new();
        for worker in self.workers().filter(|&worker| self.can_move(state, worker)) {
            self.step(state, worker, &mut steps);
        }
        self.sweep(state, &mut steps);
        steps
    }

    /// Whether a worker that will never move again has this message.
    fn is_kept(&self, state: &State, message: u8) -> bool {
        let stopped = |owner: u8| owner != NOBODY && state.stopped & 1 << owner != 0;
        let in_slot = match state.slots[usize::from(message)] {
            Slot::Claimed(owner) | Slot::Moved(owner) => stopped(owner),
            Slot::Ready | Slot::Free => false,
        };
        // One that stopped after it gave back and before it counted that keeps what it gave back.
        let about_to_count = self
            .workers()
            .any(|worker| stopped(self.process(worker)) && state.at[usize::from(worker)] == At::CountReturn);
        let in_record = |record: &Record| {
            record.message == message
                && (stopped(record.owner) && record.tag != Tag::Free
                    || record.tag == Tag::Waiting && about_to_count)
        };
        in_slot || state.records.iter().any(in_record)
    }
}

impl Model for Leasing {
    type State = State;

    fn start(&self) -> State {
        let message = if self.broken == Broken::FreshHoldsFirst { 0 } else { NOBODY };
        let free = Record { serial: 0, deliveries: 0, owner: NOBODY, tag: Tag::Free, message };
        State {
            slots: vec![Slot::Ready; self.n_messages.into()],
            records: vec![free; self.n_records.into()],
            returns: 0,
            at: vec![At::Idle; self.processes.len()],
            returns_seen: vec![None; self.processes.len()],
            stopped: 0,
            to_sweep: 0,
            sweep: None,
            acknowledged: vec![0; self.n_messages.into()],
            kills_left: self.kills,
            stops_left: self.stops,
            restarts_left: self.restarts,
            gives_left: self.gives,
        }
    }

    fn steps(&self, state: &State) -> Vec<State> {
        let mut steps = self.progress(state);
        for process in 0..self.n_processes() {
            let mut workers = self.workers().filter(|&worker| self.process(worker) == process);
            if !workers.clone().any(|worker| self.can_move(state, worker)) {
                continue;
            }
            if state.kills_left > 0 {
                let mut next = state.clone();
                workers.by_ref().for_each(|worker| next.at[usize::from(worker)] = At::Dead);
                next.to_sweep |= 1 << process;
                next.kills_left -= 1;
                steps.push(next);
            }
            if state.stops_left > 0 {
                let mut next = state.clone();
                next.stopped |= 1 << process;
                next.stops_left -= 1;
                steps.push(next);
            }
        }
        steps
    }

    fn fault(&self, state: &State) -> Option<String> {
        if self.progress(state).is_empty() && !self.is_settled(state) {
            return Some("nobody moves, and not everything is dealt with".to_owned());
        }
        if state.acknowledged.iter().any(|&times| times > 1) {
            return Some("a message was acknowledged twice".to_owned());
        }
        let has_nothing = |at: &At| match at {
            At::Has { record, .. } => state.records[usize::from(*record)].message == NOBODY,
            _ => false,
        };
        if state.at.iter().any(has_nothing) {
            return Some("a worker was given a record that nobody had filled".to_owned());
        }
        for message in 0..self.n_messages {
            let is_there = |record: &&Record| {
                record.message == message && matches!(record.tag, Tag::Leased | Tag::Waiting | Tag::Taking)
            };
            if state.records.iter().filter(is_there).count() > 1 {
                return Some("a message is in two records".to_owned());
            }
            let holders = state.at.iter().filter(|at| match at {
                At::Has { record, .. } | At::Acknowledge { record, .. } | At::GiveBack { record, .. } => {
                    state.records[usize::from(*record)].message == message
                }
                _ => false,
            });
            let n_holders = holders.count();
            if n_holders > 1 {
                return Some("a message is in two workers' hands".to_owned());
            }
            if n_holders > 0 && state.acknowledged[usize::from(message)] > 0 {
                return Some("a message was delivered after it had been acknowledged".to_owned());
            }
        }
        None
    }

    fn is_settled(&self, state: &State) -> bool {
        let mut alive = self.workers().filter(|&worker| self.can_move(state, worker));
        let everybody_rests = alive.clone().all(|worker| matches!(state.at[usize::from(worker)], At::Idle));
        let somebody_lives = alive.next().is_some();
        let is_dealt_with = |message: u8| {
            state.acknowledged[usize::from(message)] == 1 || self.is_kept(state, message) || {
                // With nobody left it has to lie where the next who comes will find it.
                !somebody_lives
                    && (state.slots[usize::from(message)] == Slot::Ready
                        || state.records.iter().any(|record| {
                            record.message == message && record.tag == Tag::Waiting && record.deliveries > 0
                        }))
            }
        };
        everybody_rests && state.to_sweep == 0 && (0..self.n_messages).all(is_dealt_with)
    }
}

fn model(broken: Broken) -> Leasing {
    Leasing {
        processes: &[0, 1],
        n_messages: 2,
        n_records: 2,
        kills: 1,
        stops: 1,
        restarts: 1,
        gives: 1,
        broken,
    }
}

/// Two processes, one of which leases on two threads; both may be killed.
fn threaded(broken: Broken) -> Leasing {
    Leasing { processes: &[0, 1, 1], kills: 2, stops: 0, restarts: 1, gives: 0, ..model(broken) }
}

#[test]
fn leases_survive_kills_and_stops() {
    let two = model(Broken::Nothing);
    println!("{} states with two workers", explore(&two).expect_holds());
    let deaths = Leasing { kills: 2, stops: 0, restarts: 2, ..model(Broken::Nothing) };
    println!("{} states with two deaths", explore(&deaths).expect_holds());
    let few_records =
        Leasing { processes: &[0, 1, 2], n_records: 1, stops: 0, gives: 0, ..model(Broken::Nothing) };
    println!("{} states with three workers and one record", explore(&few_records).expect_holds());
    let threads = threaded(Broken::Nothing);
    println!("{} states with two threads of one process", explore(&threads).expect_holds());
    let survivor = Leasing { processes: &[0, 0, 1], restarts: 0, ..model(Broken::Nothing) };
    println!("{} states with two threads beside another process", explore(&survivor).expect_holds());
}

#[test]
fn every_broken_rule_of_leases_is_noticed() {
    for broken in [
        Broken::CountsFirst,
        Broken::RecordsFirst,
        Broken::SweepTellsNobody,
        Broken::CountsBefore,
        Broken::FillingWaits,
    ] {
        assert!(explore(&model(broken)).is_broken(), "{broken:?}");
    }
    for broken in [Broken::FreshHoldsFirst, Broken::FreedHolds] {
        assert!(explore(&threaded(broken)).is_broken(), "{broken:?}");
    }
}
