//! What a program answers: named figures, as one line of JSON.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Named figures; the unit is in the name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Answer(pub BTreeMap<String, f64>);

impl Answer {
    /// Adds a figure.
    #[must_use]
    pub fn with(mut self, name: &str, value: f64) -> Self {
        self.0.insert(name.to_owned(), value);
        self
    }

    /// Writes it to standard output.
    ///
    /// # Errors
    /// What writing returns.
    pub fn print(&self) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(std::io::stdout().write_all(&line)?)
    }
}

/// The median; NaN of nothing.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (Some(low), Some(high)) = (sorted.get((sorted.len().max(1) - 1) / 2), sorted.get(sorted.len() / 2))
    else {
        return f64::NAN;
    };
    f64::midpoint(*low, *high)
}

/// Below this many nanoseconds every value has a counter of its own.
const COUNTED_NS: usize = 1 << 16;

/// Durations of single events. Counting them touches few cache lines, so that measuring disturbs little.
#[derive(Debug)]
pub struct Samples {
    counts: Vec<u32>,
    longer_ns: Vec<u64>,
    len: u64,
}

impl Default for Samples {
    fn default() -> Self {
        Self { counts: vec![0; COUNTED_NS], longer_ns: Vec::with_capacity(1 << 16), len: 0 }
    }
}

impl Samples {
    /// Adds one.
    pub fn add(&mut self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.len += 1;
        match usize::try_from(ns).ok().and_then(|ns| self.counts.get_mut(ns)) {
            Some(count) => *count += 1,
            None => self.longer_ns.push(ns),
        }
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value that `fraction` of all are not above, in microseconds; NaN of nothing.
    #[must_use]
    pub fn quantile_us(&self, fraction: f64) -> f64 {
        let mut left = fraction * self.len() as f64;
        for (ns, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            left -= f64::from(count);
            if left <= 0.0 {
                return ns as f64 / 1e3;
            }
        }
        let mut longer = self.longer_ns.clone();
        longer.sort_unstable();
        for ns in &longer {
            left -= 1.0;
            if left <= 0.0 {
                return *ns as f64 / 1e3;
            }
        }
        longer.last().map_or(f64::NAN, |ns| *ns as f64 / 1e3)
    }

    /// The three quantiles of a latency, each multiplied by `factor`: a half for round trips.
    #[must_use]
    pub fn answer(&self, factor: f64) -> Answer {
        Answer::default()
            .with("p50_us", self.quantile_us(0.5) * factor)
            .with("p99_us", self.quantile_us(0.99) * factor)
            .with("p999_us", self.quantile_us(0.999) * factor)
            .with("samples", self.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_short_and_long_together() {
        let mut samples = Samples::default();
        assert!(samples.is_empty() && samples.quantile_us(0.5).is_nan());
        for ns in 1..=98 {
            samples.add(Duration::from_nanos(ns));
        }
        samples.add(Duration::from_millis(2));
        samples.add(Duration::from_millis(1));
        assert_eq!(samples.len(), 100);
        assert_eq!(samples.quantile_us(0.5), 0.05);
        assert_eq!(samples.quantile_us(0.99), 1000.0);
        assert_eq!(samples.quantile_us(0.999), 2000.0);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }
}
