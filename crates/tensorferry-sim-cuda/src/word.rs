//! Stream memory operations: streams that wait for words of page-locked memory, and write them.
//!
//! # Safety
//! A [`Word`] lies in memory that a C caller registered, and promised to keep until it unregisters it. Each
//! operation keeps the registration until it is done, and unregistering waits for that. The word is only
//! accessed atomically, because the caller and other processes write it.
#![expect(unsafe_code, reason = "reads and writes words of a C caller")]

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::thread::futex;

use crate::access::HostMemory;
use crate::driver::Driver;
use crate::stream::Stream;
use crate::{Answer, Status};

/// `CU_STREAM_WAIT_VALUE_GEQ`.
const AT_LEAST: u32 = 0;
const WORD_BYTES: usize = 8;
/// How often a stream looks at its word. Nobody has to wake it: a host may write the word as well.
const LOOK: futex::Timespec = futex::Timespec { tv_sec: 0, tv_nsec: 100_000 };

/// A word of registered memory.
#[derive(Debug)]
struct Word {
    address: usize,
    _in_use: Arc<()>,
}

impl Word {
    fn get(&self) -> &AtomicU64 {
        let word = ptr::with_exposed_provenance_mut(self.address);
        // SAFETY: from_ptr requires an aligned pointer to memory that is valid while the reference lives and
        // is only accessed atomically: `Driver::word` checked the first, the registration is the second, and
        // callers in C promise the last.
        unsafe { AtomicU64::from_ptr(word) }
    }

    /// The half of the word that changes with every write.
    fn half(&self) -> &AtomicU32 {
        let half = ptr::with_exposed_provenance_mut(self.address);
        // SAFETY: as in `get`: the low half lies first on this machine.
        unsafe { AtomicU32::from_ptr(half) }
    }

    /// Waits until the word is at least this value, as `cuStreamWaitValue64` compares.
    fn wait(&self, value: u64, is_over: impl Fn() -> bool) {
        loop {
            let seen = self.half().load(Ordering::SeqCst);
            if self.get().load(Ordering::SeqCst).wrapping_sub(value).cast_signed() >= 0 || is_over() {
                return;
            }
            // Whatever the reason for waking up, the loop checks again.
            let _ = futex::wait(self.half(), futex::Flags::empty(), seen, Some(&LOOK));
        }
    }
}

impl Driver {
    /// Whether streams have 64-bit memory operations.
    fn check_words(&self) -> Answer {
        if self.settings.has_words { Ok(()) } else { Err(Status::NOT_SUPPORTED) }
    }

    /// `cuMemHostGetDevicePointer`: under unified addressing, the address itself.
    pub(crate) fn host_device_pointer(&self, address: u64, flags: u32) -> Answer<u64> {
        self.current()?;
        self.word(address, 1).filter(|_| flags == 0).map(|_| address).ok_or(Status::INVALID_VALUE)
    }

    fn word(&self, address: u64, len_bytes: usize) -> Option<Word> {
        let address = usize::try_from(address).ok()?;
        let memory = HostMemory::from_c(address, len_bytes).ok()?;
        Some(Word { address, _in_use: self.registered_around(memory)? })
    }

    fn aligned_word(&self, address: u64) -> Answer<Word> {
        let word = self.word(address, WORD_BYTES).filter(|_| address.is_multiple_of(WORD_BYTES as u64));
        word.ok_or(Status::INVALID_VALUE)
    }

    /// `cuStreamWaitValue64`. Of the comparisons, only that for at least a value is known.
    pub(crate) fn stream_wait_value(&self, stream: usize, address: u64, value: u64, flags: u32) -> Answer {
        self.check_words()?;
        let stream = self.stream(stream)?;
        let word = self.aligned_word(address)?;
        if flags != AT_LEAST {
            return Err(Status::NOT_SUPPORTED);
        }
        stream.push(move |stream: &Stream| {
            word.wait(value, || stream.has_ended());
            Ok(())
        })
    }

    /// `cuStreamWriteValue64`.
    pub(crate) fn stream_write_value(&self, stream: usize, address: u64, value: u64, flags: u32) -> Answer {
        self.check_words()?;
        let stream = self.stream(stream)?;
        let word = self.aligned_word(address)?;
        if flags != 0 {
            return Err(Status::INVALID_VALUE);
        }
        stream.push(move |_: &Stream| {
            word.get().store(value, Ordering::SeqCst);
            let _ = futex::wake(word.half(), futex::Flags::empty(), i32::MAX.cast_unsigned());
            Ok(())
        })
    }
}
