//! Just enough of Rust's grammar for the rules: code without comments and texts, words, and the items of a
//! file.

/// The code alone: comments and the contents of texts and characters become spaces. Lines stay where they
/// are.
pub(super) fn code_only(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut code = String::with_capacity(source.len());
    let mut i = 0;
    while i < chars.len() {
        let end = end_of_hidden(&chars, i);
        if end == i {
            code.push(chars[i]);
            i += 1;
        } else {
            code.extend(chars[i..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
            i = end;
        }
    }
    code
}

/// Where the comment, text or character that begins at `i` ends; `i` itself if none begins there.
fn end_of_hidden(chars: &[char], i: usize) -> usize {
    let at = |k: usize| chars.get(k).copied();
    match (chars[i], at(i + 1)) {
        ('/', Some('/')) => find(chars, i, |k| chars[k] == '\n'),
        ('/', Some('*')) => end_of_block_comment(chars, i),
        ('"', _) => end_of_text(chars, i),
        ('r', Some('"' | '#')) if begins_word(chars, i) => end_of_raw_text(chars, i),
        ('\'', Some('\\')) => (find(chars, i + 3, |k| chars[k] == '\'') + 1).min(chars.len()),
        ('\'', Some(_)) if at(i + 2) == Some('\'') => i + 3,
        _ => i,
    }
}

fn find(chars: &[char], from: usize, found: impl Fn(usize) -> bool) -> usize {
    (from..chars.len()).find(|&k| found(k)).unwrap_or(chars.len())
}

fn end_of_block_comment(chars: &[char], begin: usize) -> usize {
    let mut depth = 0_usize;
    let mut k = begin;
    while k < chars.len() {
        match (chars[k], chars.get(k + 1)) {
            ('/', Some('*')) => (depth, k) = (depth + 1, k + 2),
            ('*', Some('/')) => (depth, k) = (depth - 1, k + 2),
            _ => k += 1,
        }
        if depth == 0 {
            return k;
        }
    }
    chars.len()
}

fn end_of_text(chars: &[char], begin: usize) -> usize {
    let mut k = begin + 1;
    while k < chars.len() {
        match chars[k] {
            '\\' => k += 2,
            '"' => return k + 1,
            _ => k += 1,
        }
    }
    chars.len()
}

/// `r"..."` and `r#"..."#`; `r#word` is not a text.
fn end_of_raw_text(chars: &[char], begin: usize) -> usize {
    let quote = find(chars, begin + 1, |k| chars[k] != '#');
    if chars.get(quote) != Some(&'"') {
        return begin;
    }
    let n_hashes = quote - begin - 1;
    let closes = |k: usize| {
        let after = chars.get(k + 1..k + 1 + n_hashes);
        chars[k] == '"' && after.is_some_and(|hashes| hashes.iter().all(|&c| c == '#'))
    };
    (find(chars, quote + 1, closes) + 1 + n_hashes).min(chars.len())
}

/// Whether the `r` at `i` is the beginning of a word, or follows the `b` or `c` that is.
fn begins_word(chars: &[char], i: usize) -> bool {
    let word_before = |k: usize| k > 0 && is_word(chars[k - 1]);
    !word_before(i) || (matches!(chars[i - 1], 'b' | 'c') && !word_before(i - 1))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The lines, from 1, on which `word` stands by itself: not as a part of a longer name.
pub(super) fn lines_with_word(text: &str, word: &str) -> Vec<usize> {
    let mut lines = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let stands_alone = |(at, _): &(usize, &str)| {
            let before = line[..*at].chars().next_back();
            let after = line[at + word.len()..].chars().next();
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        };
        if line.match_indices(word).any(|found| stands_alone(&found)) {
            lines.push(i + 1);
        }
    }
    lines
}

/// The line of the first item that is neither a module nor a re-export, if there is one. `code` is
/// [`code_only`].
pub(super) fn first_other_item(code: &str) -> Option<usize> {
    let mut rest = code;
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return None;
        }
        if let Some(attribute) = rest.strip_prefix("#![").or_else(|| rest.strip_prefix("#[")) {
            rest = after_closing(attribute, '[', ']');
            continue;
        }
        let line = code[..code.len() - rest.len()].matches('\n').count() + 1;
        let item = without_visibility(rest);
        let keyword = item.split(|c: char| !is_word(c)).next().unwrap_or("");
        let end_of_statement = item.find(';');
        match keyword {
            "use" | "extern" => rest = &item[end_of_statement? + 1..],
            "mod" => match (end_of_statement, item.find('{')) {
                (Some(end), None) => rest = &item[end + 1..],
                (Some(end), Some(brace)) if end < brace => rest = &item[end + 1..],
                (_, Some(brace)) => {
                    let after = after_closing(&item[brace + 1..], '{', '}');
                    let inner = &item[brace + 1..item.len() - after.len()];
                    if let Some(inner_line) = first_other_item(inner.strip_suffix('}').unwrap_or(inner)) {
                        let before_inner = code.len() - item.len() + brace + 1;
                        return Some(code[..before_inner].matches('\n').count() + inner_line);
                    }
                    rest = after;
                }
                (None, None) => return Some(line),
            },
            _ => return Some(line),
        }
    }
}

