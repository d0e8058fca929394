//! Programs in Python, which load the module that was built beside the tests.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::{Child, not_here};

/// Which interpreter runs the tests of Python; otherwise `python3`.
const VARIABLE: &str = "TENSORFERRY_TEST_PYTHON";

/// Starts a program with these arguments, and these variables in its environment. It hears and says lines
/// through its standard input, which is a socket (`tests/tests/python/link.py`). Ends the test where there is
/// no Python 3.11, or where it lacks one of these modules: only inside of
/// [`where_possible`](crate::where_possible).
#[must_use]
pub fn start_python(
    script: &Path,
    arguments: &[&str],
    modules: &[&str],
    environment: &[(String, OsString)],
) -> Child {
    static IS_HERE: OnceLock<bool> = OnceLock::new();
    if !*IS_HERE.get_or_init(|| runs("import sys; assert sys.version_info >= (3, 11)")) {
        not_here(format!("Python 3.11 as `python3`, or as {VARIABLE} names it"));
    }
    if let Some(missing) = modules.iter().find(|module| !runs(&format!("import {module}"))) {
        not_here(format!("the module {missing} for Python"));
    }
    let mut command = interpreter();
    command.arg("-X").arg("faulthandler").arg(script).args(arguments);
    command.env("PYTHONPATH", module_folder()).env("PYTHONDONTWRITEBYTECODE", "1");
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    Child::launch("python", &mut command)
}

fn interpreter() -> Command {
    #[expect(clippy::disallowed_methods, reason = "the kit starts children without the code under test")]
    Command::new(std::env::var_os(VARIABLE).unwrap_or_else(|| "python3".into()))
}

fn runs(program: &str) -> bool {
    interpreter().args(["-c", program]).output().is_ok_and(|output| output.status.success())
}

/// A folder with the module under the name by which Python imports it.
fn module_folder() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let built = tests.with_file_name("libtensorferry_python.so");
    assert!(built.is_file(), "cargo builds {} beside the tests", built.display());
    let folder = tests.with_file_name("python");
    std::fs::create_dir_all(&folder).unwrap();
    let link = folder.join("tensorferry.abi3.so");
    // Other tests make it too.
    let _ = std::os::unix::fs::symlink(&built, &link);
    assert_eq!(std::fs::read_link(&link).unwrap(), built);
    folder
}
