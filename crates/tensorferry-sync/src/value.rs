//! One value in shared memory.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use tensorferry_storage::{Heap, SharedBlock, StorageError};

use crate::array::allocate;
use crate::element::RawElement;
use crate::error::WireError;
use crate::wire::{ELEMENT_LEN_BYTES, Wire, refuse};
use crate::{Number, Scalar};

/// A value that several processes read and write without a lock: Python's `RawValue`, with atomic steps.
///
/// A clone, or the value that a receiver gets, is another handle on the same memory. Every call is one
/// atomic, sequentially consistent step. No call blocks.
pub struct RawValue<T> {
    /// INVARIANT: one word long.
    block: SharedBlock,
    holds: PhantomData<fn(T) -> T>,
}

impl<T: Scalar> RawValue<T> {
    /// Makes a value in the default domain.
    ///
    /// # Errors
    /// [`StorageError`] when there is no memory for it.
    pub fn new(value: T) -> Result<Self, StorageError> {
        Self::new_in(Heap::current()?, value)
    }

    /// As [`RawValue::new`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`RawValue::new`].
    pub fn new_in(heap: &Heap, value: T) -> Result<Self, StorageError> {
        let block = allocate(heap, 1, std::iter::once(value))?;
        Ok(Self { block, holds: PhantomData })
    }

    /// The value. Python's `.value`.
    #[must_use]
    pub fn get(&self) -> T {
        self.with_element(|element| element.get())
    }

    /// Replaces the value.
    pub fn set(&self, value: T) {
        self.with_element(|element| element.set(value));
    }

    /// Replaces the value and returns the old one.
    pub fn swap(&self, value: T) -> T {
        self.with_element(|element| element.swap(value))
    }

    /// Replaces the value by `new` if it is `current`, and returns the old value. Floats are compared by
    /// their bits: a NaN equals the same NaN, and 0 is not -0.
    ///
    /// # Errors
    /// The value that was found instead of `current`.
    pub fn compare_exchange(&self, current: T, new: T) -> Result<T, T> {
        self.with_element(|element| element.compare_exchange(current, new))
    }

    /// Replaces the value by the result of `change`, and returns the old value. `change` is called again when
    /// another thread or process changed the value in the meantime.
    ///
    /// # Errors
    /// The value for which `change` returned `None`. It is not replaced then.
    pub fn fetch_update(&self, change: impl FnMut(T) -> Option<T>) -> Result<T, T> {
        self.with_element(|element| element.fetch_update(change))
    }

    /// Whether both are handles on the same memory.
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.block.ptr_eq(&other.block)
    }

    /// Does something with the one word of the block. A process that was forked by something other than this
    /// library does not reach it: there it is a word that is 0 at first and forgotten right after.
    fn with_element<R>(&self, work: impl FnOnce(RawElement<'_, T>) -> R) -> R {
        let nowhere = AtomicU64::new(0);
        work(RawElement::new(self.block.words().first().unwrap_or(&nowhere)))
    }
}

impl<T: Number> RawValue<T> {
    /// Adds `value` and returns the old value. Integers wrap around, floats round.
    pub fn fetch_add(&self, value: T) -> T {
        self.with_element(|element| element.fetch_add(value))
    }
}

impl<T> Clone for RawValue<T> {
    fn clone(&self) -> Self {
        Self { block: self.block.clone(), holds: PhantomData }
    }
}

impl<T: Scalar> fmt::Debug for RawValue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RawValue").field(&self.get()).finish()
    }
}

impl<T: Scalar> Serialize for RawValue<T> {
    /// Sends another handle on the value. Works only inside a message.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let wire = Wire::give(T::KIND, &self.block);
        wire.map_err(|error| ser::Error::custom(refuse(error)))?.serialize(serializer)
    }
}

impl<'de, T: Scalar> Deserialize<'de> for RawValue<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let block = Wire::deserialize(deserializer)?.take(T::KIND);
        let block = block.map_err(|error| de::Error::custom(refuse(error)))?;
        let found_bytes = block.len_bytes();
        if found_bytes != ELEMENT_LEN_BYTES {
            return Err(de::Error::custom(refuse(WireError::WrongLength { claimed: 1, found_bytes })));
        }
        Ok(Self { block, holds: PhantomData })
    }
}
