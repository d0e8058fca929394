//! Children under limits of the system.

use std::fs::File;

use serde::{Deserialize, Serialize};
use tensorferry::domain::Domain;
use tensorferry::queue::{Queue, Receiver, Sender};
use tensorferry::storage::Heap;
use tensorferry::tensor::{SealedTensor, Tensor, TensorMut};

use crate::{Context, Item, Leftovers, Link, RootTask, Task};

/// Tensors in one message.
const BATCH: usize = 1_000;

/// Sends so many tensors of 64 bytes, each in memory of its own, and keeps them all. Says `sent` and how many
/// descriptors it has, and waits for a word.
#[derive(Debug, Serialize, Deserialize)]
pub struct SendMany {
    /// How many; a multiple of a thousand.
    pub n_tensors: u64,
    /// Where to.
    pub to: Sender<Vec<Tensor<u64>>>,
}

impl Task for SendMany {
    const NAME: &'static str = "send-many";

    fn run(self, context: &Context) {
        let mut kept = Vec::new();
        for first in (0..self.n_tensors).step_by(BATCH) {
            let batch: Vec<_> = (first..first + BATCH as u64)
                .map(|number| {
                    let mut tensor = TensorMut::empty_in(&context.heap, [8]).unwrap();
                    tensor.as_mut_slice().fill(number);
                    tensor.freeze()
                })
                .collect();
            kept.extend(batch.iter().cloned());
            self.to.put(batch).unwrap();
        }
        drop(self.to);
        context.say("sent");
        context.say(Leftovers::look().n_descriptors().to_string());
        let _ = context.hear();
    }
}

/// Gets what [`SendMany`] sends, checks it and keeps it. Says how many tensors there are in how many storages
/// and how many descriptors it has, and waits for a word.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeepMany {
    /// Where from.
    pub from: Receiver<Vec<Tensor<u64>>>,
}

impl Task for KeepMany {
    const NAME: &'static str = "keep-many";

    fn run(self, context: &Context) {
        let mut kept: Vec<Tensor<u64>> = Vec::new();
        for batch in &self.from {
            kept.extend(batch);
        }
        for (number, tensor) in kept.iter().enumerate() {
            assert!(tensor.as_slice().unwrap() == [number as u64; 8]);
        }
        let mut ids: Vec<_> = kept.iter().map(Tensor::storage_id).collect();
        ids.sort_unstable();
        ids.dedup();
        drop(self.from);
        context.say(kept.len().to_string());
        context.say(ids.len().to_string());
        context.say(Leftovers::look().n_descriptors().to_string());
        let _ = context.hear();
    }
}

/// Makes a domain with default settings, sends itself something in it, and says how large its data area is;
/// or says why it could not make one.
#[derive(Debug, Serialize, Deserialize)]
pub struct MakeDomain;

impl RootTask for MakeDomain {
    const NAME: &'static str = "make-domain";

    fn run(self, link: &Link) {
        let before = Leftovers::look();
        match Heap::create(Domain::builder()) {
            Ok(heap) => {
                let queue = Queue::new_in(&heap, 2).unwrap();
                queue.put(Item::new(&heap, 1, 0, &[100_000, 3]).with_note(10_000)).unwrap();
                queue.get().unwrap().check();
                link.say(&heap.domain().layout().data_len_bytes.to_string());
            }
            Err(error) => {
                before.wait_nothing_more();
                link.say(&error.to_string());
            }
        }
    }
}

/// Makes a sealed tensor of each of these lengths, and says `sealed` or why it could not.
#[derive(Debug, Serialize, Deserialize)]
pub struct Seal {
    /// In bytes.
    pub lens_bytes: Vec<usize>,
}

impl RootTask for Seal {
    const NAME: &'static str = "seal";

    fn run(self, link: &Link) {
        for len_bytes in self.lens_bytes {
            match SealedTensor::<u8>::build([len_bytes], |elements| elements.fill(1)) {
                Ok(_) => link.say("sealed"),
                Err(error) => link.say(&error.to_string()),
            }
        }
    }
}

/// Uses up its descriptors and then frees one after the other: with none left nothing works and nothing is
/// left over, with a few left everything does. Says how often making a domain failed.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunOutOfDescriptors;

impl RootTask for RunOutOfDescriptors {
    const NAME: &'static str = "run-out-of-descriptors";

    fn run(self, link: &Link) {
        // Counting descriptors takes one, so they are counted by filling up again.
        let fill = |files: &mut Vec<File>| files.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
        let mut files = Vec::new();
        fill(&mut files);
        let n_files = files.len();
        let mut n_failed = 0_u64;
        loop {
            match Heap::create(Domain::builder().address_space_bytes(64 << 20)) {
                Ok(heap) => {
                    let queue = Queue::new_in(&heap, 2).unwrap();
                    queue.put(Item::new(&heap, 1, 0, &[10])).unwrap();
                    queue.get().unwrap().check();
                    break;
                }
                Err(error) => assert!(error.to_string().contains("os error 24"), "{error}"),
            }
            n_failed += 1;
            fill(&mut files);
            assert_eq!(files.len(), n_files, "a failure keeps no descriptor");
            files.truncate(n_files - usize::try_from(n_failed).unwrap());
        }
        link.say(&n_failed.to_string());
    }
}
