//! One table: tensorferry beside copying, its peers, torch and the limit of this machine.
//!
//! `--rounds N` (7), `--quick` (one short round), `--row NAME` (only rows whose name holds NAME), `--python
//! PATH` (a Python that has torch), `--peers PATH` (the program of `benches/peers`), `--out DIR` (where the
//! table is written, `docs/bench` when all rows were measured), `--check` (only the rows with a bound; fails
//! when one falls short).

mod bounds;
mod calls;
mod catalogue;
mod machine;
mod markdown;
mod near;
mod options;
mod plot;
mod programs;
mod results;

use std::io::Write as _;
use std::process::ExitCode;

use crate::catalogue::rows;
use crate::options::Options;
use crate::programs::Programs;
use crate::results::Results;

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse()?;
    let mut out = std::io::stdout();
    let mut programs = Programs::start(&options)?;
    for note in programs.notes() {
        writeln!(out, "{note}")?;
    }
    if options.check {
        return bounds::check(&options, &mut programs);
    }
    let rows: Vec<_> = rows().into_iter().filter(|row| options.wants(row.id)).collect();
    let mut results = Results::measure(&options, &mut programs, rows)?;
    results.calls = calls::count(&options, &programs)?;
    let text = markdown::table(&results, &machine::describe(&programs));
    writeln!(out, "{text}")?;
    if let Some(folder) = options.folder() {
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("table.md"), &text)?;
        std::fs::write(folder.join("table.json"), serde_json::to_string_pretty(&results.json(&programs))?)?;
        std::fs::write(folder.join("table.svg"), plot::svg(&results))?;
        writeln!(out, "written to {}", folder.display())?;
    }
    Ok(ExitCode::SUCCESS)
}
