//! Asks the CUDA driver of this machine what its documentation leaves open: `answers [--out FILE] [--date
//! DATE]`. Says for each question what the driver answers, and what the software driver would; writes the
//! record as JSON. `cargo xtask test-gpu` runs it.
#![expect(clippy::print_stdout, reason = "a command-line tool talks to its user")]

use std::path::PathBuf;
use std::process::ExitCode;

use lexopt::prelude::*;
use tensorferry_kit::Record;

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let (mut out, mut date) = (None, String::from("unknown"));
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("out") => out = Some(PathBuf::from(arguments.value()?)),
            Long("date") => date = arguments.value()?.string()?,
            other => return Err(other.unexpected().into()),
        }
    }
    let record = Record::of_this_machine(&date, |question, answer| {
        println!("{}: {}? {answer}", question.id, question.asks);
    });
    for (id, why) in &record.not_asked {
        println!("{id}: not asked: {why}");
    }
    if let Some(out) = out {
        std::fs::write(out, serde_json::to_string_pretty(&record)? + "\n")?;
    }
    let contradictions = record.contradictions();
    contradictions.iter().for_each(|text| println!("DIFFERS: {text}"));
    println!(
        "answers of {}, {}: {} answered, {} not asked, {} differ from the software driver",
        record.card,
        record.driver,
        record.answers.len(),
        record.not_asked.len(),
        contradictions.len()
    );
    // That a real driver differs is news and no failure here: the test that reads the record fails until it
    // is dealt with.
    Ok(if record.answers.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
