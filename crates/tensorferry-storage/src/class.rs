//! Size classes and the geometry that follows from them.
//!
//! Sizes grow by 64 bytes up to 512, and by four steps per doubling from there, so that at most a fifth of a
//! block is rounding. What is populated follows the length asked for, not the class. Blocks of classes up to
//! [`SLAB_MAX_BYTES`] lie in slabs of 63 behind one page of headers. Larger blocks stand alone, with their
//! header in the head of their extent.

use tensorferry_os::mapping::{LARGE_PAGE_BYTES, PAGE_BYTES};

/// One header, one cache line: 64 bytes.
pub(crate) const LINE_BYTES: usize = 64;
/// The words of 8 bytes in a line.
pub(crate) const LINE_WORDS: usize = 8;
/// Blocks in a slab: the lines of a page of headers, less the slab's own.
pub(crate) const SLAB_BLOCKS: usize = PAGE_BYTES / LINE_BYTES - 1;
/// The largest block that lives in a slab, in bytes.
pub(crate) const SLAB_MAX_BYTES: usize = 32 << 10;
/// Blocks from this size on start at a large page.
const ALIGNED_FROM_BYTES: usize = LARGE_PAGE_BYTES;

const LINEAR_STEP_BYTES: usize = 64;
const LINEAR_CLASSES: usize = 8;
const LINEAR_MAX_BYTES: usize = LINEAR_STEP_BYTES * LINEAR_CLASSES;
const STEPS_PER_DOUBLING: usize = 4;
const DOUBLINGS: usize = 31;

/// How many classes there are: up to 1 TiB.
pub(crate) const N_CLASSES: usize = LINEAR_CLASSES + STEPS_PER_DOUBLING * DOUBLINGS;

/// The class of the largest blocks that lie in slabs.
const LAST_OF_SLABS: Class = Class(31);
const _: () = assert!(LAST_OF_SLABS.size_bytes() == SLAB_MAX_BYTES);

/// The index of a size class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class(u16);

impl Class {
    /// The smallest class whose blocks hold `len_bytes`; `None` above 1 TiB.
    pub(crate) fn holding(len_bytes: usize) -> Option<Self> {
        let index = if len_bytes <= LINEAR_MAX_BYTES {
            len_bytes.div_ceil(LINEAR_STEP_BYTES).max(1) - 1
        } else {
            let doubling = (len_bytes - 1).ilog2() - LINEAR_MAX_BYTES.ilog2();
            let base = LINEAR_MAX_BYTES.checked_shl(doubling)?;
            let step = (len_bytes - base).div_ceil(base / STEPS_PER_DOUBLING);
            LINEAR_CLASSES + usize::try_from(doubling).ok()? * STEPS_PER_DOUBLING + step - 1
        };
        Self::from_index(index)
    }

    /// The class with this index, which may come from another process.
    pub(crate) fn from_index(index: usize) -> Option<Self> {
        (index < N_CLASSES).then(|| u16::try_from(index).ok().map(Self)).flatten()
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// How much a block of this class holds, in bytes.
    pub(crate) const fn size_bytes(self) -> usize {
        let index = self.0 as usize;
        if index < LINEAR_CLASSES {
            return LINEAR_STEP_BYTES * (index + 1);
        }
        let (doubling, step) =
            ((index - LINEAR_CLASSES) / STEPS_PER_DOUBLING, (index - LINEAR_CLASSES) % STEPS_PER_DOUBLING);
        let base = LINEAR_MAX_BYTES << doubling;
        base + base / STEPS_PER_DOUBLING * (step + 1)
    }

    #[inline]
    pub(crate) fn is_slab(self) -> bool {
        self.0 <= LAST_OF_SLABS.0
    }

    /// The pages that a span of this class covers: a slab with its headers, or one block.
    pub(crate) fn span_pages(self) -> usize {
        let bytes =
            if self.is_slab() { PAGE_BYTES + SLAB_BLOCKS * self.size_bytes() } else { self.size_bytes() };
        bytes.div_ceil(PAGE_BYTES)
    }

    /// The page at or after `page` at which a span of this class may start.
    pub(crate) fn align_page(self, page: usize) -> usize {
        if self.size_bytes() >= ALIGNED_FROM_BYTES {
            page.next_multiple_of(ALIGNED_FROM_BYTES / PAGE_BYTES)
        } else {
            page
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_class_holds_its_own_size_and_no_more() {
        for index in 0..N_CLASSES {
            let class = Class::from_index(index).unwrap();
            assert_eq!(Class::holding(class.size_bytes()), Some(class));
            let next = Class::holding(class.size_bytes() + 1);
            assert_eq!(next, Class::from_index(index + 1));
            assert!(class.size_bytes().is_multiple_of(LINE_BYTES));
            if !class.is_slab() {
                assert!(class.size_bytes().is_multiple_of(PAGE_BYTES));
            }
        }
    }

    #[test]
    fn powers_of_two_are_exact() {
        for shift in 6..40 {
            assert_eq!(Class::holding(1 << shift).unwrap().size_bytes(), 1 << shift);
        }
        assert_eq!(Class::holding(0).unwrap().size_bytes(), 64);
        assert_eq!(Class::holding(usize::MAX), None);
    }

    proptest! {
        #[test]
        fn rounding_is_at_most_a_quarter(len in 257_usize..(1 << 40)) {
            let size = Class::holding(len).unwrap().size_bytes();
            prop_assert!(size >= len);
            prop_assert!(size - len <= len.div_ceil(4));
        }
    }
}
