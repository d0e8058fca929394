//! Numbers for people.

/// Three digits that count.
#[must_use]
pub fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => "?".to_owned(),
        1e7.. => format!("{:.1}M", value / 1e6),
        1e6.. => format!("{:.2}M", value / 1e6),
        1e4.. => format!("{:.1}k", value / 1e3),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        0.01.. => format!("{value:.3}"),
        _ if size == 0.0 => "0".to_owned(),
        _ => format!("{value:.2e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in
            [(12_345_678.0, "12.3M"), (1_234_567.0, "1.23M"), (12_345.0, "12.3k"), (1234.0, "1234")]
        {
            assert_eq!(number(value), text);
        }
        assert_eq!(
            [number(12.34), number(1.234), number(0.1234), number(0.0)],
            ["12.3", "1.23", "0.123", "0"]
        );
    }
}
