//! A process that writes wherever it likes, while others work.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tensorferry::domain::Domain;
use tensorferry::queue::{Lease, Queue};
use tensorferry::spawn::{Cause, Process, SpawnError, StartError, func};
use tensorferry::storage::Heap;
use tensorferry::tensor::{Tensor, TensorMut};

use crate::{Audit, Link, Random, RootTask, Scribbler};

/// A range of a domain's file.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Region {
    /// Where it begins.
    pub offset_bytes: u64,
    /// How many words it has.
    pub n_words: u64,
}

/// Flips bits of the file whose descriptor comes beside its arguments, in random words of random regions,
/// until it is told to stop. Says how many bits it has flipped.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Vandal {
    /// Where.
    pub regions: Vec<Region>,
    /// Where the random numbers start.
    pub seed: u64,
    /// How many flips at most in a row without a look at whether to stop.
    pub burst: u64,
    /// One in so many stays; the others are taken back after a moment, so that there is something left to
    /// work with.
    pub lasting_one_in: u64,
}

impl RootTask for Vandal {
    const NAME: &'static str = "vandal";

    fn run(self, link: &Link) {
        let file = Scribbler::over(link.take_fd().unwrap());
        let mut random = Random::from_seed(self.seed);
        let mut n_flips = 0_u64;
        while !link.has_more() {
            let mut passing = Vec::new();
            for _ in 0..1 + random.below(self.burst) {
                let region = self.regions[usize::try_from(random.below(self.regions.len() as u64)).unwrap()];
                let at = region.offset_bytes + random.below(region.n_words * 8);
                let bit = random.below(8);
                file.flip_bit(at, bit);
                n_flips += 1;
                if random.below(self.lasting_one_in) > 0 {
                    passing.push((at, bit));
                }
            }
            std::thread::yield_now();
            passing.into_iter().for_each(|(at, bit)| file.flip_bit(at, bit));
        }
        link.say(&n_flips.to_string());
    }
}

/// Works in a domain of its own with other processes, which come and go, whatever happens to the domain
/// meanwhile. It says the regions that somebody may scribble over, with the domain's descriptor beside them;
/// then, after a word, what became of each process that it started: `ended`, or the error. Last it says
/// `done`.
///
/// Errors are fine. A process that panicked or was ended by a signal is not; it is named in a line with
/// `BROKEN`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Victim {
    /// How many processes it starts, one after the other, two at a time.
    pub n_processes: u64,
    /// How many turns each of them works.
    pub n_turns: u64,
}

/// Something of everything that travels.
type Parcelled = (Vec<Tensor<u64>>, TensorMut<u16>, Vec<u8>);
/// What may be delivered again.
type Repeatable = (Tensor<u64>, Vec<u8>);

const SHORT: Duration = Duration::from_millis(1);
const RING: u64 = 1;

impl RootTask for Victim {
    const NAME: &'static str = "victim";

    fn run(self, link: &Link) {
        let settings = Domain::builder().address_space_bytes(64 << 20).limit_bytes(48 << 20);
        let heap = Heap::create(settings).unwrap();
        heap.make_current().unwrap();
        let queue: Queue<Parcelled> = Queue::new(4).unwrap();
        let leased: Queue<Repeatable> = Queue::with_leases(4, 4).unwrap();
        // Blocks of several classes, and a message of its own, for the vandal to find.
        let held = parcelled(&heap, 20_000, 1_000).unwrap();
        queue.put(parcelled(&heap, 100, 2_000).unwrap()).unwrap();
        link.say_with(
            &serde_json::to_string(&regions(&heap)).unwrap(),
            &[std::os::fd::AsFd::as_fd(heap.domain())],
        );
        let _ = link.hear_until(None);
        let mut running = Vec::new();
        for number in 0..self.n_processes {
            match Process::new(work, (self.n_turns, number, queue.clone(), leased.clone())).start() {
                Ok(process) => running.push(process),
                Err(StartError { kind, .. }) => link.say(&one_line(&kind.to_string())),
            }
            turn(&heap, &queue, &leased, number);
            if running.len() > 1 {
                link.say(&verdict(running.remove(0).join()));
            }
        }
        for mut process in running {
            link.say(&verdict(process.join()));
        }
        queue.close();
        drop((queue, leased, held));
        heap.collect();
        let _ = heap.trim();
        link.say("done");
    }
}

fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

