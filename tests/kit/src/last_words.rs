//! What the driver says to a process that has begun to exit: handlers of exit(3) that ask it.

use std::sync::OnceLock;

use tensorferry_os::child::at_exit;

use crate::raw_driver::RawDriver;

/// Never dropped, because its library is still called at the very end.
static DRIVER: OnceLock<RawDriver> = OnceLock::new();

/// Registers a handler that runs after the driver's own, if the driver is not initialised yet. It says
/// nothing unless [`ask_at_exit`] is called, too.
pub(crate) fn register_before_init() {
    at_exit(earlier).unwrap();
}

/// Registers a handler that runs before the driver's own, and has both say on standard error what they are
/// told.
pub(crate) fn ask_at_exit() {
    DRIVER.get_or_init(RawDriver::load);
    at_exit(later).unwrap();
}

/// What was said by `earlier`, which was registered before the driver was initialised, and by `later`.
pub(crate) fn heard(stderr: &str) -> String {
    let said =
        |whose: &str| stderr.lines().find_map(|line| Some(line.split_once(whose)?.1)).unwrap_or("nothing");
    format!("{}; {}", said(EARLIER), said(LATER))
}

const EARLIER: &str = "the earlier handler is told ";
const LATER: &str = "the later handler is told ";

extern "C" fn earlier() {
    tell(EARLIER);
}

extern "C" fn later() {
    tell(LATER);
}

#[expect(clippy::print_stderr, reason = "the end of the process is too late for anything else")]
fn tell(whose: &str) {
    if let Some(driver) = DRIVER.get() {
        // It asks for what is current on this thread, too.
        let code = driver.synchronize();
        eprintln!("{whose}{}", if code == 0 { "ok".to_owned() } else { driver.name_of(code) });
    }
}
