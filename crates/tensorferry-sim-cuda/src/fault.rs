//! Injected faults: which call of which function fails and how, is lost, or kills its process.

use std::sync::{Mutex, PoisonError};

use crate::{Answer, Status};

/// The effect of an injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The call does nothing and returns this.
    Fail(Status),
    /// The call does nothing and reports success, as in a driver that leaks.
    Lose,
    /// The process is killed.
    Kill,
}

/// The fate of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Do its work.
    Done,
    /// Do nothing, and report success.
    Lost,
}

/// One injected fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// `*` for any function.
    function: String,
    kind: Kind,
    /// The number of calls that still work before the fault.
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

    /// `cuMemMap`, or `cuMemMap:5`: a fault that kills the process.
    pub(crate) fn parse_kill(text: &str) -> Option<Self> {
        Self::parse_without_code(text, Kind::Kill)
    }

    /// As [`Fault::parse_kill`], for a call that is lost.
    pub(crate) fn parse_lose(text: &str) -> Option<Self> {
        Self::parse_without_code(text, Kind::Lose)
    }

    fn parse_without_code(text: &str, kind: Kind) -> Option<Self> {
        let (name, n_before) = text.split_once(':').unwrap_or((text, "0"));
        Some(Self { function: function(name)?, kind, n_before: n_before.parse().ok()? })
    }
}

/// The faults that have not happened yet.
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

    /// Cancels the faults that have not happened yet.
    pub(crate) fn clear(&self) {
        self.ordered.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Counts a call of `function`. An error is the call's answer, in place of its work.
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

/// As a kill from outside: nothing is unwound, flushed or dropped.
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
