//! Work whose failure does not end its process.

use std::error::Error;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::hook;
use crate::report::Report;

/// Calls `work`. If it returns an error or panics, returns the report that the process would have ended with.
///
/// A panic is printed as usual, and its report has location and backtrace in a child of this library; in
/// another process it has the message alone. What `work` left half done stays so: a lock that was held is
/// poisoned, as after any caught panic. In a program that is compiled with `panic = "abort"` a panic still
/// ends the process.
///
/// # Errors
/// The report.
pub fn catch<R>(work: impl FnOnce() -> Result<R, Box<dyn Error + Send + Sync>>) -> Result<R, Box<Report>> {
    // An error whose `Display` panics has a report too.
    let work = || work().map_err(|error| Box::new(Report::of_error(&*error)));
    let outcome = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(outcome) => outcome,
        Err(payload) => {
            // Dropping the payload may panic, so it is never dropped.
            let (mut report, backtrace) = hook::explain(ManuallyDrop::new(payload).as_ref());
            report.backtrace = backtrace.map(|backtrace| backtrace());
            Err(Box::new(report))
        }
    };
    // Also those that the work itself has caught, on whatever thread: what comes later is not their doing.
    hook::forget_panics();
    outcome
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;
    use crate::ReportKind;

    #[derive(Debug)]
    struct Unspeakable;

    impl fmt::Display for Unspeakable {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("no words")
        }
    }

    impl Error for Unspeakable {}

    #[test]
    fn an_error_and_a_panic_become_reports_and_the_caller_goes_on() {
        assert_eq!(catch(|| Ok(3)).unwrap(), 3);
        let report = catch(|| Err::<(), _>("no data".into())).unwrap_err();
        assert_eq!((report.kind, report.message.as_str()), (ReportKind::Error, "no data"));
        let report = catch(|| -> Result<(), _> { panic!("at {}", 7) }).unwrap_err();
        assert_eq!((report.kind, report.message.as_str()), (ReportKind::Panic, "at 7"));
        let report = catch(|| Err::<(), _>(Unspeakable.into())).unwrap_err();
        assert_eq!((report.kind, report.message.as_str()), (ReportKind::Panic, "no words"));
    }
}
