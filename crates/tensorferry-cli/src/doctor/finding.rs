//! What a check has found.

use std::fmt;

use serde::Serialize;

/// The outcome of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// What was looked at.
    pub(crate) check: String,
    pub(crate) verdict: Verdict,
    /// What was seen, with the numbers.
    pub(crate) what: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fix: Option<String>,
}

/// How far something works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// As it should.
    Works,
    /// More slowly, or with less than there could be.
    Limited,
    /// Not at all, and it is needed.
    Missing,
    /// It is not there, and most programs do without it.
    Absent,
    /// It was not tried, because something else is missing.
    Untried,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Works => "works",
            Self::Limited => "limited",
            Self::Missing => "missing",
            Self::Absent => "absent",
            Self::Untried => "untried",
        })
    }
}

impl Finding {
    fn new(check: &str, verdict: Verdict, what: String, fix: Option<String>) -> Self {
        Self { check: check.to_owned(), verdict, what, fix }
    }

    pub(crate) fn works(check: &str, what: impl Into<String>) -> Self {
        Self::new(check, Verdict::Works, what.into(), None)
    }

    pub(crate) fn limited(check: &str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(check, Verdict::Limited, what.into(), Some(fix.into()))
    }

    pub(crate) fn missing(check: &str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(check, Verdict::Missing, what.into(), Some(fix.into()))
    }

    pub(crate) fn untried(check: &str, what: impl Into<String>) -> Self {
        Self::new(check, Verdict::Untried, what.into(), None)
    }

    pub(crate) fn absent(check: &str, what: impl Into<String>) -> Self {
        Self::new(check, Verdict::Absent, what.into(), None)
    }
}
