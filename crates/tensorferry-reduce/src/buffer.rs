//! Where a value is serialised to.

use std::io::{self, Write};
use std::ops::Deref;

use tensorferry_storage::Scratch;

/// Most messages are a description or two, and stay on the stack. Their bytes need no look for the memory
/// that the thread keeps.
const SHORT_BYTES: usize = 128;

/// For how many bytes, in short pieces, a long buffer has room beforehand. They are zeroed.
const ROOM_BYTES: usize = 1024;

/// The bytes of an outgoing message.
pub(crate) struct Buffer {
    short: [u8; SHORT_BYTES],
    /// How many bytes are in `short`, or [`NO_ROOM`]: so one look tells whether there is room for more.
    short_len_bytes: usize,
    /// All bytes, and room for more, once they are more than `short` has room for. Without room before that.
    long: Scratch,
    long_len_bytes: usize,
}

/// The length of `short` once all bytes are in `long`: none fits behind it.
const NO_ROOM: usize = SHORT_BYTES;

impl Buffer {
    #[inline]
    pub(crate) fn new() -> Self {
        Self { short: [0; SHORT_BYTES], short_len_bytes: 0, long: Scratch::default(), long_len_bytes: 0 }
    }

    #[inline]
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        if let [byte] = bytes
            && let Some(place) = self.short.get_mut(self.short_len_bytes)
        {
            *place = *byte;
            self.short_len_bytes += 1;
        } else {
            self.append_many(bytes);
        }
    }

    #[inline]
    fn append_many(&mut self, bytes: &[u8]) {
        let end = self.short_len_bytes.saturating_add(bytes.len());
        if let Some(room) = self.short.get_mut(self.short_len_bytes..end) {
            copy(bytes, room);
            self.short_len_bytes = end;
        } else {
            self.append_to_long(bytes);
        }
    }

    fn append_to_long(&mut self, bytes: &[u8]) {
        let end = self.long_len_bytes.saturating_add(bytes.len());
        match self.long.get_mut(self.long_len_bytes..end) {
            Some(room) => {
                copy(bytes, room);
                self.long_len_bytes = end;
            }
            None => self.append_to_longer(bytes),
        }
    }

    /// Appends what there is no room for.
    #[cold]
    fn append_to_longer(&mut self, bytes: &[u8]) {
        if self.long.is_empty() {
            self.long = Scratch::take();
            let short = self.short.get(..self.short_len_bytes).unwrap_or_default();
            let len_bytes = self.long.len().max(short.len());
            self.long.resize(len_bytes, 0);
            self.long.iter_mut().zip(short).for_each(|(place, byte)| *place = *byte);
            self.long_len_bytes = short.len();
            self.short_len_bytes = NO_ROOM;
        }
        let end = self.long_len_bytes.saturating_add(bytes.len());
        match self.long.get_mut(self.long_len_bytes..end) {
            // What the last message left is as long.
            Some(room) => room.copy_from_slice(bytes),
            None => {
                self.long.truncate(self.long_len_bytes);
                self.long.extend_from_slice(bytes);
                self.long.resize(end.saturating_add(ROOM_BYTES), 0);
            }
        }
        self.long_len_bytes = end;
    }
}

impl Drop for Buffer {
    /// Says how much of the thread's memory was needed.
    #[inline]
    fn drop(&mut self) {
        if !self.long.is_empty() {
            self.long.truncate(self.long_len_bytes);
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let bytes = if self.long.is_empty() {
            self.short.get(..self.short_len_bytes)
        } else {
            self.long.get(..self.long_len_bytes)
        };
        bytes.unwrap_or_default()
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

    #[test]
    fn pieces_of_all_lengths_come_one_after_the_other() {
        let lengths = [0, 1, 8, SHORT_BYTES - 1, SHORT_BYTES, SHORT_BYTES + 1, ROOM_BYTES + 1];
        for first in lengths {
            for second in lengths {
                let mut buffer = Buffer::new();
                let mut expected = Vec::new();
                for (round, piece) in [first, 1, second, 0, 1, first, 1].into_iter().enumerate() {
                    let bytes = vec![round.to_le_bytes()[0]; piece];
                    buffer.write_all(&bytes).unwrap();
                    expected.extend(bytes);
                    assert_eq!(*buffer, *expected, "{first} and {second} bytes, round {round}");
                }
            }
        }
    }
}
