//! The descriptor store: descriptors that outlive who made them.
//!
//! Memory that is no part of the domain's file (a slab of a GPU, for example) leaves its process as a descriptor. Whoever
//! makes it puts the descriptor into the store of the domain, in the process that made the domain, before the first
//! message names it; whoever receives such a message fetches it when it is needed. So the maker may end at any time.
//!
//! Members share one end of a socket, which they inherit beside the domain's file. What they ask arrives in
//! the order in which it was sent, whoever sent it, so a descriptor that was stored before a message was sent is there
//! when the receiver of the message asks for it. An answer comes through a socket that travels with the question.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tensorferry_os::descriptor::KeptForOthers;
use tensorferry_os::socket::{self, Interest};
use tensorferry_os::{Error, Result, child, fork};

/// How long a descriptor store that does not answer is waited for: longer than any process is busy, and not for ever, because it may
/// be stopped.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// `kind`, then the name.
const QUESTION_LEN_BYTES: usize = 16;
/// In one turn. The socket has room for fewer.
const MAX_QUESTIONS: usize = 1024;
const STORE: u64 = 1;
const FETCH: u64 = 2;

/// One byte, with the descriptor beside it if there is one.
const FOUND: u8 = 1;
const UNKNOWN: u8 = 2;
const LOST: u8 = 3;

/// Why a descriptor could not be stored or fetched.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum FdStoreError {
    /// This process came into the domain without a way to the descriptor store.
    #[error("this process has no way to the descriptor store: it joined with the domain's file alone")]
    NotConnected,
    /// The process that made the domain has ended.
    #[error("the process that made the domain, and kept its descriptors, has ended")]
    Gone,
    /// It does not answer: it is stopped.
    #[error(
        "the descriptor store has not answered for {waited:?}: is the process that made the domain stopped?"
    )]
    Silent {
        /// How long it was waited for.
        waited: Duration,
    },
    /// Nobody stored it, or nobody holds what it belongs to any more.
    #[error("the descriptor store has no descriptor by the name {name:#x}")]
    Unknown {
        /// What was asked for.
        name: u64,
    },
    /// It was stored, but the descriptor store could not take it.
    #[error(
        "the process that made the domain had no descriptor left to keep {name:#x} (RLIMIT_NOFILE): raise its limit (ulimit -n)"
    )]
    Lost {
        /// What was asked for.
        name: u64,
    },
    /// The descriptor store lives, but could not take the question, because an answer needs a descriptor.
    #[error(
        "the process that made the domain had no descriptor left to answer with (RLIMIT_NOFILE) when asked for {name:#x}: raise its limit (ulimit -n), or ask again"
    )]
    Exhausted {
        /// What was asked for.
        name: u64,
    },
    /// The kernel refused.
    #[error(transparent)]
    Os(#[from] Error),
}

tensorferry_os::debug_as_display!(FdStoreError);

/// Keeps descriptors under names. In the process that made the domain.
pub struct FdStore {
    own_end: OwnedFd,
    members_end: OwnedFd,
    /// For a moment at a time; no descriptor is closed under it, because that may take a driver long.
    kept: Mutex<HashMap<u64, Kept>>,
    /// One thread at a time, so that questions are answered in their order.
    serving: Mutex<()>,
}

#[derive(Debug)]
enum Kept {
    Here(KeptForOthers),
    /// It came when this process had no descriptor left.
    Lost,
}

/// The way to the descriptor store, in any member.
#[derive(Debug)]
pub struct FdStoreClient {
    socket: OwnedFd,
}

impl FdStore {
    /// A descriptor store that keeps nothing yet.
    ///
    /// # Errors
    /// EMFILE when no descriptor is left.
    pub fn new() -> Result<Self> {
        let (own_end, members_end) = socket::message_pair()?;
        Ok(Self { own_end, members_end, kept: Mutex::default(), serving: Mutex::default() })
    }

