//! Whatever fuzzing starts with or has found, read once more by the build that is tested.

use std::fs;
use std::path::{Path, PathBuf};

use tensorferry_tests::decoders::{self, Decoder};

fn files_of(decoder: &Decoder) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(decoder.name);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn every_file_of_every_corpus_is_a_value_or_an_error() {
    for decoder in decoders::ALL {
        let files = files_of(decoder);
        assert!(!files.is_empty(), "{}", decoder.name);
        for file in files {
            println!("{}", file.display());
            (decoder.run)(&fs::read(file).unwrap());
        }
    }
}

#[test]
fn every_cut_and_every_flipped_byte_of_a_seed_is_a_value_or_an_error() {
    for decoder in decoders::ALL {
        for seed in (decoder.seeds)() {
            // Each of those below makes a domain for each call.
            let stride = if ["join", "memory", "parcel"].contains(&decoder.name) { 17 } else { 1 };
            for at in (0..seed.len()).step_by(stride) {
                (decoder.run)(&seed[..at]);
                let mut flipped = seed.clone();
                flipped[at] ^= 1 << (at % 8);
                (decoder.run)(&flipped);
            }
        }
    }
}

#[test]
fn the_corpora_have_the_seeds_that_this_version_writes() {
    for decoder in decoders::ALL {
        for (index, seed) in (decoder.seeds)().iter().enumerate() {
            let file = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("fuzz/corpus")
                .join(decoder.name)
                .join(format!("seed-{index:02}"));
            let written = fs::read(&file).unwrap_or_default();
            let name = file.display();
            assert_eq!(&written, seed, "{name}: run `cargo run -p tensorferry-tests --bin seeds`");
        }
    }
}
