//! `tensorferry doctor` says what works on this machine and how to mend what does not. `tensorferry top` says
//! which processes share what.

#![forbid(unsafe_code)]

use std::io::{self, Write as _};
use std::process::ExitCode;

use tensorferry_cli::{Outcome, run};
use tensorferry_os::terminal;

fn main() -> ExitCode {
    match run(std::env::args_os().skip(1), &mut io::stdout(), || terminal::size(io::stdout())) {
        Ok(Outcome::Well) => ExitCode::SUCCESS,
        Ok(Outcome::SomethingMissing) => ExitCode::FAILURE,
        Ok(Outcome::Misused(text)) => {
            complain(&format!("{text}\n"));
            ExitCode::from(2)
        }
        // Whoever read it has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

fn complain(text: &str) {
    // Where there is no standard error, there is nobody to tell.
    let _ = write!(io::stderr(), "tensorferry: {text}");
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
