//! Where things lie: file heads, file sizes, crate roots, manifests, examples.

use super::facts::Listed;
use super::source::{code_only, first_other_item};
use super::{Offence, TextFile};
use crate::workspace::Workspace;

const MAX_LINES: usize = 800;
const MAX_LINES_OF_TESTS: usize = 1_200;

/// A file begins with what it is.
pub(super) fn head(file: &TextFile) -> Option<Offence> {
    let starts_with_docs = file.text.starts_with("//! ");
    (!starts_with_docs).then(|| Offence::new(&file.path, 1, "the first line says in `//!` what the file is"))
}

/// A file that grew past the limit holds more than one noun.
pub(super) fn size(file: &TextFile, exceptions: &[Listed]) -> Option<Offence> {
    let limit = if is_test(&file.path) { MAX_LINES_OF_TESTS } else { MAX_LINES };
    let n_lines = file.text.lines().count();
    let is_listed = exceptions.iter().any(|(path, _)| *path == file.path);
    match (n_lines > limit, is_listed) {
        (true, false) => {
            Some(Offence::new(&file.path, 0, format!("{n_lines} lines are more than {limit}: split it")))
        }
        (false, true) => {
            Some(Offence::new(&file.path, 0, "is listed as a long file in xtask, and is not long any more"))
        }
        _ => None,
    }
}

