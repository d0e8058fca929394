//! The command line.

use std::ffi::OsString;
use std::str::FromStr;
use std::time::Duration;

use lexopt::{Arg, Error, Parser, ValueExt as _};

/// What `--help` prints.
pub(crate) const USAGE: &str = "\
What works on this machine, and which processes share what.

  tensorferry doctor [--json]
      Tries what tensorferry needs: memory files, processes, waiting, devices.
      Says what is missing and how to mend it. Fails if something has to be.

  tensorferry top [--json] [--once] [--every SECONDS] [PID...]
      Shows the domains of all processes that this user may inspect, or of these:
      members and what they hold, queues and how full they are, locks and who has them.
      On a terminal again every two seconds until Ctrl-C, elsewhere once.
      HOLDS and BYTES are what a process holds, ALONE what nobody else holds and no
      waiting message names, OWNS the memory that it has populated, CACHED what of that
      is kept for later. SENDERS, RECEIVERS, HELD BY and so on are slots.

  tensorferry --help, --version
";

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(crate) enum Command {
    /// `--help`.
    Help,
    /// `--version`.
    Version,
    /// `doctor`.
    Doctor {
        /// For programs.
        json: bool,
    },
    /// `top`.
    Top(Top),
}

/// How `top` is to show what.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Top {
    /// For programs.
    pub(crate) json: bool,
    /// Not again, not even on a terminal.
    pub(crate) once: bool,
    /// How long from one time to the next.
    pub(crate) every: Option<Duration>,
    /// The processes whose domains are shown; all if there are none.
    pub(crate) pids: Vec<u32>,
}

impl Command {
    /// Reads the arguments behind the name of the program.
    pub(crate) fn parse(mut arguments: Parser) -> Result<Self, Error> {
        let name = match arguments.next()? {
            None => return Err("what is to be done: doctor or top?".into()),
            Some(Arg::Short('h') | Arg::Long("help")) => return Ok(Self::Help),
            Some(Arg::Short('V') | Arg::Long("version")) => return Ok(Self::Version),
            Some(Arg::Value(name)) => name,
            Some(other) => return Err(other.unexpected()),
        };
        match name.to_str() {
            Some("doctor") => Self::doctor(arguments),
            Some("top") => Self::top(arguments),
            Some("help") => Ok(Self::Help),
            _ => Err(format!("there is no command {}", name.display()).into()),
        }
    }

    fn doctor(mut arguments: Parser) -> Result<Self, Error> {
        let mut json = false;
        while let Some(argument) = arguments.next()? {
            match argument {
                Arg::Short('h') | Arg::Long("help") => return Ok(Self::Help),
                Arg::Long("json") => json = true,
                other => return Err(other.unexpected()),
            }
        }
        Ok(Self::Doctor { json })
    }

    fn top(mut arguments: Parser) -> Result<Self, Error> {
        let mut top = Top::default();
        while let Some(argument) = arguments.next()? {
            match argument {
                Arg::Short('h') | Arg::Long("help") => return Ok(Self::Help),
                Arg::Long("json") => top.json = true,
                Arg::Long("once") => top.once = true,
                Arg::Long("every") => top.every = Some(arguments.value()?.parse_with(seconds)?),
                Arg::Value(pid) => top.pids.push(parse_pid(pid)?),
                other => return Err(other.unexpected()),
            }
        }
        if top.once && top.every.is_some() {
            return Err("either --once or --every".into());
        }
        Ok(Self::Top(top))
    }
}

fn parse_pid(text: OsString) -> Result<u32, Error> {
    text.parse_with(|text| u32::from_str(text).map_err(|_| "a process is given by its number"))
}

fn seconds(text: &str) -> Result<Duration, &'static str> {
    let seconds = f64::from_str(text).ok().filter(|seconds| (0.05..=86_400.0).contains(seconds));
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or("a number of seconds, from 0.05 to 86400")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, String> {
        Command::parse(Parser::from_args(line.split_whitespace())).map_err(|error| error.to_string())
    }

    #[test]
    fn commands_are_understood() {
        assert_eq!(parse("doctor"), Ok(Command::Doctor { json: false }));
        assert_eq!(parse("doctor --json"), Ok(Command::Doctor { json: true }));
        assert_eq!(parse("top"), Ok(Command::Top(Top::default())));
        let every = Some(Duration::from_millis(500));
        let pids = vec![12, 7];
        assert_eq!(
            parse("top 12 --every 0.5 --json 7"),
            Ok(Command::Top(Top { json: true, once: false, every, pids }))
        );
        for help in ["--help", "-h", "help", "doctor --help", "top -h"] {
            assert_eq!(parse(help), Ok(Command::Help), "{help}");
        }
        assert_eq!(parse("--version"), Ok(Command::Version));
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        for line in ["", "dance", "doctor now", "top me", "top --every", "top --every -1", "top --every x"] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(parse("top --once --every 1").unwrap_err().contains("--once"));
        assert!(parse("top --every nan").is_err() && parse("top --every 1e19").is_err());
    }
}
