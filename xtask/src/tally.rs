//! How many tests passed and failed, read from the lines of the two test runners.

use std::fmt;
use std::ops::AddAssign;

/// Tests, or steps of `ci` that count as one test each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Tally {
    /// One thing that went well or not.
    pub(crate) fn of(passed: bool) -> Tally {
        Tally { passed: passed.into(), failed: (!passed).into() }
    }

    pub(crate) fn total(self) -> u64 {
        self.passed + self.failed
    }

    /// Adds what a line says, where the line is the closing line of a test binary (`cargo test`) or of a run
    /// (nextest).
    pub(crate) fn read(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("test result:") {
            // nextest repeats this line of a failed test, but indented; its own count is in its summary.
            // test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
            self.passed += count_before(rest, "passed");
            self.failed += count_before(rest, "failed");
        } else if let Some(rest) = line.trim_start().strip_prefix("Summary [")
            && let Some((_, results)) = rest.split_once("run:")
        {
            // Summary [   0.2s] 9 tests run: 6 passed (1 slow), 2 failed, 1 timed out, 0 skipped
            self.passed += count_before(results, "passed");
            for kind in ["failed", "timed out", "exec failed"] {
                self.failed += count_before(results, kind);
            }
        }
    }
}

/// The number in front of `word`, where `results` is a list of numbers with words, separated by `,`, `;` or
/// `.`.
fn count_before(results: &str, word: &str) -> u64 {
    let mut within_parentheses = false;
    let bare: String = results
        .chars()
        .filter(|&c| {
            within_parentheses = c == '(' || (within_parentheses && c != ')');
            !within_parentheses && c != ')'
        })
        .collect();
    bare.split([',', ';', '.'])
        .filter_map(|part| part.trim().split_once(' '))
        .filter(|(_, name)| name.trim() == word)
        .filter_map(|(n, _)| n.parse::<u64>().ok())
        .sum()
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.read(line));
        tally
    }

    #[test]
    fn cargo_test_is_added_up_over_its_binaries() {
        let lines = [
            "running 4 tests",
            "test tests::a ... ok",
            "test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 7 filtered out; finished in 0.00s",
            "test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.50s",
        ];
        assert_eq!(tally(&lines), Tally { passed: 8, failed: 1 });
    }

    #[test]
    fn nextest_counts_time_outs_as_failures() {
        let lines = [
            "        PASS [   0.004s] tensorferry-os memfd::tests::a",
            "    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.07s",
            "     Summary [   0.254s] 9/10 tests run: 6 passed (1 slow, 1 leaky), 2 failed, 1 timed out, 3 skipped",
        ];
        assert_eq!(tally(&lines), Tally { passed: 6, failed: 3 });
    }

    #[test]
    fn what_a_test_prints_is_not_counted() {
        assert_eq!(tally(&["4 passed, 4 failed", "Summary of the run: 3 passed"]), Tally::default());
    }
}
