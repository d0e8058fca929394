//! Whatever fuzzing starts with or has found, read once more by the build that is tested.

use std::fs;
use std::path::{Path, PathBuf};

use tensorferry_kit::tasks::Reader;
use tensorferry_kit::{Loner, alone, decoders};

fn corpora() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus")
}

#[track_caller]
fn gets_through(reader: Reader) {
    alone(|| {
        let child = Loner::start(&reader, &[]);
        for decoder in decoders::ALL {
            let said = child.hear();
            println!("{said}");
            assert!(said.starts_with(decoder.name) && !said.ends_with(" 0"), "{said}");
        }
        child.expect("done");
        child.finish();
    });
}

#[test]
fn every_file_of_every_corpus_is_a_value_or_an_error() {
    gets_through(Reader::Corpora(corpora()));
}

#[test]
fn every_cut_and_every_flipped_byte_of_a_seed_is_a_value_or_an_error() {
    gets_through(Reader::Broken);
}

#[test]
fn the_first_seed_of_each_corpus_is_what_its_decoder_reads() {
    gets_through(Reader::Whole);
}

#[test]
fn the_corpora_have_the_seeds_that_this_version_writes() {
    for decoder in decoders::ALL {
        for (index, seed) in (decoder.seeds)().iter().enumerate() {
            let file = corpora().join(decoder.name).join(format!("seed-{index:02}"));
            let written = fs::read(&file).unwrap_or_default();
            let name = file.display();
            assert_eq!(&written, seed, "{name}: run `cargo run -p tensorferry-tests --bin seeds`");
        }
    }
}
