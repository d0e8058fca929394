//! Failures on order: which call of which function fails, and with what, or is lost, or kills its process.

use std::sync::{Mutex, PoisonError};

use crate::{Answer, Status};

/// What a call comes to that was ordered to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It does nothing and answers this.
    Fail(Status),
    /// It does nothing and answers that all is well: what a driver does that leaks.
    Lose,
    /// Its process is killed.
    Kill,
}

/// What a function does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// What it is there for.
    Done,
    /// Nothing, as if it had been done.
    Lost,
}

/// One failure that was ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// `*` for any.
    function: String,
    kind: Kind,
    /// Calls of the function that still work before it.
    n_before: u32,
}

impl Fault {
    /// `cuMemMap:2`, or `cuMemMap:2:5`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let function = function(parts.next()?)?;
        let kind = Kind::Fail(Status::from_code(parts.next()?.parse().ok()?)?);
        let n_before = parts.next().map_or(Ok(0), str::parse).ok()?;
        parts.next().is_none().then_some(Self { function, kind, n_before })
    }

    /// `cuMemMap`, or `cuMemMap:5`: a kill.
    pub(crate) fn parse_kill(text: &str) -> Option<Self> {
        Self::parse_without_code(text, Kind::Kill)
    }

    /// As [`Fault::parse_kill`]: a call that is lost.
    pub(crate) fn parse_lose(text: &str) -> Option<Self> {
        Self::parse_without_code(text, Kind::Lose)
    }

    fn parse_without_code(text: &str, kind: Kind) -> Option<Self> {
        let (name, n_before) = text.split_once(':').unwrap_or((text, "0"));
        Some(Self { function: function(name)?, kind, n_before: n_before.parse().ok()? })
    }
}

/// The failures that are still to come.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    ordered: Mutex<Vec<Fault>>,
}

impl Faults {
    pub(crate) fn new(ordered: Vec<Fault>) -> Self {
        Self { ordered: Mutex::new(ordered) }
    }

    pub(crate) fn order(&self, fault: Fault) {
        self.ordered.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
    }

    /// Forgets those that are still to come.
    pub(crate) fn clear(&self) {
        self.ordered.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Counts a call of `function`; the error is what it answers instead of being done.
    pub(crate) fn meet(&self, function: &str) -> Answer<Fate> {
        let mut ordered = self.ordered.lock().unwrap_or_else(PoisonError::into_inner);
        let is_meant = |fault: &Fault| fault.function == function || fault.function == ANY;
        let Some(at) = ordered.iter().position(is_meant) else { return Ok(Fate::Done) };
        if ordered[at].n_before > 0 {
            ordered[at].n_before -= 1;
            return Ok(Fate::Done);
        }
        match ordered.remove(at).kind {
            Kind::Fail(status) => {
                say(function, "fails");
                Err(status)
            }
            Kind::Lose => {
                say(function, "is lost");
                Ok(Fate::Lost)
            }
            Kind::Kill => die(),
        }
    }
}

const ANY: &str = "*";

fn function(name: &str) -> Option<String> {
    (name == ANY || name.starts_with("cu")).then(|| name.to_owned())
}

#[expect(clippy::print_stderr, reason = "whoever ordered any call to fail learns which one it was")]
fn say(function: &str, what: &str) {
    eprintln!("sim-cuda: {function} {what} as ordered");
}

/// As a kill from outside would: nothing is unwound, flushed or dropped.
fn die() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_strikes_once_after_the_calls_that_still_work() {
        let faults = Faults::new(vec![Fault::parse("cuMemMap:2:1").unwrap()]);
        assert_eq!(faults.meet("cuMemUnmap"), Ok(Fate::Done));
        assert_eq!(faults.meet("cuMemMap"), Ok(Fate::Done));
        assert_eq!(faults.meet("cuMemMap"), Err(Status::OUT_OF_MEMORY));
        assert_eq!(faults.meet("cuMemMap"), Ok(Fate::Done));
        faults.order(Fault::parse("*:2:1").unwrap());
        assert_eq!(faults.meet("cuMemUnmap"), Ok(Fate::Done));
        assert_eq!(faults.meet("cuMemCreate"), Err(Status::OUT_OF_MEMORY));
        faults.order(Fault::parse("*:2").unwrap());
        faults.clear();
        assert_eq!(faults.meet("cuMemMap"), Ok(Fate::Done));
        faults.order(Fault::parse_lose("cuMemMap:1").unwrap());
        assert_eq!([(); 3].map(|()| faults.meet("cuMemMap").unwrap()), [Fate::Done, Fate::Lost, Fate::Done]);
        let kill = Fault { function: "*".to_owned(), kind: Kind::Kill, n_before: 7 };
        assert_eq!((Fault::parse_kill("*:7"), Fault::parse_kill("7")), (Some(kill), None));
        assert_eq!(Fault::parse("cuMemMap:0"), None, "success is no failure");
        assert_eq!(Fault::parse("cuMemMap:2:1:1"), None);
    }
}
