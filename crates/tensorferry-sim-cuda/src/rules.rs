//! Tests that put every question of the table to the driver.

mod contexts;
mod events;
mod kernels;
mod legacy;
mod pools;
mod vmm;
mod words;

use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Answer, Driver, QUESTIONS, Settings};

const MIB: usize = 1 << 20;

/// A machine of its own. The processes on it are drivers.
struct Machine {
    settings: String,
}

impl Machine {
    fn new(settings: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { settings: format!("world=rules-{}-{n},{settings}", std::process::id()) }
    }

    /// A process that has initialised the driver.
    fn bare(&self, more: &str) -> Driver {
        Driver::new(Settings::parse(&format!("{},{more}", self.settings)).unwrap())
    }

    /// A process with a current context on device 0.
    fn process(&self) -> Driver {
        self.process_with("")
    }

    fn process_with(&self, more: &str) -> Driver {
        let driver = self.bare(more);
        use_device(&driver, 0);
        driver
    }
}

/// Makes the context of a device current.
fn use_device(driver: &Driver, device: i32) -> usize {
    let context = driver.primary_ctx_retain(device).unwrap();
    driver.ctx_set_current(context).unwrap();
    context
}

/// Compares an observed answer with the table.
#[track_caller]
fn holds(id: &str, seen: impl AsRef<str>) {
    let question = QUESTIONS.iter().find(|question| question.id == id).unwrap();
    assert_eq!(seen.as_ref(), question.answer, "{id}: {}", question.asks);
}

fn says<T>(answer: &Answer<T>) -> String {
    answer.as_ref().map_or_else(ToString::to_string, |_| "ok".to_owned())
}

/// The answer, which must be the same for all.
#[track_caller]
fn all_say(answers: &[String]) -> &str {
    assert!(answers.iter().all(|answer| answer == &answers[0]), "{answers:?}");
    &answers[0]
}

/// The answer, and whether the driver reported a broken rule.
fn with_report<T: Said>(answer: &Answer<T>, driver: &Driver) -> String {
    let reported = if driver.violations().is_empty() { "" } else { ", reported" };
    format!("{}{reported}", answer.as_ref().map_or_else(ToString::to_string, Said::said))
}

/// What a function says that works.
trait Said {
    fn said(&self) -> String;
}

impl Said for () {
    fn said(&self) -> String {
        "ok".to_owned()
    }
}

impl Said for u8 {
    fn said(&self) -> String {
        self.to_string()
    }
}

/// The first byte at an address.
fn read_first(driver: &Driver, address: u64) -> Answer<u8> {
    driver.read(address, 1).map(|bytes| bytes[0])
}

fn used_mib(driver: &Driver) -> usize {
    let (free, total) = driver.mem_info().unwrap();
    (total - free) / MIB
}

#[test]
fn every_question_is_put() {
    let sources = [
        include_str!("rules/contexts.rs"),
        include_str!("rules/events.rs"),
        include_str!("rules/legacy.rs"),
        include_str!("rules/pools.rs"),
        include_str!("rules/vmm.rs"),
        include_str!("rules/words.rs"),
    ];
    // Without white space, so that line breaks do not matter.
    let sources = sources.map(|source| source.split_whitespace().collect::<String>());
    for question in QUESTIONS {
        let put = format!("holds(\"{}\"", question.id);
        assert!(sources.iter().any(|source| source.contains(&put)), "{} is not put", question.id);
    }
}
