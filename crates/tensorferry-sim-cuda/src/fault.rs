//! Failures on order: which call of which function fails, and with what.

use std::sync::{Mutex, PoisonError};

use crate::{Answer, Status};

/// One failure that was ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    function: String,
    status: Status,
    /// Calls of the function that still work before it.
    n_before: u32,
}

impl Fault {
    /// `cuMemMap:2`, or `cuMemMap:2:5`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let function = parts.next().filter(|name| name.starts_with("cu"))?.to_owned();
        let status = Status::from_code(parts.next()?.parse().ok()?)?;
        let n_before = parts.next().map_or(Ok(0), str::parse).ok()?;
        parts.next().is_none().then_some(Self { function, status, n_before })
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

    /// Counts a call of `function`; the error is what it answers instead of being done.
    pub(crate) fn meet(&self, function: &str) -> Answer {
        let mut ordered = self.ordered.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = ordered.iter().position(|fault| fault.function == function) else { return Ok(()) };
        if ordered[at].n_before > 0 {
            ordered[at].n_before -= 1;
            return Ok(());
        }
        Err(ordered.remove(at).status)
    }
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
        assert_eq!(Fault::parse("cuMemMap:0"), None, "success is no failure");
        assert_eq!(Fault::parse("cuMemMap:2:1:1"), None);
    }
}
