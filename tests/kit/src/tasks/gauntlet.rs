//! Random words in a domain's memory, and a process that uses it all the same.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tensorferry::domain::Domain;
use tensorferry::storage::Heap;
use tensorferry::tensor::{SharedTensor, Tensor, TensorMut};
use tensorferry::{Bundle, Queue};

use crate::{Audit, Choices, Link, LiveBlock, Random, RootTask, Scribbler};

const SHORT: Duration = Duration::from_millis(1);

/// Where the words are overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// The words of a ring before its slots.
    RingHead,
    /// The slots of a ring.
    Slots,
    /// The block that a long message lies in.
    Message,
    /// The block of a bundle.
    Bundle,
    /// The headers of blocks.
    Headers,
    /// The heads of extents: marks, summaries, spans.
    Heads,
    /// The header of the domain.
    DomainHeader,
    /// The process table, this process's own entry included.
    ProcessTable,
    /// The extent table.
    ExtentTable,
}

/// Makes domains, scribbles into each, and goes on using it. That it gets through at all is the point: it
/// says `done`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Gauntlet {
    /// Where to scribble.
    pub target: Target,
    /// How many domains.
    pub n_rounds: u64,
    /// Where the random numbers start.
    pub seed: u64,
}

impl Target {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::RingHead,
        Self::Slots,
        Self::Message,
        Self::Bundle,
        Self::Headers,
        Self::Heads,
        Self::DomainHeader,
        Self::ProcessTable,
        Self::ExtentTable,
    ];
}

impl RootTask for Gauntlet {
    const NAME: &'static str = "gauntlet";

    fn run(self, link: &Link) {
        let mut random = Random::from_seed(self.seed);
        for _ in 0..self.n_rounds {
            // Known before the round, so that a failure can be repeated.
            link.say(&random.seed().to_string());
            round(Some(self.target), &mut random, SHORT);
        }
        link.say("done");
    }
}

/// Something of everything that travels.
#[derive(Debug, Serialize, Deserialize)]
struct Value {
    frozen: Vec<Tensor<u64>>,
    exclusive: TensorMut<u16>,
    bytes: Vec<u8>,
    answers: Queue<u64>,
    bundle: Bundle,
}

impl Value {
    /// `None` when there is no memory for it.
    fn new(heap: &Heap, n_elements: usize, len_bytes: usize) -> Option<Self> {
        let tensor = TensorMut::zeros_in(heap, [n_elements]).ok()?.freeze();
        let half = tensor.narrow(0, 0, n_elements / 2).ok()?;
        let shared = SharedTensor::<u64>::zeros_in(heap, [n_elements]).ok()?;
        let bundle = Bundle::builder().add("half", &half).add("shared", shared);
        Some(Self {
            frozen: vec![half, tensor],
            exclusive: TensorMut::zeros_in(heap, [n_elements]).ok()?,
            bytes: vec![7; len_bytes],
            answers: Queue::new_in(heap, 2).ok()?,
            bundle: bundle.build_in(heap).ok()?,
        })
    }

    /// Touches all of it.
    fn touch(mut self) -> u64 {
        self.exclusive.as_mut_slice().fill(9);
        let sum = self.frozen.iter().flat_map(|tensor| tensor.iter().copied()).fold(0, u64::wrapping_add);
        let _ = self.answers.put_nowait(sum);
        for entry in &self.bundle {
            let _ =
                entry.as_slice::<u64>().map(|elements| elements.iter().copied().fold(0, u64::wrapping_add));
            let _ = entry.any_tensor().map(|tensor| tensor.to_bytes());
            let _ = entry.shared_tensor::<u64>().map(|tensor| tensor.to_vec());
        }
        self.bytes.iter().fold(sum, |sum, &byte| sum.wrapping_add(u64::from(byte)))
    }
}

