//! One element: a word in shared memory that is read and written in single atomic steps.
//!
//! Any process may have written the word. It is only ever converted to a value, and every word is one.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use crate::{Number, Scalar};

/// One element of a [`RawArray`](crate::RawArray). Each call is one atomic step.
///
/// All steps are sequentially consistent, so a flag in one value can announce a write to another value or to
/// a tensor.
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

    /// Replaces the value by `new` if it is `current`, and returns the old value. Floats are compared by
    /// their bits: a NaN equals the same NaN, and 0 is not -0.
    ///
    /// # Errors
    /// The value that was found instead of `current`.
    pub fn compare_exchange(self, current: T, new: T) -> Result<T, T> {
        // Compares values and not whole words. Bits that another process left above those of the value must
        // not make every comparison fail.
        let is_current = |word| T::from_word(word).to_word() == current.to_word();
        let replace = |word| is_current(word).then_some(new.to_word());
        self.word.fetch_update(SeqCst, SeqCst, replace).map(T::from_word).map_err(T::from_word)
    }

    /// Replaces the value by the result of `change`, and returns the old value. `change` is called again when
    /// another thread or process changed the value in the meantime.
    ///
    /// # Errors
    /// The value for which `change` returned `None`. It is not replaced then.
    pub fn fetch_update(self, mut change: impl FnMut(T) -> Option<T>) -> Result<T, T> {
        let replace = |word| change(T::from_word(word)).map(T::to_word);
        self.word.fetch_update(SeqCst, SeqCst, replace).map(T::from_word).map_err(T::from_word)
    }
}

impl<T: Number> RawElement<'_, T> {
    /// Adds `value` and returns the old value. Integers wrap around, floats round.
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
