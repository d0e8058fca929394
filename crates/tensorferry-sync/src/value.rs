//! One value in shared memory.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use tensorferry_storage::{Heap, SharedBlock, StorageError};

use crate::array::allocate;
use crate::element::RawElement;
use crate::error::WireError;
use crate::wire::{ELEMENT_LEN_BYTES, Wire, told};
use crate::{Number, Scalar};

/// A value that several processes read and write, without a lock: Python's `RawValue`, with atomic steps.
///
/// Clone it or send it to have another handle on the same memory. Every call is one atomic, sequentially consistent
/// step and never waits.
pub struct RawValue<T> {
    /// INVARIANT: one word long.
    block: SharedBlock,
    holds: PhantomData<fn(T) -> T>,
}

impl<T: Scalar> RawValue<T> {
    /// A value in the default domain.
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
        self.element().get()
    }

    /// Replaces the value.
    pub fn set(&self, value: T) {
        self.element().set(value);
    }

    /// Replaces the value and returns the old one.
    pub fn swap(&self, value: T) -> T {
        self.element().swap(value)
    }

    /// Replaces the value by `new` if it is `current`; returns the old one. Floats are compared by their bits: NaN is
    /// equal to the same NaN, and 0 is not -0.
    ///
    /// # Errors
    /// The value that was found instead of `current`.
    pub fn compare_exchange(&self, current: T, new: T) -> Result<T, T> {
        self.element().compare_exchange(current, new)
    }

    /// Replaces the value by what `change` makes of it; returns the old one. `change` is called again when another
    /// process was faster.
    ///
    /// # Errors
    /// The value that `change` answered with `None`; nothing was replaced then.
    pub fn fetch_update(&self, change: impl FnMut(T) -> Option<T>) -> Result<T, T> {
        self.element().fetch_update(change)
    }

    /// Whether both are handles on the same memory.
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.block.words(), other.block.words())
    }

    fn element(&self) -> RawElement<'_, T> {
        // The block is one word long, so this is never read.
        static NOWHERE: AtomicU64 = AtomicU64::new(0);
        RawElement::new(self.block.words().first().unwrap_or(&NOWHERE))
    }
}

impl<T: Number> RawValue<T> {
    /// Adds `value` and returns what was there before. Integers wrap around, floats round.
    pub fn fetch_add(&self, value: T) -> T {
        self.element().fetch_add(value)
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
    /// Sends a handle on the value. Works only inside a message.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let wire = Wire::give(T::KIND, &self.block);
        wire.map_err(|error| ser::Error::custom(told(error)))?.serialize(serializer)
    }
}

impl<'de, T: Scalar> Deserialize<'de> for RawValue<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let block = Wire::deserialize(deserializer)?.take(T::KIND);
        let block = block.map_err(|error| de::Error::custom(told(error)))?;
        let found_bytes = block.len_bytes();
        if found_bytes != ELEMENT_LEN_BYTES {
            return Err(de::Error::custom(told(WireError::WrongLength { claimed: 1, found_bytes })));
        }
        Ok(Self { block, holds: PhantomData })
    }
}
