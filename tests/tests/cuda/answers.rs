//! The software driver, held against what drivers have answered: itself, through C and between real
//! processes, and every real one whose record stands in `docs/gpu`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use tensorferry_kit::{Machine, Record, consumer_killed, needs_software_driver, where_possible};

/// Every record below a folder.
fn records_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(records_in(&path));
        } else if path.ends_with("answers.json") {
            found.push(path);
        }
    }
    found
}

fn read(path: &Path) -> Record {
    let text = std::fs::read_to_string(path).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_software_driver_says_to_processes_what_its_table_says() {
    where_possible(|| {
        needs_software_driver();
        let record = Record::of_this_machine("today", |_, _| ());
        let none: [String; 0] = [];
        assert_eq!(record.contradictions(), none);
        assert_eq!(record.card, "software device 0");
    });
}

#[test]
fn the_software_driver_contradicts_no_record_of_a_real_one() {
    where_possible(|| {
        needs_software_driver();
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/gpu"));
        for path in records_in(folder) {
            let record = read(&path);
            assert!(
                !record.card.starts_with("software device"),
                "{}: a rehearsal is no record",
                path.display()
            );
            let contradictions = record.contradictions();
            assert!(contradictions.is_empty(), "{}:\n{}", path.display(), contradictions.join("\n"));
        }
    });
}

/// Where records are found, a right one passes and a wrong one does not.
#[test]
fn a_record_that_differs_is_noticed() {
    where_possible(|| {
        needs_software_driver();
        let fixtures = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cuda/records"));
        let mut found = records_in(fixtures);
        found.sort();
        let [altered, own] = &found[..] else { panic!("two fixtures, not {found:?}") };
        let none: [String; 0] = [];
        assert_eq!(read(own).contradictions(), none);
        let contradictions = read(altered).contradictions();
        let starts = [
            "vmm-exporter-killed, mapped memory after its exporter was killed",
            "no-such-question",
            "fork: was not asked",
        ];
        assert_eq!(contradictions.len(), starts.len(), "{contradictions:#?}");
        for start in starts {
            assert!(
                contradictions.iter().any(|text| text.starts_with(start)),
                "{start}: {contradictions:#?}"
            );
        }
    });
}

/// The context of the importer takes more than what the exporter frees, and comes back when the importer is
/// killed.
#[test]
fn a_context_that_comes_back_hides_no_memory_that_does_not() {
    where_possible(|| {
        needs_software_driver();
        let answer = |settings: &str| {
            consumer_killed(&Machine::new(&format!("context_mib=500,{settings}")), Duration::from_secs(1))
        };
        assert_eq!(answer(""), "comes back");
        assert_eq!(answer("lose=cuMemFree_v2"), "does not come back");
    });
}
