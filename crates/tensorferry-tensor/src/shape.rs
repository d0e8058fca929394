//! The lengths of a tensor's dimensions. Up to rank 5 they need no allocation.

use std::fmt;
use std::ops::Deref;

use crate::dims::Dims;

/// The length of each dimension in elements, the slowest-varying dimension first. Rank 0 is a scalar.
///
/// A shape dereferences to a slice, and is made from an array, a slice, a vector or a tuple of up to six
/// lengths: `[2, 3].into()`. It is not checked for overflow.
/// [`Layout::contiguous`](crate::Layout::contiguous) and [`Layout::new`](crate::Layout::new) check it.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape(Dims);

impl Shape {
    /// The shape of rank 0, which has one element.
    #[must_use]
    pub fn scalar() -> Self {
        Self::default()
    }

    /// The number of dimensions.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The lengths as a slice.
    #[must_use]
    pub fn as_slice(&self) -> &[usize] {
        &self.0
    }

    pub(crate) fn dims_mut(&mut self) -> &mut Dims {
        &mut self.0
    }
}

impl Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl AsRef<[usize]> for Shape {
    fn as_ref(&self) -> &[usize] {
        &self.0
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (dim, len) in self.0.iter().enumerate() {
            if dim > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{len}")?;
        }
        f.write_str("]")
    }
}

impl From<Dims> for Shape {
    fn from(dims: Dims) -> Self {
        Self(dims)
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Self {
        Self(Dims::from_slice(dims))
    }
}

impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Self {
        Self(Dims::from(dims))
    }
}

impl<const RANK: usize> From<[usize; RANK]> for Shape {
    fn from(dims: [usize; RANK]) -> Self {
        Self(Dims::from_slice(&dims))
    }
}

impl<const RANK: usize> From<&[usize; RANK]> for Shape {
    fn from(dims: &[usize; RANK]) -> Self {
        Self(Dims::from_slice(dims))
    }
}

macro_rules! from_tuples {
    ($(($($dim:ident)+))*) => {$(
        impl From<($(from_tuples!(@usize $dim),)+)> for Shape {
            fn from(($($dim,)+): ($(from_tuples!(@usize $dim),)+)) -> Self {
                Self::from([$($dim),+])
            }
        }
    )*};
    (@usize $dim:ident) => { usize };
}

from_tuples!((a)(a b)(a b c)(a b c d)(a b c d e)(a b c d e f));

impl From<&Self> for Shape {
    fn from(shape: &Self) -> Self {
        shape.clone()
    }
}

impl PartialEq<[usize]> for Shape {
    fn eq(&self, other: &[usize]) -> bool {
        self.as_slice() == other
    }
}

impl PartialEq<&[usize]> for Shape {
    fn eq(&self, other: &&[usize]) -> bool {
        self.as_slice() == *other
    }
}

impl<const RANK: usize> PartialEq<[usize; RANK]> for Shape {
    fn eq(&self, other: &[usize; RANK]) -> bool {
        self.as_slice() == other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_come_from_what_holds_lengths_and_print_like_them() {
        let shape = Shape::from([2, 3]);
        assert_eq!(shape, Shape::from(vec![2, 3]));
        assert_eq!(shape, Shape::from(&[2_usize, 3][..]));
        assert_eq!(shape, [2, 3]);
        assert_eq!(shape.to_string(), "[2, 3]");
        assert_eq!(shape.rank(), 2);
        assert_eq!(Shape::scalar().to_string(), "[]");
        assert_eq!(Shape::from([]), Shape::scalar());
        assert_eq!((Shape::from((4,)), Shape::from((2, 3))), (Shape::from([4]), shape));
        assert_eq!(Shape::from((1, 2, 3, 4, 5, 6)), [1, 2, 3, 4, 5, 6]);
    }
}