fn without_visibility(item: &str) -> &str {
    let Some(rest) = item.strip_prefix("pub") else { return item };
    let rest = rest.trim_start();
    rest.strip_prefix('(').map_or(rest, |inside| after_closing(inside, '(', ')').trim_start())
}

/// What follows the bracket that closes the one before `text`.
fn after_closing(text: &str, open: char, close: char) -> &str {
    let mut depth = 1_usize;
    for (at, c) in text.char_indices() {
        if c == open {
            depth += 1;
        } else if c == close {
            depth -= 1;
        }
        if depth == 0 {
            return &text[at + c.len_utf8()..];
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_texts_are_not_code() {
        for hidden in [
            "// unsafe",
            "/* a /* nested */ unsafe */",
            "/// unsafe",
            r#""unsafe \" unsafe""#,
            r##"r#"a " unsafe"#"##,
            r##"br#"unsafe"#"##,
            "b\"unsafe\"",
        ] {
            let code = code_only(&format!("let x =\n {hidden}\n; y"));
            assert_eq!(lines_with_word(&code, "unsafe"), Vec::<usize>::new(), "{hidden}");
            assert!(code.ends_with("; y"), "{hidden}: {code}");
            assert_eq!(code.lines().count(), 3, "{hidden}: {code}");
        }
    }

    #[test]
    fn code_after_characters_and_lifetimes_is_seen() {
        for shown in ["'\"'", "'\\''", "'\\\\'", "b'\"'", "'\\u{22}'", "&'a str", "r#type", "'r'", "'é'"] {
            let code = code_only(&format!("f({shown}); unsafe {{}}"));
            assert_eq!(lines_with_word(&code, "unsafe"), [1], "{shown}: {code}");
        }
    }

    #[test]
    fn a_word_is_not_a_part_of_another() {
        assert_eq!(lines_with_word("unsafe_code\nnot unsafe\nunsafes", "unsafe"), [2]);
        assert_eq!(lines_with_word("deadend ends", "end"), Vec::<usize>::new());
    }

    #[test]
    fn modules_and_re_exports_are_no_other_items() {
        let code = "#![forbid(x)]\nmod a;\npub(crate) mod b;\n#[cfg(test)]\nmod tests;\n\
                    pub mod prelude {\n pub use crate::a::{B, c::{D}};\n}\npub use {a::X, b::Y};\nmod readme {}\n";
        assert_eq!(first_other_item(code), None);
    }

    #[test]
    fn other_items_are_found_with_their_line() {
        assert_eq!(first_other_item("mod a;\n\npub fn f() {}\n"), Some(3));
        assert_eq!(first_other_item("pub use a::B;\n#[derive(Debug)]\nstruct S;\n"), Some(3));
        assert_eq!(first_other_item("mod a;\npub mod b {\n use c;\n const X: u8 = 1;\n}\n"), Some(4));
    }
}
