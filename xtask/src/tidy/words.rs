//! Words that do not belong into the project: unfinished work, tests that do not run, sleeps, paths of one
//! machine.

use super::source::{code_only, lines_with_word};
use super::{Offence, TextFile};

/// Code that sleeps, tests that are switched off, functions that are not written.
pub(super) fn in_code(file: &TextFile) -> Vec<Offence> {
    const FORBIDDEN: [(&str, &str); 4] = [
        ("#[ignore", "a test runs or is not there"),
        ("thread::sleep", "wait for an event with a deadline"),
        ("todo!", "what is not written is not there"),
        ("unimplemented!", "what is not written is not there"),
    ];
    let code = code_only(&file.text);
    let mut offences = Vec::new();
    for (i, line) in code.lines().enumerate() {
        for (word, why) in FORBIDDEN.iter().filter(|(word, _)| line.contains(word)) {
            offences.push(Offence::new(&file.path, i + 1, format!("`{word}`: {why}")));
        }
    }
    offences
}

/// An example in the docs that is neither compiled nor run rots. `no_run`, `compile_fail` and `text` say what
/// they are.
pub(super) fn ignored_doctests(file: &TextFile) -> Vec<Offence> {
    let is_ignored = |line: &str| {
        let line = line.trim_start();
        let docs = line.strip_prefix("//!").or_else(|| line.strip_prefix("///"));
        let fence = docs.and_then(|docs| docs.trim_start().strip_prefix("```"));
        fence.is_some_and(|tags| tags.split([',', ' ']).any(|tag| tag.trim().starts_with("ignore")))
    };
    let ignored = file.text.lines().enumerate().filter(|(_, line)| is_ignored(line));
    ignored.map(|(i, _)| Offence::new(&file.path, i + 1, "an example in the docs that is ignored")).collect()
}

/// Notes to oneself, in code or in prose.
pub(super) fn unfinished(file: &TextFile) -> Vec<Offence> {
    // Put together here, so that this file does not hold them.
    let marks = [concat!("FIX", "ME"), concat!("XX", "X")];
    let lines = marks
        .iter()
        .flat_map(|mark| lines_with_word(&file.text, mark).into_iter().map(move |line| (line, mark)));
    lines
        .map(|(line, mark)| {
            Offence::new(&file.path, line, format!("`{mark}`: do it, or describe it in an issue"))
        })
        .collect()
}

/// Absolute paths that only one machine has.
pub(super) fn machine_paths(file: &TextFile) -> Vec<Offence> {
    let paths =
        [concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/tmp/", "target")];
    let mut offences = Vec::new();
    for (i, line) in file.text.lines().enumerate() {
        // A longer path may hold the same folder name further down; only one that begins here is absolute.
        let is_absolute = |at: usize| {
            let before = line[..at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || "_-.~}".contains(c))
        };
        for path in paths {
            if line.match_indices(path).any(|(at, _)| is_absolute(at)) {
                offences.push(Offence::new(&file.path, i + 1, format!("`{path}` is a path of one machine")));
            }
        }
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> TextFile {
        TextFile { path: "a.rs".to_owned(), text: text.to_owned() }
    }

    #[test]
    fn switched_off_tests_sleeps_and_gaps_are_offences() {
        for bad in [
            "#[ignore]",
            "#[ignore = \"slow\"]",
            "std::thread::sleep(d);",
            "todo!()",
            "unimplemented!(\"x\")",
        ] {
            let offences = in_code(&file(&format!("fn a() {{}}\n{bad}\n")));
            assert!(offences.len() == 1 && offences[0].line == 2, "{bad}: {offences:?}");
        }
        assert_eq!(in_code(&file("// never thread::sleep\nlet x = \"todo!\";\n")), []);
    }

    #[test]
    fn an_ignored_doctest_is_an_offence() {
        for bad in ["/// ```ignore", "//! ```rust,ignore", "    /// ```ignore-x86_64"] {
            assert_eq!(ignored_doctests(&file(bad)).len(), 1, "{bad}");
        }
        for good in ["/// ```", "/// ```no_run", "/// ```compile_fail", "/// we ignore it", "/// ```text"] {
            assert_eq!(ignored_doctests(&file(good)), [], "{good}");
        }
    }

    #[test]
    fn notes_to_oneself_are_offences() {
        assert_eq!(unfinished(&file(concat!("// FIX", "ME: later"))).len(), 1);
        assert_eq!(unfinished(&file(concat!("// XX", "X later"))).len(), 1);
        assert_eq!(unfinished(&file(concat!("mkstemp(\"/dev/shm/", "XXXXXX\")"))), []);
    }

    #[test]
    fn a_path_of_one_machine_is_an_offence() {
        for bad in [concat!("see /wo", "rk/main"), concat!("\"/ho", "me/me\""), concat!("=/tmp/", "target-x")]
        {
            assert_eq!(machine_paths(&file(bad)).len(), 1, "{bad}");
        }
        for good in
            [concat!("docs/wo", "rk/a"), concat!("../ro", "ot/a"), "/tmp", concat!("https://a.b/ho", "me/")]
        {
            assert_eq!(machine_paths(&file(good)), [], "{good}");
        }
    }
}
