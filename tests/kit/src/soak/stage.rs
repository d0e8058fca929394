//! The director: starts, kills, stops and replaces children until the time is up.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use tensorferry::Domain;
use tensorferry::queue::{Receiver, Sender, channel_in};
use tensorferry::storage::Heap;
use tensorferry::tensor::SharedTensor;
use tensorferry_os::socket::{self, Interest};

use super::actors::{Message, SoakConsumer, SoakForwarder, SoakProducer};
use super::books::{Account, Books, Hand, Ledger};
use super::recovery::{Dying, Times};
use super::report::SoakReport;
use crate::wait::deadline;
use crate::{Child, Family, Leftovers, Random, with_family_of};

const CAPACITY_ITEMS: usize = 8;
/// The most that lies between two things that the director does.
const MAX_PAUSE_MS: u64 = 40;
/// The longest that a child is stopped.
const MAX_STOP_MS: u64 = 250;
/// In so many parts.
const N_PARTS: u32 = 8;
/// Nobody is killed while so many have not been swept: a time is to be one of a sweep, not of a queue for it.
const MAX_DYING: usize = 3;

/// A soak.
#[derive(Clone, Copy, Debug)]
pub struct Soak {
    /// How long.
    pub duration: Duration,
    /// How many children at a time; three at least, one of each kind.
    pub n_processes: usize,
    /// Where the random numbers start.
    pub seed: u64,
}

impl Soak {
    /// Does it, in a domain of its own, in parts of equal length, because each part keeps the ledgers of all
    /// its producers. What the domain has kept after the first part is compared with what it keeps in the
    /// end.
    ///
    /// # Panics
    /// When a child fails or nothing comes any more.
    #[must_use]
    pub fn run(&self) -> SoakReport {
        let mut report = SoakReport { processes: self.n_processes, seed: self.seed, ..SoakReport::default() };
        let mut messages = Account::default();
        let mut times = [Times::default(), Times::default()];
        let before = Leftovers::look();
        let start = Instant::now();
        let settings = Domain::builder().address_space_bytes(1 << 30).limit_bytes(512 << 20);
        with_family_of(settings, |family| {
            let mut random = Random::from_seed(self.seed);
            for part in 0..N_PARTS {
                let duration = self.duration / N_PARTS;
                let stage = Stage::new(family, self.n_processes, random.clone());
                let ended = stage.play(duration);
                messages.add(ended.books.account());
                // What follows sees no messages and no children.
                let Ended { books, counts, times: added, random: next } = ended;
                drop(books);
                random = next;
                report.spawned += counts.spawned;
                report.killed += counts.killed;
                report.stopped += counts.stopped;
                report.left += counts.left;
                for (all, more) in times.iter_mut().zip(added) {
                    all.extend(more);
                }
                family.wait_alone();
                family.wait_no_blocks();
                let _ = family.heap().trim();
                let domain = family.heap().domain();
                let kept = (domain.allocated_bytes().unwrap(), domain.extents_high_water());
                if part == 0 {
                    (report.bytes_allocated[0], report.extents_used[0]) = kept;
                }
                (report.bytes_allocated[1], report.extents_used[1]) = kept;
            }
            report.slots_left = family.members().len() - 1;
        });
        let after = Leftovers::look();
        report.seconds = start.elapsed().as_secs_f64();
        report.messages = messages;
        [report.recovery, report.recovery_while_stopped] = times.map(|times| times.histogram());
        report.descriptors = [before.n_descriptors(), after.n_descriptors()];
        report.mappings = [before.n_mappings(), after.n_mappings()];
        report.children_left = after.n_children().saturating_sub(before.n_children());
        report
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Producer,
    Forwarder,
    Consumer,
}

/// A child that takes part.
struct Actor {
    role: Role,
    child: Child,
    /// Of one who takes.
    hand: Option<Hand>,
    stopped_until: Option<Instant>,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    spawned: u64,
    killed: u64,
    stopped: u64,
    left: u64,
}

struct Stage<'a> {
    family: &'a Family,
    n_processes: usize,
    random: Random,
    first: (Sender<Message>, Receiver<Message>),
    second: (Sender<Message>, Receiver<Message>),
    n_came: SharedTensor<i64>,
    books: Books,
    actors: Vec<Actor>,
    leaving: Vec<Child>,
    dying: Vec<(Dying, Option<Hand>)>,
    counts: Counts,
    times: [Times; 2],
    /// When something came last, and how much had come by then.
    progress: (Instant, i64),
}

