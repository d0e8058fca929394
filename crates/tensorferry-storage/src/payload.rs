//! The bytes of a message that was taken.

use std::fmt;
use std::ops::Deref;

use arrayvec::ArrayVec;

use crate::scratch::Scratch;

const WORD_BYTES: usize = 8;
/// A payload up to this length fits into a slot beside one handle, and lies in the message itself. One that
/// is a word longer, in a message without handles, is copied as long ones are.
const SHORT_WORDS: usize = 29;
const SHORT_BYTES: usize = SHORT_WORDS * WORD_BYTES;

/// A private copy of a message's bytes, as a slice. The bytes may be anything: decode them as untrusted
/// input.
#[derive(Default)]
pub struct Payload {
    /// Not an array, whose bytes would be zeroed for each message: nearly a tenth of the time of one.
    short: ArrayVec<[u8; WORD_BYTES], SHORT_WORDS>,
    /// In use when the length is more than `SHORT_BYTES`. It is then that long, rounded up to whole words.
    long: Scratch,
    len_bytes: usize,
}

impl Payload {
    pub(crate) fn clear(&mut self) {
        self.len_bytes = 0;
    }

    /// Takes `len_bytes` bytes from words, of which there are at least as many as these bytes need.
    #[inline]
    pub(crate) fn fill(&mut self, len_bytes: usize, words: impl Iterator<Item = [u8; WORD_BYTES]>) {
        self.len_bytes = len_bytes;
        if len_bytes <= SHORT_BYTES {
            self.short.clear();
            for word in words.take(len_bytes.div_ceil(WORD_BYTES)) {
                // There is room.
                let _ = self.short.try_push(word);
            }
        } else {
            self.fill_long(len_bytes, words);
        }
    }

    #[cold]
    fn fill_long(&mut self, len_bytes: usize, words: impl Iterator<Item = [u8; WORD_BYTES]>) {
        if self.long.capacity() == 0 {
            self.long = Scratch::take();
        }
        self.long.resize(len_bytes.next_multiple_of(WORD_BYTES), 0);
        self.long.as_chunks_mut().0.iter_mut().zip(words).for_each(|(place, word)| *place = word);
    }
}

impl From<&[u8]> for Payload {
    fn from(bytes: &[u8]) -> Self {
        let mut payload = Self::default();
        let words = bytes.chunks(WORD_BYTES).map(|bytes| {
            let mut word = [0; WORD_BYTES];
            word.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
            word
        });
        payload.fill(bytes.len(), words);
        payload
    }
}

impl Deref for Payload {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let bytes = if self.len_bytes <= SHORT_BYTES { self.short.as_flattened() } else { &self.long };
        bytes.get(..self.len_bytes).unwrap_or_default()
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
    fn a_payload_has_what_was_filled_in_last() {
        let mut payload = Payload::default();
        for (round, len_bytes) in
            [0, 1, SHORT_BYTES, SHORT_BYTES + 1, 1 << 20, 3, 5000, 0].into_iter().enumerate()
        {
            let byte = u8::try_from(round).unwrap();
            payload.fill(len_bytes, std::iter::repeat([byte; WORD_BYTES]));
            assert_eq!(payload.len(), len_bytes);
            assert!(payload.iter().all(|&found| found == byte));
        }
        payload.fill(300, std::iter::repeat([1; WORD_BYTES]));
        payload.clear();
        assert!(payload.is_empty());
    }
}
