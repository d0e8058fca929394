//! A process that reads whatever it is given.

use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::decoders::{self, Decoder};
use crate::{Link, RootTask};

/// Gives bytes to every decoder; that it gets through is the point. Says the name of each decoder that it has
/// done and how many inputs it had, and `done`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reader {
    /// Every file of the corpora in this folder.
    Corpora(PathBuf),
    /// Every seed, cut off at each byte and with one bit of each byte turned over.
    Broken,
    /// The first seed of each, which has to be what it should be.
    Whole,
}

impl RootTask for Reader {
    const NAME: &'static str = "reader";

    fn run(self, link: &Link) {
        for decoder in decoders::ALL {
            let inputs = match &self {
                Self::Corpora(folder) => files_in(&folder.join(decoder.name)),
                Self::Broken => broken_seeds_of(decoder),
                Self::Whole => (decoder.seeds)().into_iter().take(1).collect(),
            };
            let n_understood = inputs.iter().filter(|input| (decoder.run)(input)).count();
            let is_refused = matches!(self, Self::Whole) && n_understood == 0;
            assert!(!is_refused, "{}: the first seed is not {}", decoder.name, decoder.reads);
            link.say(&format!("{}: {}", decoder.name, inputs.len()));
        }
        link.say("done");
    }
}

fn files_in(folder: &std::path::Path) -> Vec<Vec<u8>> {
    fs::read_dir(folder).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect()
}

fn broken_seeds_of(decoder: &Decoder) -> Vec<Vec<u8>> {
    // Each of these makes a domain for each call.
    let stride = if ["join", "memory", "parcel"].contains(&decoder.name) { 17 } else { 1 };
    let mut broken = Vec::new();
    for seed in (decoder.seeds)() {
        for at in (0..seed.len()).step_by(stride) {
            broken.push(seed[..at].to_vec());
            let mut flipped = seed.clone();
            flipped[at] ^= 1 << (at % 8);
            broken.push(flipped);
        }
    }
    broken
}