/// Makes a domain, overwrites a few words of it, and goes on using it. Without a target each word is of
/// another one.
pub(crate) fn round(target: Option<Target>, choices: &mut impl Choices, patience: Duration) {
    let settings = Domain::builder().address_space_bytes(32 << 20).limit_bytes(24 << 20);
    let heap = Heap::create(settings).unwrap();
    let queue: Queue<Value> = Queue::new_in(&heap, 4).unwrap();
    for (n_elements, len_bytes) in [(10, 0), (1_000, 5), (20_000, 1_000)] {
        queue.put(Value::new(&heap, n_elements, len_bytes).unwrap()).unwrap();
    }
    let blocks = Audit::of(heap.domain()).into_live();
    let file = Scribbler::of(heap.domain());
    for _ in 0..1 + choices.one_of(6) {
        let target = target.unwrap_or_else(|| Target::ALL[usize::try_from(choices.one_of(9)).unwrap()]);
        scribble(target, heap.domain(), &file, &blocks, choices);
    }
    let _ = heap.snapshot();
    // Errors are fine, and so is a value that looks right. That this process gets through is what is tested.
    for _ in 0..6 {
        let _ = queue.get_nowait().map(Value::touch);
        if let Some(value) = Value::new(&heap, 100, 300) {
            let _ = queue.put_nowait(value);
        }
        heap.domain().wake_service();
    }
    let _ = queue.get_timeout(patience).map(Value::touch);
    if let Some(value) = Value::new(&heap, 5_000, 0) {
        let _ = queue.put_timeout(value, patience);
    }
    let _ = (queue.len(), queue.is_full(), queue.is_closed(), heap.stats(), heap.snapshot());
    queue.close();
    heap.collect();
    let _ = heap.trim();
    drop(queue);
    heap.collect();
    let _ = heap.allocate(100_000).map(|mut block| block.bytes_mut().fill(1));
}

fn scribble(
    target: Target,
    domain: &Domain,
    file: &Scribbler,
    blocks: &[LiveBlock],
    choices: &mut impl Choices,
) {
    const RING: u64 = 1;
    const MESSAGE: u64 = 2;
    const BUNDLE: u64 = 5;
    let layout = domain.layout();
    let data_offset = layout.data_offset_bytes as u64;
    let mut one_of = |kind: Option<u64>| {
        let fitting: Vec<_> =
            blocks.iter().filter(|block| kind.is_none_or(|kind| kind == block.kind)).collect();
        let index = choices.one_of(fitting.len() as u64);
        *fitting[usize::try_from(index).unwrap()]
    };
    let (start, n_words) = match target {
        Target::RingHead => (one_of(Some(RING)).data_file_offset_bytes, 40),
        Target::Slots => {
            let ring = one_of(Some(RING));
            (ring.data_file_offset_bytes + 40 * 8, ring.len_bytes / 8 - 40)
        }
        Target::Message => {
            let message = one_of(Some(MESSAGE));
            (message.data_file_offset_bytes, message.len_bytes / 8)
        }
        Target::Bundle => {
            let bundle = one_of(Some(BUNDLE));
            (bundle.data_file_offset_bytes, bundle.len_bytes / 8)
        }
        Target::Headers => (data_offset + one_of(None).header_offset_bytes, 8),
        Target::Heads => {
            let extent = one_of(None).header_offset_bytes / layout.extent_len_bytes as u64;
            (data_offset + extent * layout.extent_len_bytes as u64, 40 * 8)
        }
        Target::DomainHeader => (0, 16),
        Target::ProcessTable => (4096, 4 * 16),
        Target::ExtentTable => (12_288, 8 * 4),
    };
    let at = start + choices.one_of(n_words) * 8;
    let old = file.word(at);
    let new = match choices.one_of(6) {
        0 => choices.any(),
        1 => choices.one_of(70),
        2 => u64::MAX,
        3 => old ^ 1 << choices.one_of(64),
        4 => old.wrapping_add(choices.one_of(3)).wrapping_sub(1),
        _ => file.word(start + choices.one_of(n_words) * 8),
    };
    file.set_word(at, new);
}
