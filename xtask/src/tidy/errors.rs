//! What an error displays and what it gives as its source are never the same words.

use super::source::code_only;
use super::{Offence, TextFile};

/// An error's text ends with the text of what it holds, so it does not give that as its source as well: only
/// `transparent` variants, which say nothing of their own, take thiserror's `#[from]`.
pub(super) fn sources(file: &TextFile) -> Vec<Offence> {
    let code = code_only(&file.text);
    if !code.contains("thiserror::Error") {
        return Vec::new();
    }
    let mut displayed = String::new();
    let mut offences = Vec::new();
    // What is in strings is not in the code, so that the attribute's text is read from the file itself.
    for (i, (line, raw)) in code.lines().zip(file.text.lines()).enumerate() {
        let line = line.trim_start();
        if line.starts_with("#[error(") {
            displayed.clear();
        }
        displayed.push_str(raw);
        let is_shown = |name| displayed.contains(name);
        let is_field = line.trim_start_matches("pub ").starts_with("source:");
        if line.contains("#[source]") && is_shown("{0}")
            || is_field && is_shown("{source}")
            || line.contains("#[from]") && !is_shown("#[error(transparent)]")
        {
            offences.push(Offence::new(
                &file.path,
                i + 1,
                "a chain of errors would print this twice: name the field `error`, and write `From` out",
            ));
        }
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variant: &str) -> usize {
        let text = format!("#[derive(Debug, thiserror::Error)]\nenum E {{\n{variant}\n}}\n");
        sources(&TextFile { path: "a.rs".to_owned(), text }).len()
    }

    #[test]
    fn a_source_that_the_text_holds_is_an_offence() {
        for bad in [
            "    #[error(\"no memory: {0}\")]\n    Memory(#[from] Os),",
            "    #[error(\"no memory: {0}\")]\n    Memory(#[source] Os),",
            "    #[error(\"no memory: {source}\")]\n    Memory {\n        source: Os,\n    },",
            "    #[error(transparent)]\n    A(#[from] Os),\n    #[error(\"b: {0}\")]\n    B(#[from] Os),",
        ] {
            assert_eq!(found(bad), 1, "{bad}");
        }
    }

    #[test]
    fn what_says_nothing_of_its_own_passes() {
        for good in [
            "    #[error(transparent)]\n    Os(#[from] Os),",
            "    #[error(\"no memory: {0}\")]\n    Memory(Os),",
            "    #[error(\"no memory: {error}\")]\n    Memory { error: Os },",
            "    #[error(\"no memory\")]\n    Memory {\n        source: Os,\n    },",
        ] {
            assert_eq!(found(good), 0, "{good}");
        }
        let elsewhere = "struct Row {\n    source: Sender,\n}\n".to_owned();
        assert_eq!(sources(&TextFile { path: "a.rs".to_owned(), text: elsewhere }), []);
    }
}