    /// The end that members are given.
    #[must_use]
    pub fn members_end(&self) -> BorrowedFd<'_> {
        self.members_end.as_fd()
    }

    /// Keeps a descriptor of this process itself.
    pub fn store(&self, name: u64, fd: OwnedFd) {
        // What was there before is closed after the lock is gone.
        let _before = self.kept().insert(name, Kept::Here(fd.into()));
    }

    /// A descriptor for this process itself.
    ///
    /// # Errors
    /// [`FdStoreError::Unknown`], [`FdStoreError::Lost`], EMFILE.
    pub fn fetch(&self, name: u64) -> std::result::Result<OwnedFd, FdStoreError> {
        self.serve();
        match self.kept().get(&name) {
            Some(Kept::Here(fd)) => fd
                .as_fd()
                .try_clone_to_owned()
                .map_err(|e| Error::new("duplicating a kept descriptor", e).into()),
            Some(Kept::Lost) => Err(FdStoreError::Lost { name }),
            None => Err(FdStoreError::Unknown { name }),
        }
    }

    /// Does what members have asked for so far. Never blocks.
    pub fn serve(&self) {
        let _in_order = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..MAX_QUESTIONS {
            let (mut question, mut fds) = ([0; QUESTION_LEN_BYTES], Vec::new());
            match socket::try_receive(&self.own_end, &mut question, &mut fds) {
                Ok(Some(QUESTION_LEN_BYTES)) => self.answer(question, fds.pop()),
                // The question is there, what came with it is not.
                Err(error) if error.is_out_of_descriptors() => self.answer(question, None),
                // No question of ours. It is never the end of the stream: this process has the other end too.
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn answer(&self, question: [u8; QUESTION_LEN_BYTES], fd: Option<OwnedFd>) {
        let number = |at: usize| {
            question.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
        };
        let name = number(8);
        match (number(0), fd) {
            (STORE, Some(fd)) => self.store(name, fd),
            (STORE, None) => {
                self.kept().entry(name).or_insert(Kept::Lost);
            }
            (FETCH, Some(reply)) => {
                let kept = self.kept();
                let (code, found) = match kept.get(&name) {
                    Some(Kept::Here(fd)) => (FOUND, Some(fd.as_fd())),
                    Some(Kept::Lost) => (LOST, None),
                    None => (UNKNOWN, None),
                };
                // Whoever asked may be gone; one byte fits into a fresh socket.
                let _ = socket::try_send(&reply, &[code], found.as_slice());
            }
            // Without a way to answer, or no question at all. Who waits for an answer finds that there will be none, and that
            // the store is there still.
            _ => {}
        }
    }

    /// Lets go of what is not needed any more. A name that is not needed once must never be needed again.
    pub fn keep_only(&self, is_needed: impl Fn(u64) -> bool) {
        let names: Vec<u64> = self.kept().keys().copied().collect();
        let unneeded: Vec<u64> = names.into_iter().filter(|&name| !is_needed(name)).collect();
        if unneeded.is_empty() {
            return;
        }
        let mut kept = self.kept();
        let gone: Vec<_> = unneeded.iter().filter_map(|name| kept.remove(name)).collect();
        drop(kept);
        drop(gone);
    }

    /// In a process that was forked from the descriptor store's: closes its copies of what is kept, and of the socket, because they would last
    /// as long as this process does.
    ///
    /// # Errors
    /// The kernel's, where the socket stays open.
    pub fn leave_to_parent(&self) -> Result<()> {
        let kept = std::mem::take(&mut *self.kept());
        drop(kept);
        let nothing = child::null()?;
        fork::replace(&self.own_end, &nothing)?;
        fork::replace(&self.members_end, &nothing)
    }

    /// How many descriptors are kept.
    #[must_use]
    pub fn n_kept(&self) -> usize {
        self.kept().len()
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<u64, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Readable when members have asked for something.
impl AsFd for FdStore {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.own_end.as_fd()
    }
}

impl fmt::Debug for FdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FdStore").field("n_kept", &self.n_kept()).finish_non_exhaustive()
    }
}

impl FdStoreClient {
    /// The end that a member was given.
    #[must_use]
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Gives a descriptor to the descriptor store. When this returns, it outlives this process.
    ///
    /// # Errors
    /// [`FdStoreError::Gone`]; [`FdStoreError::Silent`] when so much is waiting for the descriptor store that there is no room.
    ///
    /// # Blocking
    /// While there is no room, for 20 seconds at most.
    pub fn store(&self, name: u64, fd: BorrowedFd<'_>) -> std::result::Result<(), FdStoreError> {
        self.ask(STORE, name, fd, Instant::now())
    }

    /// A descriptor that was stored under this name.
    ///
    /// # Errors
    /// [`FdStoreError`].
    ///
    /// # Blocking
    /// Until the descriptor store answers, for 20 seconds at most.
    pub fn fetch(&self, name: u64) -> std::result::Result<OwnedFd, FdStoreError> {
        let begin = Instant::now();
        let (ours, theirs) = socket::pair()?;
        self.ask(FETCH, name, theirs.as_fd(), begin)?;
        drop(theirs);
        wait(&ours, Interest::Readable, begin)?;
        let (mut code, mut fds) = ([0], Vec::new());
        match socket::try_receive(&ours, &mut code, &mut fds) {
            Ok(Some(1)) => match (code, fds.pop()) {
                ([FOUND], Some(fd)) => Ok(fd),
                ([LOST], _) => Err(FdStoreError::Lost { name }),
                _ => Err(FdStoreError::Unknown { name }),
            },
            Err(error) if error.is_out_of_descriptors() => Err(error.into()),
            // The socket went away without an answer.
            _ if self.is_closed() => Err(FdStoreError::Gone),
            _ => Err(FdStoreError::Exhausted { name }),
        }
    }

    /// Whether nobody can ever answer: the descriptor store has closed its end, or has ended.
    fn is_closed(&self) -> bool {
        // What is no question is ignored by a descriptor store.
        socket::try_send(&self.socket, &[0], &[]).is_err_and(|error| error.is_closed())
    }

    fn ask(
        &self,
        kind: u64,
        name: u64,
        fd: BorrowedFd<'_>,
        begin: Instant,
    ) -> std::result::Result<(), FdStoreError> {
        let mut question = [0; QUESTION_LEN_BYTES];
        question[..8].copy_from_slice(&kind.to_le_bytes());
        question[8..].copy_from_slice(&name.to_le_bytes());
        loop {
            match socket::try_send(&self.socket, &question, &[fd]) {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => wait(&self.socket, Interest::Writable, begin)?,
                Err(error) if error.is_closed() => return Err(FdStoreError::Gone),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for FdStoreClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn wait(socket: &OwnedFd, interest: Interest, begin: Instant) -> std::result::Result<(), FdStoreError> {
    let left = ANSWER_TIMEOUT.saturating_sub(begin.elapsed());
    let ready = socket::wait_ready(&[(socket.as_fd(), interest)], Some(left))?;
    if ready == [true] { Ok(()) } else { Err(FdStoreError::Silent { waited: ANSWER_TIMEOUT }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn client(fd_store: &FdStore) -> FdStoreClient {
        FdStoreClient::new(fd_store.members_end().try_clone_to_owned().unwrap())
    }

    /// Answers until the other thread is done.
    fn serving<R: Send>(fd_store: &FdStore, work: impl FnOnce() -> R + Send) -> R {
        std::thread::scope(|scope| {
            let worker = scope.spawn(work);
            while !worker.is_finished() {
                fd_store.serve();
                std::thread::yield_now();
            }
            worker.join().unwrap()
        })
    }

    #[test]
    fn what_was_lodged_is_fetched_after_its_maker_is_gone() {
        let fd_store = FdStore::new().unwrap();
        let (maker, user) = (client(&fd_store), client(&fd_store));
        let (mut read, write) = std::io::pipe().unwrap();
        maker.store(7, write.as_fd()).unwrap();
        drop((maker, write));
        let fetched = serving(&fd_store, || user.fetch(7)).unwrap();
        std::fs::File::from(fetched).write_all(b"x").unwrap();
        assert!(matches!(serving(&fd_store, || user.fetch(8)), Err(FdStoreError::Unknown { name: 8 })));
        assert_eq!(fd_store.n_kept(), 1);
        fd_store.keep_only(|name| name != 7);
        assert!(matches!(fd_store.fetch(7), Err(FdStoreError::Unknown { name: 7 })));
        let mut all = Vec::new();
        read.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"x", "no copy of the descriptor is left");
    }

    #[test]
    fn a_fd_store_that_is_gone_is_an_error_whether_it_was_asked_before_or_after() {
        let fd_store = FdStore::new().unwrap();
        let user = client(&fd_store);
        let gone = std::thread::scope(|scope| {
            let asked = scope.spawn(|| user.fetch(7));
            while !socket::wait_ready(&[(fd_store.as_fd(), Interest::Readable)], None).unwrap()[0] {}
            drop(fd_store);
            asked.join().unwrap()
        });
        assert!(matches!(gone, Err(FdStoreError::Gone)), "{gone:?}");
        assert!(matches!(user.fetch(7), Err(FdStoreError::Gone)));
        assert!(matches!(user.store(7, user.as_fd()), Err(FdStoreError::Gone)));
    }

    #[test]
    fn what_is_no_question_does_no_harm() {
        let fd_store = FdStore::new().unwrap();
        let user = client(&fd_store);
        for bytes in [&[1_u8][..], &[9; 16], &[1; 300], &FETCH.to_le_bytes()] {
            socket::send_all(&user, bytes, &[]).unwrap();
        }
        let (_read, write) = std::io::pipe().unwrap();
        user.store(1, write.as_fd()).unwrap();
        fd_store.serve();
        assert!(fd_store.fetch(1).is_ok());
    }
}
