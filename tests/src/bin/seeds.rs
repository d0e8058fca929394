//! Writes what the corpora of the fuzz targets start with: `cargo run -p tensorferry-tests --bin seeds`. What
//! fuzzing has added stays.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a command-line tool talks to its user")]

use std::fs;
use std::path::Path;

use tensorferry_kit::decoders;

fn main() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for decoder in decoders::ALL {
        let folder = corpora.join(decoder.name);
        fs::create_dir_all(&folder).unwrap();
        let seeds = (decoder.seeds)();
        for (index, seed) in seeds.iter().enumerate() {
            fs::write(folder.join(format!("seed-{index:02}")), seed).unwrap();
        }
        println!("{:8} {} seeds; reads {}", decoder.name, seeds.len(), decoder.reads);
    }
}
