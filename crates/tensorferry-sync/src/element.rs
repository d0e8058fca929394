//! One element: a word in shared memory that is read and written in single atomic steps.
//!
//! What stands in the word may have been written by anybody: it is only ever turned into a value.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use crate::{Number, Scalar};

/// One element of a [`RawArray`](crate::RawArray): each call is one atomic step. All are sequentially consistent, so that a flag
/// in one value may announce what was written to another, or to a tensor.
#[derive(Clone, Copy)]
pub struct RawElement<'a, T> {
    word: &'a AtomicU64,
    holds: PhantomData<T>,
}

impl<'a, T: Scalar> RawElement<'a, T> {
    pub(crate) fn new(word: &'a AtomicU64) -> Self {
        Self { word, holds: PhantomData }
    }

    /// The value.
    #[must_use]
    pub fn get(self) -> T {
        T::from_word(self.word.load(SeqCst))
    }

    /// Replaces the value.
    pub fn set(self, value: T) {
        self.word.store(value.to_word(), SeqCst);
    }

    /// Replaces the value and returns the old one.
    pub fn swap(self, value: T) -> T {
        T::from_word(self.word.swap(value.to_word(), SeqCst))
    }

    /// Replaces the value by `new` if it is `current`; returns the old one. Floats are compared by their bits: NaN is
    /// equal to the same NaN, and 0 is not -0.
    ///
    /// # Errors
    /// The value that was found instead of `current`.
    pub fn compare_exchange(self, current: T, new: T) -> Result<T, T> {
        // Compared as values and not as whole words: whatever another process left above the value's own bits must
        // not make a comparison fail for ever.
        let is_current = |word| T::from_word(word).to_word() == current.to_word();
        let replace = |word| is_current(word).then_some(new.to_word());
        self.word.fetch_update(SeqCst, SeqCst, replace).map(T::from_word).map_err(T::from_word)
    }

    /// Replaces the value by what `change` makes of it; returns the old one. `change` is called again when another
    /// process was faster.
    ///
    /// # Errors
    /// The value that `change` answered with `None`; nothing was replaced then.
    pub fn fetch_update(self, mut change: impl FnMut(T) -> Option<T>) -> Result<T, T> {
        let replace = |word| change(T::from_word(word)).map(T::to_word);
        self.word.fetch_update(SeqCst, SeqCst, replace).map(T::from_word).map_err(T::from_word)
    }
}

impl<T: Number> RawElement<'_, T> {
    /// Adds `value` and returns what was there before. Integers wrap around, floats round.
    pub fn fetch_add(self, value: T) -> T {
        let sum = |word| Some(T::from_word(word).plus(value).to_word());
        match self.word.fetch_update(SeqCst, SeqCst, sum) {
            Ok(old) | Err(old) => T::from_word(old),
        }
    }
}

impl<T: Scalar> fmt::Debug for RawElement<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RawElement").field(&self.get()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_from_elsewhere_are_compared_as_values() {
        let word = AtomicU64::new(0xffff_ff07);
        let cell = RawElement::<u8>::new(&word);
        assert_eq!(cell.get(), 7);
        assert_eq!(cell.compare_exchange(7, 9), Ok(7));
        assert_eq!(word.load(SeqCst), 9);
        let word = AtomicU64::new(5);
        assert_eq!(RawElement::<bool>::new(&word).compare_exchange(true, false), Ok(true));
    }

    #[test]
    fn nan_is_equal_to_itself_and_zeroes_differ_by_sign() {
        let word = AtomicU64::new(f64::NAN.to_bits());
        let cell = RawElement::<f64>::new(&word);
        assert!(cell.compare_exchange(f64::NAN, 0.0).is_ok());
        assert_eq!(cell.compare_exchange(-0.0, 1.0).map_err(f64::to_bits), Err(0));
    }
}
