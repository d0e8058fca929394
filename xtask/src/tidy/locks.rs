//! Lock files: every workspace of the checkout has one that fits its manifests.
//!
//! A dependency that a package of the main workspace gains changes also the lock files of the workspaces
//! beside it that use that package; cargo mends only the one that it happens to build.

use xshell::{Shell, cmd};

use super::{Offence, TextFile};

/// Asks cargo about every lock file among `files`; it resolves each workspace and downloads no package.
pub(super) fn check(sh: &Shell, files: &[TextFile]) -> Vec<Offence> {
    let paths = files.iter().map(|file| file.path.as_str());
    paths.filter_map(|path| manifest_of(path).and_then(|manifest| stale(sh, path, &manifest))).collect()
}

/// The manifest of the workspace that a lock file belongs to.
fn manifest_of(path: &str) -> Option<String> {
    path.strip_suffix("Cargo.lock").map(|folder| format!("{folder}Cargo.toml"))
}

fn stale(sh: &Shell, path: &str, manifest: &str) -> Option<Offence> {
    let asked = cmd!(sh, "cargo update --quiet --workspace --locked --manifest-path {manifest}");
    let output = match asked.quiet().ignore_status().output() {
        Ok(output) if output.status.success() => return None,
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    let why = output.lines().next().unwrap_or("cargo gave no reason");
    let what =
        format!("does not pass: `cargo update --workspace --manifest-path {manifest}` mends it ({why})");
    Some(Offence::new(path, 0, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str =
        "[package]\nname = \"alone\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n";

    #[test]
    fn a_lock_file_has_its_manifest_beside_it() {
        assert_eq!(manifest_of("Cargo.lock").as_deref(), Some("Cargo.toml"));
        assert_eq!(manifest_of("tests/fuzz/Cargo.lock").as_deref(), Some("tests/fuzz/Cargo.toml"));
        assert_eq!(manifest_of("tests/fuzz/Cargo.toml"), None);
    }

    #[test]
    fn a_lock_file_that_its_manifest_has_left_is_an_offence() {
        let sh = Shell::new().unwrap();
        let folder = sh.create_temp_dir().unwrap();
        sh.change_dir(folder.path());
        sh.write_file("Cargo.toml", MANIFEST).unwrap();
        sh.write_file("src/lib.rs", "").unwrap();
        cmd!(sh, "cargo generate-lockfile --offline").quiet().ignore_stderr().run().unwrap();
        let lock = [TextFile { path: "Cargo.lock".to_owned(), text: String::new() }];
        assert_eq!(check(&sh, &lock), []);

        sh.write_file("Cargo.toml", MANIFEST.replace("0.1.0", "0.2.0")).unwrap();
        let [offence] = &check(&sh, &lock)[..] else { panic!("one lock file is stale") };
        assert!(offence.to_string().starts_with("Cargo.lock: "), "{offence}");
        assert!(offence.what.contains("--locked"), "{offence}");
    }
}
