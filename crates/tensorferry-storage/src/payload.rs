//! The bytes of a message that was taken.

use std::fmt;
use std::ops::Deref;

use crate::scratch::Scratch;

/// A payload up to this length fits into a slot beside one handle, and lies in the message itself. One that
/// is eight bytes longer, in a message without handles, is copied as long ones are.
const SHORT_BYTES: usize = 232;
const WORD_BYTES: usize = 8;

/// A private copy of a message's bytes, as a slice. The bytes may be anything: decode them as untrusted
/// input.
pub struct Payload {
    short: [u8; SHORT_BYTES],
    /// In use when the length is more than `SHORT_BYTES`. It is then that long, rounded up to whole words.
    long: Scratch,
    len_bytes: usize,
}

impl Payload {
    pub(crate) fn clear(&mut self) {
        self.len_bytes = 0;
    }

    /// Makes room for `len_bytes` bytes, as words to be written as a whole; the last word may reach beyond
    /// the length. The words may still have their former contents.
    #[inline]
    pub(crate) fn room(&mut self, len_bytes: usize) -> &mut [[u8; WORD_BYTES]] {
        self.len_bytes = len_bytes;
        let n_words = len_bytes.div_ceil(WORD_BYTES);
        let (short, _) = self.short.as_chunks_mut();
        if let Some(short) = short.get_mut(..n_words) {
            return short;
        }
        if self.long.capacity() == 0 {
            self.long = Scratch::take();
        }
        self.long.resize(n_words * WORD_BYTES, 0);
        self.long.as_chunks_mut().0
    }
}

impl Default for Payload {
    fn default() -> Self {
        Self { short: [0; SHORT_BYTES], long: Scratch::default(), len_bytes: 0 }
    }
}

impl From<&[u8]> for Payload {
    fn from(bytes: &[u8]) -> Self {
        let mut payload = Self::default();
        let words = payload.room(bytes.len()).as_flattened_mut();
        // The words are as many as the bytes need.
        words.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
        payload
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.short.get(..self.len_bytes).or_else(|| self.long.get(..self.len_bytes)).unwrap_or_default()
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_of_bytes_has_them() {
        for len_bytes in [0, 1, 7, SHORT_BYTES, SHORT_BYTES + 1, 5_000] {
            let bytes: Vec<_> = (0..len_bytes).map(|at| at.to_le_bytes()[0]).collect();
            assert_eq!(*Payload::from(&*bytes), *bytes);
        }
    }

    #[test]
    fn a_payload_has_the_length_that_was_asked_for_last() {
        let mut payload = Payload::default();
        for len_bytes in [0, 1, SHORT_BYTES, SHORT_BYTES + 1, 1 << 20, 3, 5000, 0] {
            payload.room(len_bytes).as_flattened_mut().fill(9);
            assert_eq!(payload.len(), len_bytes);
            assert!(payload.iter().all(|&byte| byte == 9));
        }
        assert_eq!(payload.room(300).len(), 38);
        payload.clear();
        assert!(payload.is_empty());
    }
}
