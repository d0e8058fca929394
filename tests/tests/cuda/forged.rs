//! Slabs that nobody made: what a receiver is told when it comes to use them.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tensorferry::reduce::give_shared;
use tensorferry::storage::{Heap, SharedBlock};
use tensorferry::tensor::{DType, Layout};
use tensorferry_cuda_ipc::CudaStrategy;
use tensorferry_kit::{Context, Process, Task};

use super::tensors::{Stage, is_run_with, on_machine};
use super::{ask, told};

const LEN_BYTES: u64 = 2 << 20;

/// The words of a slab, as docs/WIRE.md has them.
#[derive(Clone, Copy)]
struct Words([u64; 16]);

/// A tensor of 1,024 integers in a slab.
#[derive(Clone)]
struct Forged {
    slab: SharedBlock,
    storage: SharedBlock,
}

/// The arguments of a device member, with a forged tensor among them.
#[derive(Serialize, Deserialize)]
struct ForgedMember {
    queues: Vec<()>,
    tensors: Vec<Forged>,
}

impl Task for ForgedMember {
    // Whose arguments they look like.
    const NAME: &'static str = "device-member";

    fn run(self, _context: &Context) {
        unreachable!("the child takes them for those of a device member")
    }
}

struct Mark;

impl Serialize for Mark {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(b"\xfdCUDA")
    }
}

impl Serialize for Forged {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let give = |block| give_shared(block).map_err(S::Error::custom);
        let memory = (give(&self.storage)?, give(&self.slab)?, None::<(u32, u64)>);
        let layout = Layout::contiguous([1024]).map_err(S::Error::custom)?;
        (Mark, DType::U32.code(), layout, Some(memory)).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Forged {
    fn deserialize<D: Deserializer<'de>>(_deserializer: D) -> Result<Self, D::Error> {
        Err(de::Error::custom("nobody takes it"))
    }
}

fn magic(text: [u8; 4], version: u64) -> u64 {
    version << 32 | u64::from(u32::from_le_bytes(text))
}

fn block(heap: &Heap, words: &[u64]) -> SharedBlock {
    let block = heap.allocate_zeroed(words.len() * 8).unwrap().share();
    for (word, value) in block.words().iter().zip(words) {
        word.store(*value, Ordering::Relaxed);
    }
    block
}

impl Words {
    /// Of the test process, which lives, on the device of the receiver.
    fn honest(stage: &Stage<'_>, uuid: &str) -> Self {
        let me = stage.family.heap().domain().me();
        let hex: String = uuid.chars().skip("GPU-".len()).filter(|&c| c != '-').collect();
        let byte = |i: usize| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap();
        let half = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| byte(at + i)));
        let mut words = [0; 16];
        words[..5].copy_from_slice(&[
            magic(*b"SLAB", 2),
            LEN_BYTES,
            half(0),
            half(8),
            u64::from(me.slot) << 32 | u64::from(me.epoch),
        ]);
        Self(words)
    }

    fn with(mut self, index: usize, value: u64) -> Self {
        self.0[index] = value;
        self
    }

    /// By this handle, in hexadecimal digits.
    fn with_handle(mut self, hex: &str) -> Self {
        for (word, digits) in self.0[8..].iter_mut().zip(hex.as_bytes().chunks(16)) {
            *word = u64::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap().swap_bytes();
        }
        self
    }

    /// What a receiver says that reads a tensor in such a slab, for which this descriptor was stored.
    fn is_answered(self, stage: &Stage<'_>, fd: Option<OwnedFd>) -> String {
        let heap = stage.family.heap();
        let slab = block(heap, &self.0);
        if let Some(fd) = fd {
            heap.domain().store_fd(slab.name(), fd).unwrap();
        }
        let storage = block(heap, &[magic(*b"DEVS", 1), slab.name(), 512, 4096, 0]);
        let task = ForgedMember { queues: Vec::new(), tensors: vec![Forged { slab, storage }] };
        let receiver = stage.machine.member(stage.family, task);
        told(&receiver, &["load 0", "argument x"]);
        let answer = ask(&receiver, "read x s");
        // It is as good as before.
        told(&receiver, &["drop x", "make y s 10 1"]);
        assert_eq!(ask(&receiver, "read y s"), "1 10 55", "after {answer}");
        receiver.finish();
        answer
    }
}

