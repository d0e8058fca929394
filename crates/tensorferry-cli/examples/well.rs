//! Asks whether everything that the library needs works here, as a service may when it starts, and says only
//! what does not.

#![expect(clippy::print_stdout, reason = "an example talks to people")]

use std::error::Error;

use tensorferry_cli::{Outcome, run};

fn main() -> Result<(), Box<dyn Error>> {
    let mut report = Vec::new();
    if run(["doctor"], &mut report, || None)? == Outcome::Well {
        println!("all is well");
        return Ok(());
    }
    let report = String::from_utf8(report)?;
    for line in report.lines().filter(|line| line.starts_with("missing") || line.contains("->")) {
        println!("{line}");
    }
    Ok(())
}
