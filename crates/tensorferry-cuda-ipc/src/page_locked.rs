//! Memory of this process that the driver has page-locked, so that a device copies from it by itself.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::context::PrimaryContext;
use crate::error::Result;

const PAGE_BYTES: usize = 4096;
const WORD_BYTES: usize = size_of::<u64>();

/// Page-locked memory. Dropping it unlocks it, so nobody drops it under a copy.
pub(crate) struct PageLocked {
    /// Whole pages of its own, and what is around them.
    memory: ManuallyDrop<Box<[AtomicU64]>>,
    first_word: usize,
    n_words: usize,
    context: PrimaryContext,
}

impl PageLocked {
    /// Page-locks at least so many bytes, for the devices of all contexts.
    ///
    /// # Errors
    /// The driver's, which may have a limit.
    pub(crate) fn new(context: &PrimaryContext, len_bytes: usize) -> Result<Self> {
        let n_words = len_bytes.next_multiple_of(PAGE_BYTES) / WORD_BYTES;
        let memory: Box<[_]> = (0..n_words + PAGE_BYTES / WORD_BYTES).map(|_| AtomicU64::new(0)).collect();
        let in_page = memory.as_ptr().addr() % PAGE_BYTES;
        let first_word = (PAGE_BYTES - in_page) % PAGE_BYTES / WORD_BYTES;
        let memory = ManuallyDrop::new(memory);
        let this = Self { memory, first_word, n_words, context: context.clone() };
        let _current = context.make_current()?;
        match context.device().driver().pin(this.words()) {
            Ok(()) => Ok(this),
            Err(error) => {
                // It is not locked, so it is ordinary memory.
                let mut this = ManuallyDrop::new(this);
                drop(std::mem::take(&mut *this.memory));
                Err(error)
            }
        }
    }

    /// The memory.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.memory.get(self.first_word..self.first_word + self.n_words).unwrap_or_default()
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.n_words * WORD_BYTES
    }

    /// Copies the bytes to its beginning, as far as there is room.
    pub(crate) fn fill(&self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
        let mut places = self.words().iter();
        for (word, place) in words.iter().zip(places.by_ref()) {
            place.store(u64::from_le_bytes(*word), Ordering::Relaxed);
        }
        if !rest.is_empty()
            && let Some(place) = places.next()
        {
            let mut word = [0; WORD_BYTES];
            word.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            place.store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
    }
}

impl Drop for PageLocked {
    fn drop(&mut self) {
        let unpinned = self.context.make_current().and_then(|_current| {
            // It may wait for the device.
            self.context.device().driver().unpin(self.words())
        });
        // Where that fails the memory stays locked, and is used for nothing else.
        if unpinned.is_ok() {
            drop(std::mem::take(&mut *self.memory));
        }
    }
}

impl fmt::Debug for PageLocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageLocked").field("len_bytes", &self.len_bytes()).finish_non_exhaustive()
    }
}
