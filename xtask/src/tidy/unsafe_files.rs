//! Which files may hold `unsafe`: those in the list, each with its reason, each opened the same way.

use super::facts::Listed;
use super::source::{code_only, lines_with_word};
use super::{Offence, TextFile};

/// A file holds `unsafe` if and only if it is listed, and then it says why and what it promises.
pub(super) fn check(file: &TextFile, listed: &[Listed]) -> Vec<Offence> {
    let code = code_only(&file.text);
    let dense: String = code.chars().filter(|c| !c.is_whitespace()).collect();
    let mut offences = Vec::new();
    let mut offence = |line: usize, what: &str| offences.push(Offence::new(&file.path, line, what));

    if dense.contains("allow(unsafe_code") {
        offence(0, "unsafe code is opened with `expect`, never with `allow`");
    }
    let is_listed = listed.iter().any(|(path, _)| *path == file.path);
    match (lines_with_word(&code, "unsafe").first(), is_listed) {
        (Some(&line), false) => offence(line, "`unsafe` in a file that is not in the list of xtask"),
        (None, true) => offence(0, "is in the list of files with unsafe code of xtask, and holds none"),
        (Some(_), true) => {
            if !dense.contains("#![expect(unsafe_code") {
                offence(0, "a file with unsafe code says `#![expect(unsafe_code, reason = \"...\")]`");
            }
            if !file.text.lines().any(|line| line == "//! # Safety") {
                offence(0, "a file with unsafe code has a `//! # Safety` heading");
            }
        }
        (None, false) => (),
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &[Listed] = &[("src/a.rs", "it maps memory")];
    const HEAD: &str = "//! A.\n//!\n//! # Safety\n//! All is well.\n\n";

    fn found(path: &str, text: &str) -> usize {
        check(&TextFile { path: path.to_owned(), text: text.to_owned() }, LISTED).len()
    }

    #[test]
    fn a_listed_file_that_says_why_passes() {
        for expect in [
            "#![expect(unsafe_code, reason = \"maps\")]",
            "#![expect(\n    unsafe_code,\n    reason = \"maps\"\n)]",
        ] {
            assert_eq!(found("src/a.rs", &format!("{HEAD}{expect}\nfn f() {{ unsafe {{ g() }} }}\n")), 0);
        }
        assert_eq!(found("src/b.rs", "//! Never unsafe.\nfn f() { g(\"unsafe\") }\n"), 0);
    }

    #[test]
    fn unsafe_in_a_file_that_is_not_listed_is_an_offence() {
        for code in
            ["fn f() { unsafe { g() } }", "unsafe impl Send for A {}", "#[unsafe(no_mangle)] fn f() {}"]
        {
            assert_eq!(found("src/b.rs", &format!("//! B.\n{code}\n")), 1, "{code}");
        }
    }

    #[test]
    fn a_listed_file_without_expectation_heading_or_unsafe_is_an_offence() {
        assert_eq!(found("src/a.rs", &format!("{HEAD}unsafe fn f() {{}}\n")), 1);
        assert_eq!(
            found("src/a.rs", "//! A.\n#![expect(unsafe_code, reason = \"x\")]\nunsafe fn f() {}\n"),
            1
        );
        assert_eq!(found("src/a.rs", &format!("{HEAD}fn f() {{}}\n")), 1);
    }

    #[test]
    fn allowing_unsafe_code_is_an_offence() {
        assert_eq!(found("src/b.rs", "//! B.\n#![allow(unsafe_code)]\n"), 1);
    }
}
