//! A fixed number of values in shared memory.

use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use tensorferry_storage::{Heap, SharedBlock, StorageError};

use crate::element::RawElement;
use crate::wire::{ELEMENT_LEN_BYTES, Wire, refuse};
use crate::{OutOfRangeError, Scalar};

/// An array that several processes read and write without a lock: Python's `RawArray`, with atomic steps.
///
/// A clone, or the value that a receiver gets, is another handle on the same memory. A call on one element is
/// one atomic, sequentially consistent step. A call on many elements is one such step for each, so other
/// processes may read and write in between. No call blocks.
pub struct RawArray<T> {
    /// INVARIANT: one word for each element, and nothing else; empty when there are no elements.
    block: SharedBlock,
    holds: PhantomData<fn(T) -> T>,
}

impl<T: Scalar> RawArray<T> {
    /// Makes an array with these elements in the default domain.
    ///
    /// # Errors
    /// [`StorageError`] when there is no memory for it.
    pub fn new(values: &[T]) -> Result<Self, StorageError> {
        Self::new_in(Heap::current()?, values)
    }

    /// As [`RawArray::new`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`RawArray::new`].
    pub fn new_in(heap: &Heap, values: &[T]) -> Result<Self, StorageError> {
        let block = allocate(heap, values.len(), values.iter().copied())?;
        Ok(Self { block, holds: PhantomData })
    }

    /// Makes an array of `len` elements that are all `value`, in the default domain.
    ///
    /// # Errors
    /// As [`RawArray::new`].
    pub fn full(len: usize, value: T) -> Result<Self, StorageError> {
        Self::full_in(Heap::current()?, len, value)
    }

    /// As [`RawArray::full`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`RawArray::new`].
    pub fn full_in(heap: &Heap, len: usize, value: T) -> Result<Self, StorageError> {
        let block = allocate(heap, len, std::iter::repeat_n(value, len))?;
        Ok(Self { block, holds: PhantomData })
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.block.len_bytes() / ELEMENT_LEN_BYTES
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of the element at `index`. `None` outside the array.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<T> {
        self.at(index).map(RawElement::get)
    }

    /// Replaces the element at `index`.
    ///
    /// # Errors
    /// [`OutOfRangeError`] when there is no such element.
    pub fn set(&self, index: usize, value: T) -> Result<(), OutOfRangeError> {
        self.at(index).ok_or(OutOfRangeError { index, len: self.len() })?.set(value);
        Ok(())
    }

    /// The element at `index`, for the other operations. `None` outside the array.
    ///
    /// ```
    /// # use tensorferry_sync::RawArray;
    /// let done = RawArray::new(&[0_u32, 0])?;
    /// assert_eq!(done.at(1).map(|element| element.fetch_add(5)), Some(0));
    /// assert_eq!(done.to_vec(), [0, 5]);
    /// # Ok::<(), tensorferry_sync::StorageError>(())
    /// ```
    #[must_use]
    pub fn at(&self, index: usize) -> Option<RawElement<'_, T>> {
        self.block.words().get(index).map(RawElement::new)
    }

    /// Iterates over the values of the elements. Each step loads one element, at the time of the step.
    ///
    /// ```
    /// # use tensorferry_sync::RawArray;
    /// let counts = RawArray::new(&[1_u32, 2, 3])?;
    /// assert_eq!(counts.iter().sum::<u32>(), 6);
    /// # Ok::<(), tensorferry_sync::StorageError>(())
    /// ```
    #[must_use]
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { words: self.block.words().iter(), holds: PhantomData }
    }

    /// A copy of all elements, which are read one after the other.
    #[must_use]
    pub fn to_vec(&self) -> Vec<T> {
        self.iter().collect()
    }

    /// Replaces all elements, one after the other.
    pub fn fill(&self, value: T) {
        for word in self.block.words() {
            RawElement::new(word).set(value);
        }
    }

    /// Whether both are handles on the same memory. Empty arrays have no memory; two of them count as the
    /// same.
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        (self.is_empty() && other.is_empty()) || self.block.ptr_eq(&other.block)
    }
}

/// An iterator over the values of a [`RawArray`], made by [`RawArray::iter`].
#[derive(Clone)]
pub struct Iter<'a, T> {
    words: std::slice::Iter<'a, AtomicU64>,
    holds: PhantomData<T>,
}

impl<T: Scalar> Iterator for Iter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.words.next().map(|word| RawElement::new(word).get())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.words.size_hint()
    }
}

impl<T: Scalar> ExactSizeIterator for Iter<'_, T> {}

impl<T: Scalar> FusedIterator for Iter<'_, T> {}

impl<T> fmt::Debug for Iter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").field("n_left", &self.words.len()).finish_non_exhaustive()
    }
}

impl<'a, T: Scalar> IntoIterator for &'a RawArray<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// Allocates a block of `len` words that hold `values`.
pub(crate) fn allocate<T: Scalar>(
    heap: &Heap,
    len: usize,
    values: impl Iterator<Item = T>,
) -> Result<SharedBlock, StorageError> {
    let too_large = || StorageError::TooLarge {
        len_bytes: usize::MAX,
        address_space_bytes: heap.domain().layout().data_len_bytes,
    };
    let len_bytes = len.checked_mul(ELEMENT_LEN_BYTES).ok_or_else(too_large)?;
    let block = heap.allocate(len_bytes)?.share();
    // No other thread or process has the block yet. Handing it on orders these stores.
    for (word, value) in block.words().iter().zip(values) {
        word.store(value.to_word(), Ordering::Relaxed);
    }
    Ok(block)
}

impl<T> Clone for RawArray<T> {
    fn clone(&self) -> Self {
        Self { block: self.block.clone(), holds: PhantomData }
    }
}

impl<T: Scalar> fmt::Debug for RawArray<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RawArray")?;
        f.debug_list().entries(self).finish()
    }
}

impl<T: Scalar> Serialize for RawArray<T> {
    /// Sends another handle on the array. Works only inside a message.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let wire = Wire::give(T::KIND, &self.block);
        wire.map_err(|error| ser::Error::custom(refuse(error)))?.serialize(serializer)
    }
}

impl<'de, T: Scalar> Deserialize<'de> for RawArray<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let block = Wire::deserialize(deserializer)?.take(T::KIND);
        Ok(Self { block: block.map_err(|error| de::Error::custom(refuse(error)))?, holds: PhantomData })
    }
}
