//! Finds the shared library that cargo has built.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::SETTINGS_VARIABLE;

/// The path of the shared library that cargo built next to the running test, bench, example or program.
/// `None` if there is none, because the package of that program does not depend on this crate.
#[must_use]
pub fn library_path() -> Option<PathBuf> {
    let name =
        format!("{}tensorferry_sim_cuda{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let program = std::env::current_exe().ok()?;
    // Tests are in `deps` itself; programs are next to it; examples are in a folder next to it.
    let folder = program.parent()?;
    let candidates =
        [folder.join(&name), folder.join("deps").join(&name), folder.join("../deps").join(&name)];
    // Only some builds refresh the copy next to a program. The one in `deps` is always up to date.
    let is_in_deps = |path: &PathBuf| path.parent().is_some_and(|folder| folder.ends_with("deps"));
    candidates.into_iter().filter(is_in_deps).find(|path| path.is_file())
}

/// The environment variables with which a process finds the shared library, and in it a machine as
/// [`crate::Settings`] describes it. `loader_variable` is the variable that names the library to its loader.
/// `None` as for [`library_path`].
#[must_use]
pub fn environment(loader_variable: &'static str, settings: &str) -> Option<[(&'static str, OsString); 2]> {
    let library = library_path()?.into_os_string();
    Some([(loader_variable, library), (SETTINGS_VARIABLE, settings.into())])
}
