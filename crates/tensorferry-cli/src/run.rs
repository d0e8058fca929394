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
    /// The arguments make no sense; the text says why.
    Misused(String),
}

/// Does what the arguments say, without the name of the program, and writes what is to be said to `out`.
/// `size` is asked for rows and columns, if that is a terminal, which can be written again and again.
///
/// # Errors
/// Of `out`, what [`tensorferry_inspect::find`] answers, and that all processes which `top` was to show have
/// ended.
///
/// # Blocking
/// `top` goes on for ever where it is asked to, or by itself on a terminal. `doctor` starts processes, and
/// waits at most ten seconds for each of them, a minute for one that reads memory of a device.
pub fn run(
    arguments: impl IntoIterator<Item: Into<OsString>, IntoIter: 'static>,
    out: &mut impl Write,
    size: impl Fn() -> Option<(usize, usize)>,
) -> anyhow::Result<Outcome> {
    let command = match Command::parse(lexopt::Parser::from_args(arguments)) {
        Ok(command) => command,
        Err(error) => return Ok(Outcome::Misused(format!("{error}; see tensorferry --help"))),
    };
    match command {
        Command::Help => write!(out, "{USAGE}")?,
        Command::Version => writeln!(out, "tensorferry {}", env!("CARGO_PKG_VERSION"))?,
        Command::Doctor { json } => {
            if !doctor::run(json, out)? {
                return Ok(Outcome::SomethingMissing);
            }
        }
        Command::Top(options) => top::run(&options, out, size)?,
    }
    out.flush()?;
    Ok(Outcome::Well)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misuse_is_told() {
        let mut out = Vec::new();
        let outcome = run(["dance"], &mut out, || None).unwrap();
        let Outcome::Misused(text) = outcome else { panic!("{outcome:?}") };
        assert!(text.contains("dance") && text.contains("--help"), "{text}");
        assert_eq!(run(["--help"], &mut out, || None).unwrap(), Outcome::Well);
        assert_eq!(out, USAGE.as_bytes());
    }
}
