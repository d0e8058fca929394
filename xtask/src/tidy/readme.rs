//! The table of crates in README.md lists the crates that there are.

use super::Offence;

const FACADE: &str = "tensorferry";

/// The first column of the table whose heading is `crate` names every crate once, and nothing else; a row for
/// the facade is welcome.
pub(super) fn check(readme: &str, crates: &[&str]) -> Vec<Offence> {
    let offence = |line, what: String| Offence::new("README.md", line, what);
    let mut rows = readme.lines().enumerate().skip_while(|(_, line)| first_cell(line) != Some("crate"));
    if rows.next().is_none() {
        return vec![offence(0, "there is no table whose first column is headed `crate`".to_owned())];
    }
    let mut offences = Vec::new();
    let mut listed = Vec::new();
    for (i, line) in rows.skip(1) {
        let Some(name) = first_cell(line) else { break };
        if !(crates.contains(&name) || name == FACADE) {
            offences.push(offence(i + 1, format!("there is no crate `{name}`")));
        }
        if listed.contains(&name) {
            offences.push(offence(i + 1, format!("the crate `{name}` is listed twice")));
        }
        listed.push(name);
    }
    let missing = crates.iter().filter(|name| !listed.contains(name));
    offences.extend(missing.map(|name| offence(0, format!("the table of crates does not list `{name}`"))));
    offences
}

/// The text of the first cell of a table row, without the marks of code and links.
fn first_cell(line: &str) -> Option<&str> {
    let (cell, _) = line.trim().strip_prefix('|')?.split_once('|')?;
    let cell = cell.trim();
    let linked = cell.strip_prefix('[').and_then(|link| link.split_once(']')).map_or(cell, |(text, _)| text);
    Some(linked.trim_matches('`'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRATES: [&str; 2] = ["tensorferry-os", "tensorferry-queue"];
    const HEAD: &str =
        "# tensorferry\n\n| size | time |\n| --- | --- |\n| 1 | 2 |\n\n| crate | what |\n| --- | --- |\n";

    fn found(rows: &str) -> Vec<String> {
        check(&format!("{HEAD}{rows}\nMore.\n"), &CRATES).iter().map(Offence::to_string).collect()
    }

    #[test]
    fn a_table_with_every_crate_passes() {
        let crates =
            "| [`tensorferry-os`](crates/tensorferry-os) | the kernel |\n| `tensorferry-queue` | a queue |\n";
        assert_eq!(found(crates), Vec::<String>::new());
        assert_eq!(found(&format!("| `tensorferry` | all |\n{crates}")), Vec::<String>::new());
    }

    #[test]
    fn a_missing_an_unknown_and_a_repeated_crate_are_offences() {
        assert_eq!(found("| `tensorferry-os` | a |\n").len(), 1);
        assert_eq!(
            found("| `tensorferry-os` | a |\n| `tensorferry-queue` | b |\n| `tensorferry-x` | c |\n").len(),
            1
        );
        assert_eq!(
            found("| `tensorferry-os` | a |\n| `tensorferry-queue` | b |\n| `tensorferry-os` | c |\n").len(),
            1
        );
    }

    #[test]
    fn a_readme_without_the_table_is_an_offence() {
        assert_eq!(check("# tensorferry\n", &CRATES).len(), 1);
        assert_eq!(check("", &CRATES).len(), 1);
    }
}
