//! Numbers of bytes and of things, for people.

/// A number of bytes with three digits and a unit: `1.50 GiB`.
pub(crate) fn bytes(len_bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if len_bytes < 1024 {
        return format!("{len_bytes} B");
    }
    let mut unit = 0;
    // In hundredths, so that nothing is rounded to 1024 of a unit.
    let mut hundredths = u128::from(len_bytes) * 100 / 1024;
    while hundredths >= 102_400 && unit + 1 < UNITS.len() {
        hundredths /= 1024;
        unit += 1;
    }
    let (whole, part) = (hundredths / 100, hundredths % 100);
    let number = match whole {
        0..10 => format!("{whole}.{part:02}"),
        10..100 => format!("{whole}.{}", part / 10),
        _ => whole.to_string(),
    };
    format!("{number} {}", UNITS[unit])
}

/// A number with commas between thousands.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_three_digits() {
        let of = |len_bytes: u64| bytes(len_bytes);
        assert_eq!((of(0), of(1023), of(1024)), ("0 B".into(), "1023 B".into(), "1.00 KiB".into()));
        assert_eq!((of(1536), of(50 << 10)), ("1.50 KiB".into(), "50.0 KiB".into()));
        assert_eq!((of((1 << 20) - 1), of(1 << 20)), ("1023 KiB".into(), "1.00 MiB".into()));
        assert_eq!((of(3 << 30), of(u64::MAX)), ("3.00 GiB".into(), "15.9 EiB".into()));
    }

    #[test]
    fn counts_have_commas() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }
}
