//! `cargo xtask tidy`: the rules of docs/STYLE.md that a program can check. It also runs as a test of this
//! package.
//!
//! A rule is a function from text to offences, so that each has a test which shows it failing.

mod arrows;
mod errors;
mod facts;
mod layout;
mod locks;
mod readme;
mod source;
mod unsafe_files;
mod width;
mod words;

use std::fmt;
use std::path::Path;

use anyhow::{Context as _, bail};
use xshell::{Shell, cmd};

use crate::workspace::Workspace;

/// One text file of the checkout.
#[derive(Clone, Debug)]
struct TextFile {
    /// From the root, with `/`.
    path: String,
    text: String,
}

/// A place that breaks a rule, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Offence {
    path: String,
    /// From 1; 0 where the whole file is meant.
    line: usize,
    what: String,
}

impl Offence {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Offence {
        Offence { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Offence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// Prints every offence; one is enough to fail.
pub(crate) fn run(sh: &Shell) -> anyhow::Result<()> {
    let workspace = Workspace::load(sh)?;
    let files = text_files(sh)?;
    let mut offences = check(&workspace, &files);
    offences.extend(locks::check(sh, &files));
    offences.iter().for_each(|offence| println!("{offence}"));
    if !offences.is_empty() {
        bail!("{} offence(s) against docs/STYLE.md", offences.len());
    }
    println!("tidy: {} files, {} packages", files.len(), workspace.packages.len());
    Ok(())
}

fn check(workspace: &Workspace, files: &[TextFile]) -> Vec<Offence> {
    let mut offences = arrows::check(workspace, facts::ARROWS, facts::CONFINED);
    offences.extend(layout::examples(workspace, facts::WITHOUT_EXAMPLE));
    offences.extend(layout::manifests(workspace, files));
    let pages = files.iter().filter(|file| file.path.ends_with(".md") || file.path.ends_with(".rs"));
    offences.extend(pages.flat_map(width::check));
    let rust = || files.iter().filter(|file| file.path.ends_with(".rs"));
    for file in rust() {
        offences.extend(layout::head(file));
        offences.extend(layout::size(file, facts::LONG_FILES));
        offences.extend(layout::root(file, facts::ROOTS_WITH_CODE));
        offences.extend(errors::sources(file));
        offences.extend(words::in_code(file));
        offences.extend(words::ignored_doctests(file));
        offences.extend(unsafe_files::check(file, facts::UNSAFE_FILES));
    }
    let paths: Vec<_> = files.iter().map(|file| file.path.as_str()).collect();
    offences.extend(layout::stale(&paths, facts::LONG_FILES, "the list of long files"));
    offences.extend(layout::stale(&paths, facts::ROOTS_WITH_CODE, "the list of roots with code"));
    offences.extend(layout::stale(&paths, facts::UNSAFE_FILES, "the list of files with unsafe code"));
    for file in files {
        offences.extend(words::unfinished(file));
        offences.extend(words::machine_paths(file));
    }
    let readme = files.iter().find(|file| file.path == "README.md");
    let crates: Vec<_> = workspace.crates().map(|package| package.name.as_str()).collect();
    offences.extend(readme::check(readme.map_or("", |file| &file.text), &crates));
    offences.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    offences
}

/// Every text file that belongs to the project: what git tracks or would track, or, where there is no git,
/// what lies in the folder beside the build's output.
fn text_files(sh: &Shell) -> anyhow::Result<Vec<TextFile>> {
    let root = sh.current_dir();
    let listed = cmd!(sh, "git ls-files --cached --others --exclude-standard").quiet().ignore_stderr().read();
    let mut paths = match listed {
        Ok(listed) if !listed.is_empty() => listed.lines().map(str::to_owned).collect(),
        _ => {
            let mut found = Vec::new();
            walk(&root, &root, &mut found)?;
            found
        }
    };
    paths.sort();
    paths.dedup();
    let mut files = Vec::new();
    for path in paths {
        // A file may be listed and yet removed from the folder, and what is not UTF-8 is not text.
        if let Ok(bytes) = std::fs::read(root.join(&path))
            && let Ok(text) = String::from_utf8(bytes)
        {
            files.push(TextFile { path, text });
        }
    }
    Ok(files)
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<String>) -> anyhow::Result<()> {
    for entry in folder.read_dir().with_context(|| format!("could not read {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        let kind = entry.file_type()?;
        if kind.is_dir() && name != "target" && name != ".git" {
            walk(root, &entry.path(), found)?;
        } else if kind.is_file() {
            let path = entry.path();
            let below_root =
                path.strip_prefix(root).context("a file lies outside the folder that holds it")?;
            found.push(below_root.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_tidy() {
        let sh = Shell::new().unwrap();
        sh.change_dir(crate::root().unwrap());
        let files = text_files(&sh).unwrap();
        assert!(files.iter().any(|file| file.path == "xtask/src/tidy.rs"), "the files were not found");
        let offences = check(&Workspace::load(&sh).unwrap(), &files);
        let shown: Vec<_> = offences.iter().map(Offence::to_string).collect();
        assert!(offences.is_empty(), "\n{}", shown.join("\n"));
    }

    #[test]
    fn files_are_found_without_git_too() {
        let folder = crate::root().unwrap().join("xtask");
        let mut found = Vec::new();
        walk(&folder, &folder, &mut found).unwrap();
        assert!(found.iter().any(|path| path == "src/tidy.rs"), "{found:?}");
    }

    #[test]
    fn an_offence_says_where() {
        assert_eq!(Offence::new("a.rs", 3, "is bad").to_string(), "a.rs:3: is bad");
        assert_eq!(Offence::new("a.rs", 0, "is bad").to_string(), "a.rs: is bad");
    }
}