#[test]
fn forged_slabs_are_errors_when_they_are_used() {
    on_machine("devices=2", |stage| {
        let maker = stage.machine.process();
        told(&maker, &["load", &format!("create {LEN_BYTES}")]);
        let uuids = ask(&maker, "uuids");
        let (first, second) = uuids.split_once(' ').unwrap();
        let memory = |maker: &Process| {
            assert_eq!(ask(maker, "export"), "ok");
            Some(maker.take_fd())
        };
        let pipe = || Some(OwnedFd::from(std::io::pipe().unwrap().0));
        let honest = Words::honest(stage, first);
        if is_run_with(CudaStrategy::Vmm) {
            assert_eq!(honest.is_answered(stage, memory(&maker)), "0 0 0", "nothing is forged");
            let answer = honest.with(1, 2 * LEN_BYTES).is_answered(stage, memory(&maker));
            assert!(answer.contains("cuMemMap failed"), "more than there is: {answer}");
            let answer = honest.with(1, LEN_BYTES + 4096).is_answered(stage, memory(&maker));
            assert!(answer.contains("no multiple of the device's granularity"), "{answer}");
            let answer = Words::honest(stage, second).is_answered(stage, memory(&maker));
            assert!(answer.contains("the memory lies on device"), "of another device: {answer}");
            let answer = honest.is_answered(stage, pipe());
            assert!(answer.contains("cuMemImportFromShareableHandle failed"), "no memory: {answer}");
        }
        let answer = honest.with(2, 7).is_answered(stage, None);
        assert!(answer.contains("this process does not see device GPU-"), "{answer}");
        let answer = honest.is_answered(stage, None);
        assert!(answer.contains("no descriptor by the name"), "never stored: {answer}");
        let (legacy, pool) = (honest.with(6, 1), honest.with(6, 2));
        let answer = legacy.with(9, 7).is_answered(stage, None);
        assert!(answer.contains("cuIpcOpenMemHandle_v2 failed"), "a handle of nobody: {answer}");
        let answer = legacy.with(4, 60 << 32 | 1).is_answered(stage, None);
        assert!(answer.contains("has ended, and its memory with it"), "of nobody: {answer}");
        let answer = pool.with(7, 12345).is_answered(stage, None);
        assert!(answer.contains("no descriptor by the name"), "no such pool: {answer}");
        // The name of a pool is that of a block; here the slab's own, under which something else was stored.
        let slab = block(stage.family.heap(), &[0]);
        stage.family.heap().domain().store_fd(slab.name(), pipe().unwrap()).unwrap();
        let answer = pool.with(7, slab.name()).is_answered(stage, None);
        assert!(answer.contains("cuMemPoolImportFromShareableHandle failed"), "no pool: {answer}");
        maker.finish();
    });
}

/// What a driver maps it does not map beyond its end. What it opens has an address, and behind its end there
/// may be somebody else's memory.
#[test]
fn memory_that_is_shorter_than_its_slab_says_is_not_used() {
    on_machine("", |stage| {
        let maker = stage.machine.raw_process("");
        let asker = stage.machine.process();
        told(&asker, &["load"]);
        let honest = Words::honest(stage, &ask(&asker, "uuids")).with(1, 4 << 20);
        let check = |words: Words| {
            told(&maker, &["fill 0", "synchronize"]);
            assert_eq!(words.is_answered(stage, None), "0 0 0", "all of it is there");
            let answer = words.with(1, 8 << 20).is_answered(stage, None);
            assert!(answer.contains("longer than the memory that it names"), "{answer}");
        };
        if is_run_with(CudaStrategy::Legacy) {
            check(honest.with(6, 1).with_handle(&ask(&maker, "alloc")));
        }
        if is_run_with(CudaStrategy::Pool) {
            let (heap, data) = (stage.family.heap(), ask(&maker, "pool"));
            let pool = block(heap, &[0]);
            heap.domain().store_fd(pool.name(), maker.take_fd()).unwrap();
            check(honest.with(6, 2).with(7, pool.name()).with_handle(&data));
        }
        let answer = honest.with(6, 3).is_answered(stage, None);
        assert!(answer.contains("do not lie in a mapping of 0 bytes"), "nothing was staged: {answer}");
        asker.finish();
        maker.finish();
    });
}
