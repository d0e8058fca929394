//! Where a value is serialised to.

use std::io::{self, Write};
use std::ops::Deref;

use tensorferry_storage::Scratch;

/// Most messages are a description or two, and stay on the stack. Their bytes need no look for the memory
/// that the thread keeps.
const SHORT_BYTES: usize = 128;
/// The length of a buffer whose bytes lie in the thread's memory.
const IS_LONG: usize = SHORT_BYTES + 1;

/// The bytes of an outgoing message.
pub(crate) struct Buffer {
    short: [u8; SHORT_BYTES],
    /// Of `short`, or [`IS_LONG`].
    len_bytes: usize,
    /// In use when the length is [`IS_LONG`].
    long: Scratch,
}

impl Buffer {
    pub(crate) fn new() -> Self {
        Self { short: [0; SHORT_BYTES], len_bytes: 0, long: Scratch::default() }
    }

    #[inline]
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        let end = self.len_bytes.saturating_add(bytes.len());
        match self.short.get_mut(self.len_bytes..end) {
            Some(room) => {
                copy(bytes, room);
                self.len_bytes = end;
            }
            None => self.append_long(bytes),
        }
    }

    #[cold]
    fn append_long(&mut self, bytes: &[u8]) {
        if let Some(short) = self.short.get(..self.len_bytes) {
            self.long = Scratch::take();
            self.long.clear();
            self.long.extend_from_slice(short);
            self.len_bytes = IS_LONG;
        }
        self.long.extend_from_slice(bytes);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.short.get(..self.len_bytes).unwrap_or(&self.long)
    }
}

impl Write for Buffer {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.append(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Copies bytes to where as many are.
///
/// A description of a tensor has about a dozen bytes. To copy those is a call; to copy the first and the last
/// eight of them, which may overlap, is not.
#[inline]
fn copy(bytes: &[u8], room: &mut [u8]) {
    if let ([from], [to]) = (bytes, &mut *room) {
        *to = *from;
    } else {
        copy_many(bytes, room);
    }
}

fn copy_many(bytes: &[u8], room: &mut [u8]) {
    if bytes.len() <= 16
        && let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>())
    {
        if let Some(room) = room.first_chunk_mut() {
            *room = *first;
        }
        if let Some(room) = room.last_chunk_mut() {
            *room = *last;
        }
        return;
    }
    room.copy_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_in_pieces_of_any_length_is_there_as_a_whole() {
        for piece in 0..=2 * SHORT_BYTES {
            let mut buffer = Buffer::new();
            let mut expected = Vec::new();
            for round in 0..4_u8 {
                let bytes: Vec<_> = (0..piece).map(|at| round ^ at.to_le_bytes()[0]).collect();
                buffer.write_all(&bytes).unwrap();
                expected.extend(bytes);
                assert_eq!(*buffer, *expected, "{piece} bytes, round {round}");
            }
        }
    }
}
