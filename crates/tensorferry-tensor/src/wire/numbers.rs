//! Numbers as LEB128, which postcard uses too.
//!
//! Each byte has seven bits of the number, the lowest first. The eighth bit says that more bytes follow. Most
//! numbers of a tensor's description fit into one byte.

use arrayvec::ArrayVec;

/// The length of the longest number.
const MAX_NUMBER_BYTES: usize = 10;

/// Encoded numbers, in at most `MAX_BYTES` bytes. Further bytes are dropped.
#[derive(Debug, Default)]
pub(super) struct Numbers<const MAX_BYTES: usize>(ArrayVec<u8, MAX_BYTES>);

impl<const MAX_BYTES: usize> Numbers<MAX_BYTES> {
    /// Starts with this byte.
    #[inline]
    pub(super) fn after(first: u8) -> Self {
        let mut numbers = Self::default();
        numbers.push(first);
        numbers
    }

    #[inline]
    pub(super) fn put(&mut self, number: u64) {
        match u8::try_from(number) {
            // The usual case.
            Ok(byte) if byte < 0x80 => self.push(byte),
            _ => self.put_long(number),
        }
    }

    #[cold]
    fn put_long(&mut self, number: u64) {
        let mut rest = number;
        while rest > 0x7f {
            self.push(rest.to_le_bytes()[0] | 0x80);
            rest >>= 7;
        }
        self.push(rest.to_le_bytes()[0]);
    }

    /// Writes the length of the list, then each number.
    #[inline]
    pub(super) fn put_list(&mut self, numbers: &[usize]) {
        self.put(numbers.len() as u64);
        numbers.iter().for_each(|number| self.put(*number as u64));
    }

    #[inline]
    fn push(&mut self, byte: u8) {
        let _ = self.0.try_push(byte);
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Removes and returns the first number. `None` if there is none, or if it has more than 64 bits.
#[inline]
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    // One byte is the usual case.
    match bytes.split_first() {
        Some((&byte, rest)) if byte < 0x80 => {
            *bytes = rest;
            Some(byte.into())
        }
        _ => take_long(bytes),
    }
}

#[cold]
fn take_long(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for at in 0..MAX_NUMBER_BYTES {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if at == MAX_NUMBER_BYTES - 1 && byte > 1 {
            return None;
        }
        number |= bits << (7 * at);
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_come_back_and_are_written_as_postcard_writes_them(
            all in prop::collection::vec(prop_oneof![0_u64..300, any::<u64>()], 0..20)
        ) {
            let mut written = Numbers::<200>::default();
            all.iter().for_each(|number| written.put(*number));
            let by_postcard: Vec<u8> = all.iter().flat_map(|n| postcard::to_stdvec(n).unwrap()).collect();
            prop_assert_eq!(written.as_bytes(), by_postcard);
            let mut rest = written.as_bytes();
            for number in all {
                prop_assert_eq!(take(&mut rest), Some(number));
            }
            prop_assert_eq!(take(&mut rest), None);
        }

        #[test]
        fn any_bytes_are_a_number_or_none(bytes in prop::collection::vec(any::<u8>(), 0..14)) {
            let mut rest = bytes.as_slice();
            let read = take(&mut rest);
            let by_postcard = postcard::take_from_bytes::<u64>(&bytes).ok();
            prop_assert_eq!(read, by_postcard.map(|(number, _)| number));
        }
    }
}
