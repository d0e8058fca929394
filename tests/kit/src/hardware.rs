//! Which CUDA driver the tests of this run use, and what a test needs of it.
//!
//! Without [`VARIABLE`] it is the software driver. With it, the tests run as they do on a real one: nothing
//! of the software driver is used beyond what every driver has, and a test that cannot do without says so and
//! is not counted.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;

use tensorferry_cuda_ipc::DRIVER_VARIABLE;
use tensorferry_sim_cuda::library_path;

use crate::Loner;
use crate::tasks::DeviceUser;

/// `real`: the driver of this machine. `rehearsal`: the software driver, used as if it were a real one.
pub(crate) const VARIABLE: &str = "TENSORFERRY_TEST_GPU";

/// How a test reports that it was not run. `cargo xtask test-gpu` counts these lines.
const NOT_RUN: &str = "NOT RUN: needs";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hardware {
    Simulated,
    Real,
    Rehearsal,
}

fn hardware() -> Hardware {
    static OF_THIS_RUN: OnceLock<Hardware> = OnceLock::new();
    *OF_THIS_RUN.get_or_init(|| match std::env::var(VARIABLE).as_deref() {
        Err(_) => Hardware::Simulated,
        Ok("real") => Hardware::Real,
        Ok("rehearsal") => Hardware::Rehearsal,
        Ok(other) => panic!("{VARIABLE} is `real` or `rehearsal`, not `{other}`"),
    })
}

/// Whether the driver is used as a real one. Then nothing of the software driver works, and exact amounts of
/// memory in use on a device say nothing, because contexts take some and other programs may.
#[must_use]
pub fn is_real() -> bool {
    hardware() != Hardware::Simulated
}

/// The variable that names the driver's library for children, where they do not find it by themselves.
pub(crate) fn driver_variable() -> Option<(&'static str, OsString)> {
    let path = || library_path().expect("cargo builds the software driver beside the tests");
    (hardware() != Hardware::Real).then(|| (DRIVER_VARIABLE, path().into_os_string()))
}

/// What a test needs and this machine lacks.
struct NotHere(String);

/// Ends the test: it cannot be run here. Only inside of [`where_possible`].
pub fn not_here(needs: impl Into<String>) -> ! {
    resume_unwind(Box::new(NotHere(needs.into())))
}

/// Ends the test where the driver is used as a real one.
pub fn needs_software_driver() {
    if is_real() {
        not_here("the software driver");
    }
}

/// Ends the test where the machine has fewer devices. The software driver is given as many as a test wants.
pub fn needs_devices(n_devices: usize) {
    static OF_THIS_MACHINE: OnceLock<usize> = OnceLock::new();
    if is_real() && *OF_THIS_MACHINE.get_or_init(count_devices) < n_devices {
        not_here(format!("{n_devices} devices"));
    }
}

/// Runs a test; where it cannot be run, says why on standard output.
pub fn where_possible(test: impl FnOnce()) {
    if let Err(needs) = if_here(test) {
        println!("{NOT_RUN} {needs}");
    }
}

/// Does something, or answers what this machine lacks for it.
pub(crate) fn if_here<R>(test: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(test)).map_err(|payload| match payload.downcast::<NotHere>() {
        Ok(not_here) => not_here.0,
        Err(payload) => resume_unwind(payload),
    })
}

/// Asked of a child: the test process has no driver.
fn count_devices() -> usize {
    let driver = driver_variable();
    let variables: Vec<_> = driver.iter().map(|(name, value)| (*name, value.as_os_str())).collect();
    let child = Loner::start_with(&DeviceUser, &[], &variables);
    child.say("load");
    child.expect("ok");
    child.say("uuids");
    let n_devices = child.hear().split(' ').count();
    child.finish();
    n_devices
}