/// Who said why it failed, in order, may do so.
fn verdict(outcome: Result<(), SpawnError>) -> String {
    match outcome {
        Ok(()) => String::from("ended"),
        Err(SpawnError::Failed(errors)) => {
            let cause = &errors.root_cause().cause;
            let is_told = matches!(cause, Cause::Raised(report) if report.kind != tensorferry::spawn::ReportKind::Panic);
            let text = one_line(&format!("{errors:#}"));
            if is_told { text } else { format!("BROKEN: {text}") }
        }
        Err(other) => one_line(&other.to_string()),
    }
}

/// Works for some turns. Whatever is refused is let go of.
#[func]
fn work(_rank: usize, n_turns: u64, number: u64, queue: Queue<Parcelled>, leased: Queue<Repeatable>) {
    if let Ok(heap) = Heap::current() {
        for round in 0..n_turns {
            turn(heap, &queue, &leased, number ^ round);
        }
    }
}

/// `None` when there is no memory for it.
fn parcelled(heap: &Heap, n_elements: usize, len_bytes: usize) -> Option<Parcelled> {
    let tensor = TensorMut::zeros_in(heap, [n_elements]).ok()?.freeze();
    let half = tensor.narrow(0, 0, n_elements / 2).ok()?;
    Some((vec![half, tensor], TensorMut::zeros_in(heap, [n_elements]).ok()?, vec![7; len_bytes]))
}

/// Puts, gets, clones, drops, allocates, leases. Nothing of it is asked to wait for longer than a moment.
fn turn(heap: &Heap, queue: &Queue<Parcelled>, leased: &Queue<Repeatable>, number: u64) {
    let (n_elements, len_bytes) = [(10, 0), (500, 40), (3_000, 600), (20_000, 9)][(number % 4) as usize];
    if let Some(value) = parcelled(heap, n_elements, len_bytes) {
        let _ = queue.put_timeout(value, SHORT);
    }
    if let Ok((tensors, mut exclusive, bytes)) = queue.get_timeout(SHORT) {
        exclusive.as_mut_slice().fill(9);
        let copies = tensors.clone();
        let sum = copies.iter().flat_map(|tensor| tensor.iter().copied()).fold(0, u64::wrapping_add);
        std::hint::black_box((sum, bytes, &tensors));
    }
    if let Some((mut tensors, ..)) = parcelled(heap, n_elements, 0) {
        let _ = leased.put_nowait((tensors.remove(0), vec![1; len_bytes]));
    }
    match leased.get_leased_nowait() {
        Ok(lease) if number.is_multiple_of(3) => drop(lease),
        Ok(lease) => drop(Lease::ack(lease)),
        Err(_) => {}
    }
    let _ = (queue.len(), leased.len(), queue.is_closed(), heap.stats());
    if number.is_multiple_of(7) {
        heap.collect();
        heap.domain().wake_service();
        let _ = heap.trim();
    }
    let _ = heap.allocate(1 << (number % 20)).map(|mut block| block.bytes_mut().fill(1));
}

/// The tables, the heads of extents, the headers of blocks, and the blocks that hold rings, messages and
/// parcels; more than once what is small and in use.
fn regions(heap: &Heap) -> Vec<Region> {
    let domain = heap.domain();
    let layout = domain.layout();
    let data_offset = layout.data_offset_bytes as u64;
    let n_extents = layout.n_extents as u64;
    let mut regions = vec![
        // What of the header changes (the rest is read by newcomers only), process table, extent table.
        Region { offset_bytes: 7 * 8, n_words: 4 },
        Region { offset_bytes: 4096, n_words: 8 * 16 },
        Region { offset_bytes: 12_288, n_words: n_extents.min(4) * 4 },
    ];
    for extent in 0..n_extents.min(2) {
        let offset_bytes = data_offset + extent * layout.extent_len_bytes as u64;
        regions.push(Region { offset_bytes, n_words: 40 * 8 });
    }
    for block in Audit::of(domain).live() {
        regions.push(Region { offset_bytes: data_offset + block.header_offset_bytes, n_words: 8 });
        let n_words = block.len_bytes / 8;
        if block.kind == RING {
            // Its head, its slots and its records.
            regions.push(Region { offset_bytes: block.data_file_offset_bytes, n_words: 40 });
            regions.push(Region { offset_bytes: block.data_file_offset_bytes, n_words });
        } else if block.kind != 0 {
            regions.push(Region { offset_bytes: block.data_file_offset_bytes, n_words });
        }
    }
    regions
}