/// What is left of a stage when everybody has gone.
struct Ended {
    books: Books,
    counts: Counts,
    times: [Times; 2],
    random: Random,
}

impl<'a> Stage<'a> {
    fn new(family: &'a Family, n_processes: usize, random: Random) -> Self {
        let heap: &Heap = family.heap();
        Self {
            family,
            n_processes: n_processes.max(3),
            random,
            first: channel_in(heap, CAPACITY_ITEMS).unwrap(),
            second: channel_in(heap, CAPACITY_ITEMS).unwrap(),
            n_came: SharedTensor::zeros_in(heap, [1]).unwrap(),
            books: Books::default(),
            actors: Vec::new(),
            leaving: Vec::new(),
            dying: Vec::new(),
            counts: Counts::default(),
            times: [Times::default(), Times::default()],
            progress: (Instant::now(), 0),
        }
    }

    fn play(mut self, duration: Duration) -> Ended {
        let end = Instant::now() + duration;
        let mut next_act = Instant::now();
        while Instant::now() < end {
            self.look_after();
            self.refill();
            if Instant::now() >= next_act {
                self.act();
                next_act = Instant::now() + Duration::from_millis(self.random.below(MAX_PAUSE_MS));
            }
            self.wait(next_act.min(end));
        }
        self.end()
    }

    /// One random thing.
    fn act(&mut self) {
        let index = usize::try_from(self.random.below(self.actors.len() as u64)).unwrap();
        match self.random.below(8) {
            0..4 if self.dying.len() < MAX_DYING => self.kill(index),
            0..4 => {}
            4..7 => self.stop(index),
            _ => self.send_away(index),
        }
    }

    fn kill(&mut self, index: usize) {
        if !self.actors[index].child.is_alive() {
            return;
        }
        let Actor { child, hand, .. } = self.actors.swap_remove(index);
        let others_stopped = self.actors.iter().any(|actor| actor.stopped_until.is_some());
        self.dying.push((Dying::kill(child, others_stopped), hand));
        self.counts.killed += 1;
    }

    fn stop(&mut self, index: usize) {
        if self.actors[index].stopped_until.is_some() {
            return;
        }
        self.actors[index].child.signal(nix::sys::signal::Signal::SIGSTOP);
        let stop_for = Duration::from_millis(5 + self.random.below(MAX_STOP_MS));
        self.actors[index].stopped_until = Some(Instant::now() + stop_for);
        self.dying.iter_mut().for_each(|(dying, _)| dying.others_stopped = true);
        self.counts.stopped += 1;
    }

    fn send_away(&mut self, index: usize) {
        let actor = self.actors.swap_remove(index);
        if actor.stopped_until.is_some() {
            actor.child.go_on();
        }
        actor.child.say("leave");
        self.leaving.push(actor.child);
    }

    /// Sees to everybody whose time has come.
    fn look_after(&mut self) {
        let now = Instant::now();
        for actor in &mut self.actors {
            if actor.stopped_until.take_if(|until| *until <= now).is_some() {
                actor.child.go_on();
            }
        }
        let domain = self.family.heap().domain();
        let mut at = 0;
        while at < self.dying.len() {
            let Some(time) = self.dying[at].0.recovered(domain) else {
                assert!(self.dying[at].0.age() < deadline(), "nobody sweeps {:?}", self.dying[at].0);
                at += 1;
                continue;
            };
            let (dying, hand) = self.dying.swap_remove(at);
            self.times[usize::from(dying.others_stopped)].add(time);
            match hand {
                Some(hand) => {
                    self.books.note_death(&hand);
                    dying.child.kill();
                }
                // A producer may have come to its end a moment before.
                None => dying.child.kill_unless_finished(),
            }
        }
        for child in self.leaving.extract_if(.., |child| !child.is_alive()) {
            child.finish();
            self.counts.left += 1;
        }
        // A producer ends when its ledger is full; nobody else ends by itself.
        for actor in self.actors.extract_if(.., |actor| !actor.child.is_alive()) {
            let Actor { role, child, .. } = actor;
            child.finish();
            assert_eq!(role, Role::Producer, "it ended before it was told to");
            self.counts.left += 1;
        }
        let n_came = self.n_came.load([0]).unwrap();
        if n_came != self.progress.1 {
            self.progress = (now, n_came);
        }
        assert!(self.progress.0.elapsed() < deadline(), "nothing has come for {:?}", deadline());
    }

