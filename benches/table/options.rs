//! What the user asked for.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use lexopt::prelude::*;

/// The settings of one run.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    pub(crate) rows: Vec<String>,
    pub(crate) python: Option<PathBuf>,
    pub(crate) peers: Option<PathBuf>,
    pub(crate) check: bool,
    out: Option<PathBuf>,
    is_quick: bool,
}

impl Options {
    pub(crate) fn parse() -> anyhow::Result<Self> {
        let mut options = Self {
            rounds: 7,
            seconds: 0.3,
            rows: Vec::new(),
            python: None,
            peers: None,
            check: false,
            out: None,
            is_quick: false,
        };
        let mut arguments = lexopt::Parser::from_env();
        while let Some(argument) = arguments.next()? {
            match argument {
                Long("rounds") => options.rounds = arguments.value()?.parse()?,
                Long("seconds") => options.seconds = arguments.value()?.parse()?,
                Long("quick") => {
                    (options.rounds, options.seconds, options.is_quick) = (1, 0.06, true);
                }
                Long("row") => options.rows.push(arguments.value()?.string()?),
                Long("python") => options.python = Some(arguments.value()?.into()),
                Long("peers") => options.peers = Some(arguments.value()?.into()),
                Long("out") => options.out = Some(arguments.value()?.into()),
                Long("check") => options.check = true,
                // What `cargo bench` adds to every bench.
                Long("bench") => {}
                other => return Err(other.unexpected().into()),
            }
        }
        ensure!(options.rounds > 0, "--rounds has to be at least 1");
        Ok(options)
    }

    /// Whether a row was asked for.
    pub(crate) fn wants(&self, id: &str) -> bool {
        self.rows.is_empty() || self.rows.iter().any(|wanted| id.contains(wanted.as_str()))
    }

    /// Where the table is written, if it is. A part of it, or a quick look, does not replace the table in the
    /// docs.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        let docs = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/bench");
        self.out.clone().or_else(|| (self.rows.is_empty() && !self.is_quick).then(docs))
    }
}
