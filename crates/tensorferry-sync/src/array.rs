//! A fixed number of values in shared memory.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use tensorferry_storage::{Heap, SharedBlock, StorageError};

use crate::element::RawElement;
use crate::wire::{ELEMENT_LEN_BYTES, Wire, told};
use crate::{OutOfRangeError, Scalar};

/// An array that several processes read and write, without a lock: Python's `RawArray`, with atomic steps.
///
/// Clone it or send it to have another handle on the same memory. A call on one element is one atomic, sequentially
/// consistent step; a call on many is one such step for each element, so others may see it, or write, in between.
/// Nothing waits.
pub struct RawArray<T> {
    /// INVARIANT: a whole number of words long, one for each element; empty when there are none.
    block: SharedBlock,
    holds: PhantomData<fn(T) -> T>,
}

impl<T: Scalar> RawArray<T> {
    /// An array with these elements in the default domain.
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

    /// An array of `len` elements that are all `value`, in the default domain.
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

    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.block.len_bytes() / ELEMENT_LEN_BYTES
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at `index`; `None` outside of the array.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<T> {
        self.at(index).map(RawElement::get)
    }

    /// Replaces the element at `index`.
    ///
    /// # Errors
    /// [`OutOfRangeError`]
    pub fn set(&self, index: usize, value: T) -> Result<(), OutOfRangeError> {
        self.at(index).ok_or(OutOfRangeError { index, len: self.len() })?.set(value);
        Ok(())
    }

    /// The element at `index`, for every other step; `None` outside of the array.
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

    /// A copy of all elements, read one after the other.
    #[must_use]
    pub fn to_vec(&self) -> Vec<T> {
        self.block.words().iter().map(|word| RawElement::new(word).get()).collect()
    }

    /// Replaces all elements, one after the other.
    pub fn fill(&self, value: T) {
        for word in self.block.words() {
            RawElement::new(word).set(value);
        }
    }

    /// Whether both are handles on the same memory. Empty arrays have none and are the same.
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        (self.is_empty() && other.is_empty()) || std::ptr::eq(self.block.words(), other.block.words())
    }
}

/// A block of `len` words that hold `values`.
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
    // Nobody else knows the block yet; whatever hands it on orders these stores.
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
        f.debug_list()
            .entries(self.block.words().iter().map(|word| RawElement::<T>::new(word).get()))
            .finish()
    }
}

impl<T: Scalar> Serialize for RawArray<T> {
    /// Sends a handle on the array. Works only inside a message.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let wire = Wire::give(T::KIND, &self.block);
        wire.map_err(|error| ser::Error::custom(told(error)))?.serialize(serializer)
    }
}

impl<'de, T: Scalar> Deserialize<'de> for RawArray<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let block = Wire::deserialize(deserializer)?.take(T::KIND);
        Ok(Self { block: block.map_err(|error| de::Error::custom(told(error)))?, holds: PhantomData })
    }
}
