//! Lengths or strides. Up to rank 5 they need no allocation.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};

/// The largest rank that is stored in place.
const FEW: usize = 5;

/// Lengths or strides, one for each dimension.
///
/// A clone copies a size that is known at compile time. A tensor is cloned for each message that it is in,
/// and a copy of `rank` numbers would be a call.
///
/// All parts are whole words. The enum's tag is one too, because it uses a value that no rank has. With a tag
/// of one byte, the rest would be copied in pieces that straddle words, and a processor stalls on those when
/// it has just written them.
pub(crate) enum Dims {
    Few(Few),
    /// More than [`FEW`].
    Many(Box<[usize]>),
}

/// Up to [`FEW`] numbers. Only the first `rank` are valid.
#[derive(Clone, Copy)]
pub(crate) struct Few {
    dims: [usize; FEW],
    rank: Rank,
}

/// A rank of at most [`FEW`], as a word.
#[derive(Clone, Copy)]
#[repr(usize)]
enum Rank {
    Zero,
    One,
    Two,
    Three,
    Four,
    Five,
}

impl Rank {
    #[inline]
    const fn of(rank: usize) -> Option<Self> {
        Some(match rank {
            0 => Self::Zero,
            1 => Self::One,
            2 => Self::Two,
            3 => Self::Three,
            4 => Self::Four,
            5 => Self::Five,
            _ => return None,
        })
    }
}

impl Dims {
    pub(crate) const fn new() -> Self {
        Self::Few(Few { dims: [0; FEW], rank: Rank::Zero })
    }

    #[inline]
    pub(crate) fn from_elem(dim: usize, rank: usize) -> Self {
        match Rank::of(rank) {
            Some(rank) => Self::Few(Few { dims: [dim; FEW], rank }),
            None => Self::Many(vec![dim; rank].into()),
        }
    }

    #[inline]
    pub(crate) fn from_slice(given: &[usize]) -> Self {
        let mut dims = Self::from_elem(0, given.len());
        // A loop, because `copy_from_slice` is a call, which costs more than a few numbers.
        dims.iter_mut().zip(given).for_each(|(dim, given)| *dim = *given);
        dims
    }

    pub(crate) fn push(&mut self, dim: usize) {
        self.insert(self.len(), dim);
    }

    /// Inserts `dim` at position `at`, which is at most the rank.
    pub(crate) fn insert(&mut self, at: usize, dim: usize) {
        let (before, after) = self.split_at(at.min(self.len()));
        *self = before.iter().copied().chain([dim]).chain(after.iter().copied()).collect();
    }

    /// Removes and returns the number at position `at`, if there is one.
    pub(crate) fn remove(&mut self, at: usize) -> Option<usize> {
        let removed = self.get(at).copied();
        *self = self.iter().enumerate().filter(|(index, _)| *index != at).map(|(_, dim)| *dim).collect();
        removed
    }
}

impl Clone for Dims {
    #[inline(always)]
    fn clone(&self) -> Self {
        match self {
            Self::Few(few) => Self::Few(*few),
            Self::Many(dims) => Self::Many(dims.clone()),
        }
    }
}

impl Default for Dims {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Dims {
    type Target = [usize];

    #[inline]
    fn deref(&self) -> &[usize] {
        match self {
            Self::Few(Few { dims, rank }) => dims.split_at(*rank as usize).0,
            Self::Many(dims) => dims,
        }
    }
}

impl DerefMut for Dims {
    #[inline]
    fn deref_mut(&mut self) -> &mut [usize] {
        match self {
            Self::Few(Few { dims, rank }) => dims.split_at_mut(*rank as usize).0,
            Self::Many(dims) => dims,
        }
    }
}

impl FromIterator<usize> for Dims {
    fn from_iter<I: IntoIterator<Item = usize>>(given: I) -> Self {
        let mut given = given.into_iter();
        let mut dims = Self::new();
        for (rank, next) in given.by_ref().take(FEW).enumerate() {
            let Self::Few(few) = &mut dims else { break };
            few.dims[rank] = next;
            few.rank = Rank::of(rank + 1).unwrap_or(few.rank);
        }
        match given.next() {
            None => dims,
            Some(next) => Self::Many(dims.iter().copied().chain([next]).chain(given).collect()),
        }
    }
}

impl From<Vec<usize>> for Dims {
    fn from(dims: Vec<usize>) -> Self {
        if dims.len() > FEW { Self::Many(dims.into()) } else { Self::from_slice(&dims) }
    }
}

impl<'a> IntoIterator for &'a Dims {
    type Item = &'a usize;
    type IntoIter = std::slice::Iter<'a, usize>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for Dims {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Dims {}

impl Hash for Dims {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_ranks_stay_in_place() {
        assert!(matches!(Dims::from_elem(1, FEW), Dims::Few(_)));
        assert!(matches!(Dims::from_elem(1, FEW + 1), Dims::Many(_)));
        assert_eq!(size_of::<Dims>(), 48);
    }

    proptest! {
        #[test]
        fn dims_are_a_vector(numbers in prop::collection::vec(any::<usize>(), 0..9), at in 0..12_usize, dim: usize) {
            let mut vector = numbers.clone();
            let mut dims = Dims::from_slice(&numbers);
            prop_assert_eq!(&*dims, &*vector);
            prop_assert_eq!(&dims, &vector.iter().copied().collect::<Dims>());
            prop_assert_eq!(&dims, &Dims::from(vector.clone()));
            let at = at.min(vector.len());
            vector.insert(at, dim);
            dims.insert(at, dim);
            prop_assert_eq!(&*dims, &*vector);
            vector.push(dim);
            dims.push(dim);
            dims[at] = 7;
            vector[at] = 7;
            prop_assert_eq!(&*dims.clone(), &*vector);
            prop_assert_eq!(dims.remove(at), Some(vector.remove(at)));
            prop_assert_eq!(dims.remove(100), None);
            prop_assert_eq!(&*dims, &*vector);
            let is_few = vector.len() <= FEW;
            prop_assert_eq!(matches!(dims, Dims::Few(_)), is_few);
        }
    }
}
