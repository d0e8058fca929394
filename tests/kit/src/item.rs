//! Values whose every byte says what it should be.

use serde::{Deserialize, Serialize};
use tensorferry::Bundle;
use tensorferry::state::BundleBuilder;
use tensorferry::storage::Heap;
use tensorferry::tensor::{Tensor, TensorMut};

/// A message that can tell whether it arrived whole.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Item {
    /// Who made it.
    pub sender: u32,
    /// Which of its maker's items it is, from 0.
    pub sequence: u64,
    /// Filled with what follows from maker, sequence and position.
    pub tensors: Vec<Tensor<u64>>,
    /// The tensors, where they are bundled.
    pub bundle: Option<Bundle>,
    /// As many bytes that are not a tensor's, filled likewise.
    pub note: Vec<u8>,
}

impl Item {
    /// An item with tensors of these lengths, allocated in `heap`.
    #[must_use]
    pub fn new(heap: &Heap, sender: u32, sequence: u64, lengths: &[usize]) -> Self {
        let tensors = lengths.iter().enumerate().map(|(index, &n_elements)| {
            let mut tensor = TensorMut::empty_in(heap, [n_elements]).unwrap();
            for (at, element) in tensor.as_mut_slice().iter_mut().enumerate() {
                *element = expected(sender, sequence, index, at);
            }
            tensor.freeze()
        });
        Self { sender, sequence, tensors: tensors.collect(), bundle: None, note: Vec::new() }
    }

    /// Adds `len_bytes` of bytes beside the tensors.
    #[must_use]
    pub fn with_note(mut self, len_bytes: usize) -> Self {
        self.note = (0..len_bytes).map(|at| note_byte(self.sender, self.sequence, at)).collect();
        self
    }

    /// The same with its tensors in a bundle.
    #[must_use]
    pub fn bundled(mut self, heap: &Heap) -> Self {
        let add =
            |builder: BundleBuilder, (index, tensor): (usize, _)| builder.add(index.to_string(), tensor);
        let tensors = std::mem::take(&mut self.tensors).into_iter().enumerate();
        self.bundle = Some(tensors.fold(Bundle::builder(), add).build_in(heap).unwrap());
        self
    }

    /// The same with its tensors taken out of the bundle.
    #[must_use]
    pub fn unbundled(mut self) -> Self {
        let bundle = self.bundle.take().unwrap();
        self.tensors = bundle.iter().map(|entry| entry.tensor().unwrap()).collect();
        self
    }

    /// The elements of all tensors, added up.
    #[must_use]
    pub fn sum(&self) -> u64 {
        let elements = self.tensors.iter().flat_map(|tensor| tensor.as_slice().unwrap());
        elements.copied().fold(0, u64::wrapping_add)
    }

    /// Checks every byte.
    #[track_caller]
    pub fn check(&self) {
        let (sender, sequence) = (self.sender, self.sequence);
        let bundled = self.bundle.iter().flatten().map(|entry| entry.as_slice().unwrap());
        for (index, elements) in
            self.tensors.iter().map(|tensor| tensor.as_slice().unwrap()).chain(bundled).enumerate()
        {
            for (at, &element) in elements.iter().enumerate() {
                let right = expected(sender, sequence, index, at);
                assert!(
                    element == right,
                    "item {sender}/{sequence}, tensor {index}, element {at}: {element}"
                );
            }
        }
        for (at, &byte) in self.note.iter().enumerate() {
            assert!(byte == note_byte(sender, sequence, at), "item {sender}/{sequence}, note byte {at}");
        }
    }
}

fn expected(sender: u32, sequence: u64, tensor: usize, element: usize) -> u64 {
    let seed = u64::from(sender) << 48 ^ sequence << 20 ^ (tensor as u64) << 56 ^ element as u64;
    mix(seed)
}

fn note_byte(sender: u32, sequence: u64, at: usize) -> u8 {
    mix(u64::from(sender) << 40 ^ sequence << 24 ^ at as u64).to_le_bytes()[3]
}

/// The finaliser of splitmix64: every bit of the input moves every bit of the output.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Random numbers from a seed that a failing test prints.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A seed of its own for each run, unless `TENSORFERRY_TEST_SEED` has one.
    #[must_use]
    pub fn from_environment() -> Self {
        let given = std::env::var("TENSORFERRY_TEST_SEED").ok().and_then(|text| text.parse().ok());
        let now = tensorferry_os::child::monotonic_now();
        Self(given.unwrap_or_else(|| mix(u64::from(now.subsec_nanos()) ^ now.as_secs() << 30)))
    }

    /// From this seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed that the next numbers follow from.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.0
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }

    /// The next number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }
}

/// Where choices come from.
pub trait Choices {
    /// Any number.
    fn any(&mut self) -> u64;

    /// A number below `end`, which is not 0.
    fn one_of(&mut self, end: u64) -> u64;
}

impl Choices for Random {
    fn any(&mut self) -> u64 {
        self.draw()
    }

    fn one_of(&mut self, end: u64) -> u64 {
        self.below(end)
    }
}

/// Choices that a fuzzer makes: as few bytes for each as it needs, and 0 when there are none left.
impl Choices for &[u8] {
    fn any(&mut self) -> u64 {
        next_number(self, 8)
    }

    fn one_of(&mut self, end: u64) -> u64 {
        let n_bits = u64::BITS - (end - 1).leading_zeros();
        next_number(self, n_bits.div_ceil(8) as usize) % end
    }
}

fn next_number(bytes: &mut &[u8], n_bytes: usize) -> u64 {
    let (taken, rest) = bytes.split_at(n_bytes.min(bytes.len()));
    *bytes = rest;
    let mut number = [0; 8];
    number[..taken.len()].copy_from_slice(taken);
    u64::from_le_bytes(number)
}
