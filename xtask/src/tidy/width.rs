//! Prose is not wider than a page.

use super::{Offence, TextFile};

/// Of a comment, its indentation included: as wide as the code (`rustfmt.toml`).
const MAX_COMMENT_COLUMNS: usize = 110;
const MAX_PAGE_COLUMNS: usize = 120;
/// Pages that a program writes.
const WRITTEN: [&str; 1] = ["docs/bench/table.md"];

/// The lines of prose that are too wide: comments of a Rust file, or paragraphs and lists of a page. Tables,
/// code and links cannot be wrapped.
pub(super) fn check(file: &TextFile) -> Vec<Offence> {
    if WRITTEN.contains(&file.path.as_str()) {
        return Vec::new();
    }
    let is_rust = file.path.ends_with(".rs");
    let max_columns = if is_rust { MAX_COMMENT_COLUMNS } else { MAX_PAGE_COLUMNS };
    let mut offences = Vec::new();
    let mut in_code = false;
    for (i, line) in file.text.lines().enumerate() {
        let Some(prose) = (if is_rust { comment(line) } else { Some(line.trim_start()) }) else {
            in_code = false;
            continue;
        };
        let is_fence = prose.starts_with("```");
        in_code ^= is_fence;
        let is_wrappable = !(in_code || is_fence || prose.starts_with('|') || prose.contains("://"));
        let n_columns = line.chars().count();
        if is_wrappable && n_columns > max_columns {
            let what = format!("{n_columns} columns of prose are more than {max_columns}: wrap them");
            offences.push(Offence::new(&file.path, i + 1, what));
        }
    }
    offences
}

/// What a line that is nothing but a comment says.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(path: &str, text: &str) -> Vec<usize> {
        let file = TextFile { path: path.to_owned(), text: text.to_owned() };
        check(&file).iter().map(|offence| offence.line).collect()
    }

    #[test]
    fn a_wide_comment_is_an_offence() {
        let wide = "é".repeat(MAX_COMMENT_COLUMNS);
        for begin in ["// ", "/// ", "//! ", "    // "] {
            let fits = format!("{begin}{}\n", &"e".repeat(MAX_COMMENT_COLUMNS - begin.len()));
            assert_eq!(lines_of("a.rs", &fits), [0; 0], "{begin}");
            assert_eq!(lines_of("a.rs", &format!("{fits}{begin}{wide}\n")), [2], "{begin}");
        }
    }

    #[test]
    fn what_cannot_be_wrapped_may_be_wide() {
        let wide = "e".repeat(MAX_PAGE_COLUMNS);
        for line in [format!("| {wide} |"), format!("see https://{wide}"), format!("```text\n{wide}\n```")] {
            let comment: String = line.lines().map(|line| format!("/// {line}\n")).collect();
            assert_eq!(lines_of("a.rs", &comment), [0; 0], "{comment}");
            assert_eq!(lines_of("a.md", &line), [0; 0], "{line}");
        }
        assert_eq!(lines_of("a.rs", &format!("let a = \"{wide}\"; // why\n")), [0; 0], "rustfmt's");
    }

    #[test]
    fn a_wide_page_is_an_offence_and_code_ends_with_its_fence() {
        let wide = "e ".repeat(MAX_PAGE_COLUMNS);
        let page = format!("# Page\n\n```\n{wide}\n```\n- {wide}\n");
        assert_eq!(lines_of("a.md", &page), [6]);
        assert_eq!(lines_of(WRITTEN[0], &page), [0; 0]);
    }
}
