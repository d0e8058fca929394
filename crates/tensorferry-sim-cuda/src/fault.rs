//! Failures on order: which call of which function fails, and with what, or kills its process.

use std::sync::{Mutex, PoisonError};

use crate::{Answer, Status};

/// One failure that was ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// `*` for any.
    function: String,
    /// What the call answers; `None` when the process is killed instead.
    status: Option<Status>,
    /// Calls of the function that still work before it.
    n_before: u32,
}

impl Fault {
    /// `cuMemMap:2`, or `cuMemMap:2:5`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let function = function(parts.next()?)?;
        let status = Some(Status::from_code(parts.next()?.parse().ok()?)?);
        let n_before = parts.next().map_or(Ok(0), str::parse).ok()?;
        parts.next().is_none().then_some(Self { function, status, n_before })
    }

    /// `cuMemMap`, or `cuMemMap:5`: a kill.
    pub(crate) fn parse_kill(text: &str) -> Option<Self> {
        let (name, n_before) = text.split_once(':').unwrap_or((text, "0"));
        Some(Self { function: function(name)?, status: None, n_before: n_before.parse().ok()? })
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
    pub(crate) fn meet(&self, function: &str) -> Answer {
        let mut ordered = self.ordered.lock().unwrap_or_else(PoisonError::into_inner);
        let is_meant = |fault: &Fault| fault.function == function || fault.function == ANY;
        let Some(at) = ordered.iter().position(is_meant) else { return Ok(()) };
        if ordered[at].n_before > 0 {
            ordered[at].n_before -= 1;
            return Ok(());
        }
        match ordered.remove(at).status {
            Some(status) => {
                say(function);
                Err(status)
            }
            None => die(),
        }
    }
}

const ANY: &str = "*";

fn function(name: &str) -> Option<String> {
    (name == ANY || name.starts_with("cu")).then(|| name.to_owned())
}

#[expect(clippy::print_stderr, reason = "whoever ordered any call to fail learns which one it was")]
fn say(function: &str) {
    eprintln!("sim-cuda: {function} fails as ordered");
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
        assert_eq!(faults.meet("cuMemUnmap"), Ok(()));
        assert_eq!(faults.meet("cuMemMap"), Ok(()));
        assert_eq!(faults.meet("cuMemMap"), Err(Status::OUT_OF_MEMORY));
        assert_eq!(faults.meet("cuMemMap"), Ok(()));
        faults.order(Fault::parse("*:2:1").unwrap());
        assert_eq!(faults.meet("cuMemUnmap"), Ok(()));
        assert_eq!(faults.meet("cuMemCreate"), Err(Status::OUT_OF_MEMORY));
        faults.order(Fault::parse("*:2").unwrap());
        faults.clear();
        assert_eq!(faults.meet("cuMemMap"), Ok(()));
        let kill = Fault { function: "*".to_owned(), status: None, n_before: 7 };
        assert_eq!((Fault::parse_kill("*:7"), Fault::parse_kill("7")), (Some(kill), None));
        assert_eq!(Fault::parse("cuMemMap:0"), None, "success is no failure");
        assert_eq!(Fault::parse("cuMemMap:2:1:1"), None);
    }
}