    /// Replaces whoever is gone; the kind that has the fewest comes first.
    fn refill(&mut self) {
        while self.actors.len() < self.n_processes {
            let count = |role| self.actors.iter().filter(|actor| actor.role == role).count();
            let role =
                [Role::Producer, Role::Forwarder, Role::Consumer].into_iter().min_by_key(|&r| count(r));
            let actor = self.start(role.unwrap());
            self.actors.push(actor);
            self.counts.spawned += 1;
        }
    }

    fn start(&mut self, role: Role) -> Actor {
        let heap = self.family.heap();
        let hand = (role != Role::Producer).then(|| Hand::empty(heap));
        let child = match (role, hand.clone()) {
            (Role::Forwarder, Some(hand)) => {
                let (from, to) = (self.first.1.clone(), self.second.0.clone());
                self.family.start(SoakForwarder { from, to, hand })
            }
            (Role::Consumer, Some(hand)) => {
                let (from, n_came) = (self.second.1.clone(), self.n_came.clone());
                self.family.start(SoakConsumer { from, hand, n_came })
            }
            _ => {
                let (to, ledger) = (self.first.0.clone(), Ledger::new(heap));
                let sender = u32::try_from(self.books.ledgers.len()).unwrap();
                self.books.ledgers.push(ledger.clone());
                let random_seed = self.random.draw();
                self.family.start(SoakProducer { to, ledger, sender, random_seed })
            }
        };
        Actor { role, child, hand, stopped_until: None }
    }

    /// Waits until somebody ends or something is due. While somebody is dying it only yields, because the
    /// time that the others take is measured.
    fn wait(&self, until: Instant) {
        if !self.dying.is_empty() {
            std::thread::yield_now();
            return;
        }
        let stops = self.actors.iter().filter_map(|actor| actor.stopped_until);
        let due = stops.chain([until]).min().unwrap_or(until);
        let children = self.actors.iter().map(|actor| &actor.child).chain(&self.leaving);
        let ends: Vec<_> = children.map(|child| (child.as_fd(), Interest::Readable)).collect();
        let _ = socket::wait_ready(&ends, Some(due.saturating_duration_since(Instant::now())));
    }

    /// The producers leave, everything that is on its way arrives, and the rest leaves because nothing can
    /// come any more.
    fn end(mut self) -> Ended {
        for actor in &mut self.actors {
            if actor.stopped_until.take().is_some() {
                actor.child.go_on();
            }
        }
        let start = Instant::now();
        while !self.dying.is_empty() || !self.leaving.is_empty() {
            self.look_after();
            // Somebody has to take, or those who leave cannot put what they have in their hands.
            self.refill();
            assert!(start.elapsed() < deadline(), "somebody does not leave");
            std::thread::yield_now();
        }
        let Self { family: _, random, first, second, books, actors, mut counts, times, .. } = self;
        counts.left += actors.len() as u64;
        let (producers, takers): (Vec<_>, Vec<_>) =
            actors.into_iter().partition(|actor| actor.role == Role::Producer);
        producers.iter().for_each(|producer| producer.child.say("leave"));
        producers.into_iter().for_each(|producer| producer.child.finish());
        drop((first, second));
        takers.into_iter().for_each(|taker| wait_end(taker.child));
        Ended { books, counts, times, random }
    }
}

/// Waits until a taker has ended by itself. Closing the link would make it leave.
fn wait_end(child: Child) {
    crate::until("a taker ends", || !child.is_alive());
    child.finish();
}
