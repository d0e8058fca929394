//! Where cargo has put the shared library.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::SETTINGS_VARIABLE;

/// The shared library that cargo built beside the running test, bench, example or program; `None` when there is none,
/// because the package of that program does not depend on this crate.
#[must_use]
pub fn library_path() -> Option<PathBuf> {
    let name =
        format!("{}tensorferry_sim_cuda{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let program = std::env::current_exe().ok()?;
    // Tests lie in `deps` themselves, programs beside it, examples in a folder beside it.
    let folder = program.parent()?;
    let candidates =
        [folder.join(&name), folder.join("deps").join(&name), folder.join("../deps").join(&name)];
    // Beside a program there is a copy that only some builds refresh; the one in `deps` is always up to date.
    let is_in_deps = |path: &PathBuf| path.parent().is_some_and(|folder| folder.ends_with("deps"));
    candidates.into_iter().filter(is_in_deps).find(|path| path.is_file())
}

/// The variables with which a process finds the shared library, and a machine as [`crate::Settings`] describes it there.
/// `loader_variable` is the one that names the library to whoever loads it; `None` as [`library_path`].
#[must_use]
pub fn environment(loader_variable: &'static str, settings: &str) -> Option<[(&'static str, OsString); 2]> {
    let library = library_path()?.into_os_string();
    Some([(loader_variable, library), (SETTINGS_VARIABLE, settings.into())])
}
