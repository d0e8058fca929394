//! Which samples of an epoch are done.

use serde::{Deserialize, Serialize};

/// Places in an epoch, from 0: nearly always the first ones, so they are ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(usize, usize)>", into = "Vec<(usize, usize)>")]
pub(crate) struct Places {
    /// First and end of each range. They ascend, are not empty, and do not touch each other.
    ranges: Vec<(usize, usize)>,
}

impl Places {
    /// How many there are.
    pub(crate) fn n(&self) -> usize {
        // They are apart, so their sum is no larger than the last of them.
        self.ranges.iter().map(|(first, end)| end - first).sum()
    }

    pub(crate) fn contains(&self, place: usize) -> bool {
        let behind = self.ranges.partition_point(|(first, _)| *first <= place);
        behind.checked_sub(1).and_then(|at| self.ranges.get(at)).is_some_and(|(_, end)| place < *end)
    }

    /// Adds the places from `first` to `end`, without `end`.
    pub(crate) fn add(&mut self, first: usize, end: usize) {
        if first >= end {
            return;
        }
        // Those that touch it become one with it.
        let from = self.ranges.partition_point(|(_, other)| *other < first);
        let to = self.ranges.partition_point(|(other, _)| *other <= end);
        let touched = self.ranges.get(from..to).unwrap_or_default();
        let first = touched.first().map_or(first, |(other, _)| first.min(*other));
        let end = touched.last().map_or(end, |(_, other)| end.max(*other));
        self.ranges.splice(from..to, [(first, end)]);
    }

    pub(crate) fn add_all(&mut self, others: &Self) {
        others.ranges.iter().for_each(|(first, end)| self.add(*first, *end));
    }

    /// Those below `limit`.
    pub(crate) fn below(&self, limit: usize) -> Self {
        Self::from(self.ranges.iter().map(|(first, end)| (*first, (*end).min(limit))).collect::<Vec<_>>())
    }
}

/// Of any numbers: a state may come from anywhere.
impl From<Vec<(usize, usize)>> for Places {
    fn from(ranges: Vec<(usize, usize)>) -> Self {
        let mut places = Self::default();
        ranges.into_iter().for_each(|(first, end)| places.add(first, end));
        places
    }
}

impl From<Places> for Vec<(usize, usize)> {
    fn from(places: Places) -> Self {
        places.ranges
    }
}

impl FromIterator<usize> for Places {
    fn from_iter<I: IntoIterator<Item = usize>>(places: I) -> Self {
        let mut these = Self::default();
        places.into_iter().for_each(|place| these.add(place, place.saturating_add(1)));
        these
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_are_as_a_set_of_numbers(
            ranges in prop::collection::vec((0_usize..40, 0_usize..40), 0..20),
            limit in 0_usize..40,
        ) {
            let places = Places::from(ranges.clone());
            let expected: BTreeSet<_> = ranges.into_iter().flat_map(|(first, end)| first..end).collect();
            prop_assert!((0..50).all(|place| places.contains(place) == expected.contains(&place)));
            prop_assert_eq!(places.n(), expected.len());
            prop_assert!(places.ranges.is_sorted_by(|one, next| one.1 < next.0));
            prop_assert_eq!(&expected.iter().copied().collect::<Places>(), &places);
            let below: Places = expected.range(..limit).copied().collect();
            prop_assert_eq!(places.below(limit), below);
            let mut all = Places::from(vec![(0, limit)]);
            all.add_all(&places);
            prop_assert_eq!(all, expected.into_iter().chain(0..limit).collect::<Places>());
        }
    }

    #[test]
    fn numbers_without_sense_are_no_panic() {
        let places = Places::from(vec![(usize::MAX, 0), (0, usize::MAX), (5, usize::MAX)]);
        assert_eq!((places.n(), places.contains(usize::MAX)), (usize::MAX, false));
        assert!(places.contains(usize::MAX - 1));
    }
}
