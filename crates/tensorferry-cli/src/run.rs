//! One run of the program.

use std::ffi::OsString;
use std::io::Write;

use crate::options::{Command, USAGE};
use crate::{doctor, top};

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It did what was asked.
    Well,
    /// `doctor` has found that something is missing, and has said what.
    SomethingMissing,
    /// The arguments make no sense; the text says why, and how they are to be.
    Misused(String),
}

/// Does what the arguments say, without the name of the program, and writes what is to be said to `out`.
/// `is_terminal` says whether that is a terminal, which can be written again and again.
///
/// # Errors
/// Of `out`, and what [`tensorferry_inspect::find`] answers.
///
/// # Blocking
/// `top` goes on for ever where it is asked to, or by itself on a terminal. `doctor` starts processes, and
/// waits at most some seconds for each of them.
pub fn run(
    arguments: impl IntoIterator<Item: Into<OsString>, IntoIter: 'static>,
    out: &mut impl Write,
    is_terminal: bool,
) -> anyhow::Result<Outcome> {
    let command = match Command::parse(lexopt::Parser::from_args(arguments)) {
        Ok(command) => command,
        Err(error) => return Ok(Outcome::Misused(format!("{error}\n\n{USAGE}"))),
    };
    match command {
        Command::Help => write!(out, "{USAGE}")?,
        Command::Version => writeln!(out, "tensorferry {}", env!("CARGO_PKG_VERSION"))?,
        Command::Doctor { json } => {
            if !doctor::run(json, out)? {
                return Ok(Outcome::SomethingMissing);
            }
        }
        Command::Top(options) => top::run(&options, out, is_terminal)?,
    }
    out.flush()?;
    Ok(Outcome::Well)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misuse_is_told_with_the_usage() {
        let mut out = Vec::new();
        let outcome = run(["dance"], &mut out, false).unwrap();
        let Outcome::Misused(text) = outcome else { panic!("{outcome:?}") };
        assert!(text.contains("dance") && text.contains("tensorferry doctor"), "{text}");
        assert_eq!(run(["--help"], &mut out, false).unwrap(), Outcome::Well);
        assert_eq!(out, USAGE.as_bytes());
    }
}