fn is_test(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// The root of a library holds docs, modules and re-exports; so does every file of the facade, which also
/// forbids unsafe code.
pub(super) fn root(file: &TextFile, exceptions: &[Listed]) -> Vec<Offence> {
    let in_facade = file.path.starts_with("facade/src/");
    if !(in_facade || file.path.ends_with("/src/lib.rs"))
        || exceptions.iter().any(|(path, _)| *path == file.path)
    {
        return Vec::new();
    }
    let code = code_only(&file.text);
    let mut offences = Vec::new();
    if let Some(line) = first_other_item(&code) {
        offences.push(Offence::new(&file.path, line, "only docs, modules and re-exports belong here"));
    }
    if file.path == "facade/src/lib.rs" && !code.contains("#![forbid(unsafe_code)]") {
        offences.push(Offence::new(&file.path, 0, "the facade says `#![forbid(unsafe_code)]`"));
    }
    offences
}

/// Every package takes the lints of the workspace.
pub(super) fn manifests(workspace: &Workspace, files: &[TextFile]) -> Vec<Offence> {
    let takes_lints = |manifest: &str| {
        let text = files.iter().find(|file| file.path == manifest).map_or("", |file| &file.text);
        let mut lines = text.lines().skip_while(|line| line.trim() != "[lints]").skip(1);
        lines.next().is_some_and(|line| line.trim() == "workspace = true")
    };
    let without = workspace.packages.iter().filter(|package| !takes_lints(&package.manifest));
    without.map(|package| Offence::new(&package.manifest, 0, "`[lints]` is not `workspace = true`")).collect()
}

/// Every crate shows in an example that it is useful alone; two examples of one name would overwrite each
/// other.
pub(super) fn examples(workspace: &Workspace, exceptions: &[Listed]) -> Vec<Offence> {
    let mut offences = Vec::new();
    for package in workspace.crates() {
        let is_listed = exceptions.iter().any(|(name, _)| *name == package.name);
        if package.examples.is_empty() && !is_listed {
            offences.push(Offence::new(&package.manifest, 0, "the crate has no example"));
        }
    }
    let mut seen: Vec<&str> = Vec::new();
    for package in &workspace.packages {
        for example in &package.examples {
            if seen.contains(&example.as_str()) {
                let what =
                    format!("another package has an example `{example}` too: cargo would overwrite one");
                offences.push(Offence::new(&package.manifest, 0, what));
            }
            seen.push(example);
        }
    }
    offences
}

/// A list of files names files that are there.
pub(super) fn stale(paths: &[&str], list: &[Listed], called: &str) -> Vec<Offence> {
    let missing = list.iter().filter(|(path, _)| !paths.contains(path));
    missing
        .map(|(path, _)| Offence::new(path, 0, format!("is in {called} of xtask, and is not there")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Package;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_file_without_a_head_is_an_offence() {
        assert_eq!(head(&file("a.rs", "//! What it is.\n")), None);
        for text in ["", "\n//! Late.\n", "use a;\n", "// A comment.\n", "/// An item.\n"] {
            assert!(head(&file("a.rs", text)).is_some(), "{text:?}");
        }
    }

    #[test]
    fn a_long_file_is_an_offence_unless_it_is_listed() {
        let of_lines = |path, n| file(path, &"\n".repeat(n));
        assert_eq!(size(&of_lines("src/a.rs", 800), &[]), None);
        assert!(size(&of_lines("src/a.rs", 801), &[]).is_some());
        assert_eq!(size(&of_lines("src/a.rs", 801), &[("src/a.rs", "a table")]), None);
        assert!(size(&of_lines("src/a.rs", 8), &[("src/a.rs", "a table")]).is_some());
        for path in ["tests/src/kit.rs", "crates/x/tests/main.rs", "crates/x/src/a/tests.rs"] {
            assert_eq!(size(&of_lines(path, 1_200), &[]), None);
            assert!(size(&of_lines(path, 1_201), &[]).is_some());
        }
    }

    #[test]
    fn code_in_a_root_is_an_offence() {
        let bad = "//! Docs.\nmod a;\nfn f() {}\n";
        assert_eq!(
            root(&file("crates/x/src/lib.rs", bad), &[]),
            [Offence::new("crates/x/src/lib.rs", 3, "only docs, modules and re-exports belong here")]
        );
        assert_eq!(root(&file("crates/x/src/a.rs", bad), &[]), []);
        assert_eq!(root(&file("crates/x/src/lib.rs", bad), &[("crates/x/src/lib.rs", "macros")]), []);
        assert_eq!(root(&file("facade/src/prelude.rs", bad), &[]).len(), 1);
    }

    #[test]
    fn a_facade_that_allows_unsafe_code_is_an_offence() {
        assert_eq!(
            root(&file("facade/src/lib.rs", "//! Docs.\n#![forbid(unsafe_code)]\npub use a;\n"), &[]),
            []
        );
        // A comment does not forbid anything.
        assert_eq!(
            root(&file("facade/src/lib.rs", "//! #![forbid(unsafe_code)]\npub use a;\n"), &[]).len(),
            1
        );
    }

    fn package(name: &str, examples: &[&str]) -> Package {
        let manifest = format!("crates/{name}/Cargo.toml");
        let examples = examples.iter().map(|&example| example.to_owned()).collect();
        Package { name: name.to_owned(), manifest, examples, ..Package::default() }
    }

    #[test]
    fn a_package_with_lints_of_its_own_is_an_offence() {
        let workspace = Workspace { packages: vec![package("a", &[])], ..Workspace::default() };
        let manifest = |text| manifests(&workspace, &[file("crates/a/Cargo.toml", text)]).len();
        assert_eq!(manifest("[package]\n\n[lints]\nworkspace = true\n"), 0);
        assert_eq!(manifest("[package]\n"), 1);
        assert_eq!(manifest("[lints]\nrust.unsafe_code = \"allow\"\n"), 1);
    }

    #[test]
    fn a_crate_without_example_is_an_offence_and_so_is_a_name_used_twice() {
        let found = |packages: &[Package], exceptions| {
            examples(&Workspace { packages: packages.to_vec(), ..Workspace::default() }, exceptions).len()
        };
        assert_eq!(found(&[package("a", &["one"]), package("b", &["two"])], &[]), 0);
        assert_eq!(found(&[package("a", &["one"]), package("b", &[])], &[]), 1);
        assert_eq!(found(&[package("a", &["one"]), package("b", &[])], &[("b", "only attributes")]), 0);
        assert_eq!(found(&[package("a", &["one"]), package("b", &["one"])], &[]), 1);
    }

    #[test]
    fn a_listed_file_that_is_gone_is_an_offence() {
        assert_eq!(stale(&["a.rs"], &[("a.rs", "why")], "the list"), []);
        assert_eq!(stale(&["a.rs"], &[("b.rs", "why")], "the list").len(), 1);
    }
}
