//! Semaphores: words of shared memory that devices of one process write, and that streams and threads of all
//! processes wait for. A device writes a number when all work before it is done; whoever waits, waits until
//! the word is at least its number.
//!
//! They lie in blocks of the domain, and nothing of them is the driver's: when a process is killed, no name
//! stays behind, and any other process can write what the killed one's device cannot write any more
//! ([`crate::watch`]). For an interprocess event of the driver, neither is so. A stream that waits for one
//! whose process was killed waits for ever, and freeing memory then waits for the stream (seen on an H100,
//! see docs/gpu).
//!
//! Everything that a stream waits for was queued before: the message that names a point is sent after the
//! point is made. So streams that share a queue of the device cannot block each other for good.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::context::PrimaryContext;
use crate::error::Result;
use crate::refused;
use crate::stream::{KnownStream, Stream};

/// The semaphores of a block. A number belongs to a *generation*, which its high bits tell. The numbers of a
/// later generation are larger, so a word of one lets everybody go who waits for a number of an earlier one:
/// the wait is *cut short*.
pub(crate) trait Semaphores: fmt::Debug + Send + Sync {
    /// The words.
    fn words(&self) -> &[AtomicU64];

    /// The first number of the generation that follows that of `number`. Below [`LIMIT`].
    fn next_generation(&self, number: u64) -> u64;

    /// The member whose devices write this semaphore, as a word.
    fn writer(&self, index: usize) -> u64;

    /// Whether a writer is proven to be gone. Also notices a death that no process has noticed yet.
    fn is_gone(&self, writer: u64) -> bool;

    /// Whether a device may still write a semaphore although its process is gone. It may as long as something
    /// else has the process's context, such as a process that was forked from it.
    fn is_abandoned(&self) -> bool;

    /// The word; 0 for a semaphore that is not there.
    fn value(&self, index: usize) -> u64 {
        self.words().get(index).map_or(0, |word| word.load(Ordering::SeqCst))
    }

    /// Whether a device has written the number, or a later one of its generation.
    fn is_reached(&self, index: usize, number: u64) -> bool {
        (number..self.next_generation(number)).contains(&self.value(index))
    }

    /// Whether waits for the number were cut short, so that it is not known whether it was ever written.
    fn is_cut_short(&self, index: usize, number: u64) -> bool {
        self.value(index) >= self.next_generation(number)
    }

    /// Lets everybody go on who waits for the number, or for a later one of its generation. Called where the
    /// writer is gone. What a later writer has written stays.
    fn cut_short(&self, index: usize, number: u64) {
        if let Some(word) = self.words().get(index) {
            word.fetch_max(self.next_generation(number), Ordering::SeqCst);
        }
    }
}

/// All numbers are below this, so that streams compare them as what they are: by the sign of a difference.
pub(crate) const LIMIT: u64 = 1 << 63;

/// Semaphores that devices of this process can reach, because this process has pinned them. Dropping this
/// unpins them.
#[derive(Debug)]
pub(crate) struct PinnedSemaphores {
    semaphores: Arc<dyn Semaphores>,
    context: PrimaryContext,
    address: u64,
    /// The streams that may still have work with them.
    users: Mutex<Vec<KnownStream>>,
}

impl PinnedSemaphores {
    /// # Errors
    /// The driver's error. It may refuse to pin words of one page twice, for example.
    pub(crate) fn pin(semaphores: Arc<dyn Semaphores>, context: &PrimaryContext) -> Result<Self> {
        let _current = context.enter()?;
        let address = context.device().driver().pin_for_streams(semaphores.words())?;
        Ok(Self { semaphores, context: context.clone(), address, users: Mutex::default() })
    }

    /// Has the stream write the number, behind all work that is queued on it now.
    pub(crate) fn write(&self, index: usize, stream: &Stream, number: u64) -> Result<()> {
        self.add_user(stream);
        let _current = stream.context().enter()?;
        let address = self.address_of(index);
        stream.context().device().driver().stream_write_value(stream.handle(), address, number)
    }

    /// Makes the stream wait until the semaphore is at least this number.
    pub(crate) fn hold_up(&self, index: usize, stream: &Stream, number: u64) -> Result<()> {
        self.add_user(stream);
        let _current = stream.context().enter()?;
        let address = self.address_of(index);
        stream.context().device().driver().stream_wait_value(stream.handle(), address, number)
    }

    fn address_of(&self, index: usize) -> u64 {
        self.address + (index * size_of::<u64>()) as u64
    }

    fn add_user(&self, stream: &Stream) {
        let mut users = self.users();
        if users.iter().any(|known| known.is(stream)) {
            return;
        }
        let is_gone = |known: &mut KnownStream| known.is_unused() && known.get().is_known_idle();
        let gone: Vec<_> = users.extract_if(.., is_gone).collect();
        users.push(stream.to_known());
        drop(users);
        if !gone.is_empty() {
            // The last handle on a stream destroys it, which may be another library's to do: not here, where
            // a context is current. The thread looks as long as there are semaphores.
            refused::keep_for_later(gone);
        }
    }

    /// Whether no stream has work with them any more. The caller sees to it that none is given any.
    pub(crate) fn is_idle(&self) -> bool {
        let mut users = self.users();
        let gone: Vec<_> = users.extract_if(.., |known| known.get().is_known_idle()).collect();
        let is_idle = users.is_empty();
        drop(users);
        drop(gone);
        is_idle
    }

    fn users(&self) -> MutexGuard<'_, Vec<KnownStream>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PinnedSemaphores {
    fn drop(&mut self) {
        let unpinned = self.is_idle()
            && !self.semaphores.is_abandoned()
            && self
                .context
                .enter()
                .is_ok_and(|_current| self.context.device().driver().unpin(self.semaphores.words()).is_ok());
        if !unpinned {
            // A device may still use them, so their block is used for nothing else.
            let _ = ManuallyDrop::new(Arc::clone(&self.semaphores));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Generations of a hundred numbers, of one writer.
    #[derive(Debug)]
    struct Hundreds([AtomicU64; 1]);

    impl Semaphores for Hundreds {
        fn words(&self) -> &[AtomicU64] {
            &self.0
        }

        fn next_generation(&self, number: u64) -> u64 {
            (number / 100 + 1) * 100
        }

        fn writer(&self, _index: usize) -> u64 {
            0
        }

        fn is_gone(&self, _writer: u64) -> bool {
            true
        }

        fn is_abandoned(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_wait_that_is_cut_short_is_over_and_not_reached() {
        let semaphores = Hundreds([AtomicU64::new(5)]);
        assert!(semaphores.is_reached(0, 5) && !semaphores.is_reached(0, 6));
        assert!(!semaphores.is_cut_short(0, 6));
        semaphores.cut_short(0, 6);
        assert_eq!(semaphores.value(0), 100, "which is more than 6");
        assert!(semaphores.is_cut_short(0, 6) && !semaphores.is_reached(0, 6));
        // Numbers of the next writer are not cut short with it, and what that has written stays.
        assert!(!semaphores.is_reached(0, 101) && !semaphores.is_cut_short(0, 101));
        semaphores.0[0].store(102, Ordering::SeqCst);
        semaphores.cut_short(0, 7);
        assert_eq!(semaphores.value(0), 102);
        assert!(semaphores.is_reached(0, 101));
        assert!(!semaphores.is_reached(1, 0) || semaphores.value(1) == 0, "there is no such semaphore");
    }
}
