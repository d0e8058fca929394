//! Reads the tables of docs/WIRE.md and compares them with the code. The tests of `tensorferry-storage` use
//! this file too.
//!
//! A table belongs to the heading above it. Its first two columns are numbers, or a number and a name in
//! backticks. A field of bytes or bits with the name `-` is unused, so a table leaves nothing out.

use std::fmt::Debug;

const WIRE: &str = include_str!("../../../../docs/WIRE.md");

/// The cells of the table under this heading, without its header row.
fn cells(heading: &str, columns: &[&str]) -> Vec<Vec<&'static str>> {
    let mut lines = WIRE.lines().skip_while(|line| line.trim_start_matches('#').trim() != heading).skip(1);
    let split = |line: &'static str| -> Vec<&'static str> {
        line.trim().trim_matches('|').split(" | ").map(str::trim).collect()
    };
    let head = lines.find(|line| line.starts_with(['|', '#'])).unwrap_or_default();
    assert_eq!(split(head), columns, "the columns of the table under {heading:?}");
    lines.skip(1).take_while(|line| line.starts_with('|')).map(split).collect()
}

fn number<T: std::str::FromStr<Err: Debug>>(heading: &str, cell: &str) -> T {
    cell.parse().unwrap_or_else(|e| panic!("{cell:?} under {heading:?} is no number: {e:?}"))
}

fn name(cell: &str) -> &str {
    cell.trim_matches('`')
}

/// Adjacent fields that fill `len` units: the place, length and name of each.
fn tiles(heading: &str, columns: &[&str], len: usize) -> Vec<(usize, usize, &'static str)> {
    let mut end = 0;
    let mut fields = Vec::new();
    for row in cells(heading, columns) {
        let (at, len): (usize, usize) = (number(heading, row[0]), number(heading, row[1]));
        assert_eq!(at, end, "under {heading:?}, {} begins where the one before ends", row[2]);
        end += len;
        fields.push((at, len, name(row[2])));
    }
    assert_eq!(end, len, "the table under {heading:?} covers everything");
    fields.retain(|(.., field)| *field != "-");
    fields
}

/// A structure of `len_bytes`: the fields that the code knows, as name, word index and length in bytes.
pub(crate) fn check_bytes(heading: &str, len_bytes: usize, known: &[(&'static str, usize, usize)]) {
    let mut known: Vec<_> = known.iter().map(|&(field, index, len)| (index * 8, len, field)).collect();
    known.sort_unstable();
    assert_eq!(tiles(heading, &["offset", "size", "field", "meaning"], len_bytes), known, "{heading}");
}

/// A word of `n_bits`: the fields that the code knows, each with the word in which only its lowest bit is
/// set. The length of a field is taken from the table; the check is that fields do not overlap.
pub(crate) fn check_bits(heading: &str, n_bits: usize, known: &[(&'static str, u64)]) {
    let mut known: Vec<_> = known
        .iter()
        .map(|&(field, word)| {
            assert_eq!(word.count_ones(), 1, "{field} of {heading}: one bit");
            (usize::try_from(word.trailing_zeros()).unwrap(), field)
        })
        .collect();
    known.sort_unstable();
    let told = tiles(heading, &["bit", "bits", "field", "meaning"], n_bits);
    assert_eq!(told.iter().map(|&(at, _, field)| (at, field)).collect::<Vec<_>>(), known, "{heading}");
}

/// A field's bits in a word, for a word in which the field has its largest value and nothing else is set.
pub(crate) fn check_mask(heading: &str, field: &str, largest: u64) {
    let rows = cells(heading, &["bit", "bits", "field", "meaning"]);
    let row = rows.iter().find(|row| name(row[2]) == field).unwrap_or_else(|| panic!("{field} in {heading}"));
    let (at, len): (u32, u32) = (number(heading, row[0]), number(heading, row[1]));
    let mask = u64::MAX.checked_shr(64 - len).unwrap_or(0) << at;
    assert_eq!(largest, mask, "{field} of {heading} is {len} bits from bit {at}");
}

/// Numbers with a meaning and a name.
pub(crate) fn check_values(heading: &str, known: &[(u64, &str)]) {
    let rows = cells(heading, &["value", "name", "meaning"]);
    let told: Vec<(u64, &str)> = rows.iter().map(|row| (number(heading, row[0]), name(row[1]))).collect();
    assert_eq!(told, known, "{heading}");
}

/// Named numbers.
pub(crate) fn check_constants(heading: &str, known: &[(&'static str, u64)]) {
    let rows = cells(heading, &["name", "value", "meaning"]);
    let told: Vec<(&str, u64)> = rows.iter().map(|row| (name(row[0]), number(heading, row[1]))).collect();
    assert_eq!(told, known, "{heading}");
}
