//! The descriptor store: keeps descriptors that must outlive the process that made them.
//!
//! Memory outside of the domain's file (a slab of a GPU, for example) leaves its process as a descriptor. Its
//! maker stores the descriptor in the process that made the domain, before the first message names that
//! memory. A receiver of such a message fetches the descriptor when it needs it. So the maker may end at any
//! time.
//!
//! All members share one end of a socket, which they inherit beside the domain's file. Questions arrive in
//! the order in which they were sent, whichever member sent them. So a descriptor that was stored before a
//! message was sent is there when the receiver of the message fetches it. An answer comes through a socket
//! that travels with the question.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tensorferry_os::descriptor::KeptForOthers;
use tensorferry_os::fork::RenewableFd;
use tensorferry_os::socket::{self, Interest};
use tensorferry_os::{Error, Result, child};

/// How long to wait for the store. No process is busy for as long, but a stopped one would never answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// The kind, then the name; 8 bytes each.
const QUESTION_LEN_BYTES: usize = 16;
/// The most questions of one call of [`FdStore::serve`]. The socket has room for fewer.
const MAX_QUESTIONS: usize = 1024;
const STORE: u64 = 1;
const FETCH: u64 = 2;

/// The codes of an answer: one byte, with the descriptor beside it if there is one.
const FOUND: u8 = 1;
const UNKNOWN: u8 = 2;
const LOST: u8 = 3;

/// Why a descriptor could not be stored or fetched.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum FdStoreError {
    /// This process joined the domain without a socket to the descriptor store.
    #[error("this process has no way to the descriptor store: it joined with the domain's file alone")]
    NotConnected,
    /// The process that made the domain has ended.
    #[error("the process that made the domain, and kept its descriptors, has ended")]
    Gone,
    /// The descriptor store does not answer. Its process may be stopped.
    #[error(
        "the descriptor store has not answered for {waited:?}: is the process that made the domain stopped?"
    )]
    Silent {
        /// How long this call waited for it.
        waited: Duration,
    },
    /// No member stored it, or no member holds what it belongs to any more.
    #[error("the descriptor store has no descriptor by the name {name:#x}")]
    Unknown {
        /// The name that was asked for.
        name: u64,
    },
    /// It was sent, but the descriptor store had no descriptor left to take it.
    #[error(
        "the process that made the domain had no descriptor left to keep {name:#x} (RLIMIT_NOFILE): raise \
         its limit (ulimit -n)"
    )]
    Lost {
        /// The name that was asked for.
        name: u64,
    },
    /// The descriptor store lives, but could not take the question, because the socket for the answer needs a
    /// descriptor.
    #[error(
        "the process that made the domain had no descriptor left to answer with (RLIMIT_NOFILE) when asked \
         for {name:#x}: raise its limit (ulimit -n), or ask again"
    )]
    Exhausted {
        /// The name that was asked for.
        name: u64,
    },
    /// The kernel refused.
    #[error(transparent)]
    Os(#[from] Error),
}

tensorferry_os::debug_as_display!(FdStoreError);

/// Stores descriptors under names, in the process that made the domain.
pub struct FdStore {
    own_end: RenewableFd,
    members_end: RenewableFd,
    /// Held only for a moment. No descriptor is closed under this lock, because closing one may take a driver
    /// long.
    kept: Mutex<HashMap<u64, Kept>>,
    /// Lets one thread serve at a time, so that questions are answered in their order.
    serving: Mutex<()>,
}

#[derive(Debug)]
enum Kept {
    Here(KeptForOthers),
    /// It arrived when this process had no descriptor left.
    Lost,
}

/// A member's connection to the descriptor store.
#[derive(Debug)]
pub struct FdStoreClient {
    socket: OwnedFd,
}

impl FdStore {
    /// Makes an empty store.
    ///
    /// # Errors
    /// EMFILE when no descriptor is left.
    pub fn new() -> Result<Self> {
        let (own_end, members_end) = socket::message_pair()?;
        Ok(Self {
            own_end: own_end.into(),
            members_end: members_end.into(),
            kept: Mutex::default(),
            serving: Mutex::default(),
        })
    }

    /// The end of the socket that members are given.
    #[must_use]
    pub fn members_end(&self) -> BorrowedFd<'_> {
        self.members_end.as_fd()
    }

    /// Stores a descriptor for this process.
    pub fn store(&self, name: u64, fd: OwnedFd) {
        // A descriptor that this one replaces is closed after the lock is released.
        let _before = self.kept().insert(name, Kept::Here(fd.into()));
    }

    /// Fetches a descriptor for this process, after serving the questions of members.
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

    /// Answers the questions that members have asked so far. Never blocks on the socket.
    pub fn serve(&self) {
        let _in_order = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..MAX_QUESTIONS {
            let (mut question, mut fds) = ([0; QUESTION_LEN_BYTES], Vec::new());
            match socket::try_receive(&self.own_end, &mut question, &mut fds) {
                Ok(Some(QUESTION_LEN_BYTES)) => self.answer(question, fds.pop()),
                // The question arrived, the descriptor beside it did not.
                Err(error) if error.is_out_of_descriptors() => self.answer(question, None),
                // Not a question of this library. It is never the end of the stream, because this process has
                // the other end too.
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
                // The member that asked may be gone. One byte fits into a fresh socket.
                let _ = socket::try_send(&reply, &[code], found.as_slice());
            }
            // No socket to answer through, or not a question. A member that waits for an answer finds that
            // its socket was closed and that the store still exists.
            _ => {}
        }
    }

    /// Drops the descriptors that are not needed any more. A name that is not needed once must never be
    /// needed again.
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

    /// In a process that was forked from the store's process: closes its copies of the stored descriptors and
    /// of the socket, which would otherwise last as long as this process.
    ///
    /// # Errors
    /// The kernel's error. The socket may stay open then.
    pub fn leave_to_parent(&self) -> Result<()> {
        let kept = std::mem::take(&mut *self.kept());
        drop(kept);
        let nothing = child::null()?;
        self.own_end.replace(&nothing)?;
        self.members_end.replace(&nothing)
    }

    /// The number of stored descriptors.
    #[must_use]
    pub fn n_kept(&self) -> usize {
        self.kept().len()
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<u64, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Readable when members have asked a question.
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
    /// Takes the end of the socket that a member was given.
    #[must_use]
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Stores a descriptor. When this returns, the descriptor outlives this process.
    ///
    /// # Errors
    /// [`FdStoreError::Gone`]; [`FdStoreError::Silent`] when the socket has had no room for 20 seconds;
    /// [`FdStoreError::Os`].
    ///
    /// # Blocking
    /// While the socket has no room, for 20 seconds at most.
    pub fn store(&self, name: u64, fd: BorrowedFd<'_>) -> std::result::Result<(), FdStoreError> {
        self.ask(STORE, name, fd, Instant::now())
    }

    /// Fetches the descriptor that was stored under this name.
    ///
    /// # Errors
    /// All of [`FdStoreError`] except [`FdStoreError::NotConnected`].
    ///
    /// # Blocking
    /// Until the store answers, for 20 seconds at most.
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
            // The answer's socket was closed without an answer.
            _ if self.is_closed() => Err(FdStoreError::Gone),
            _ => Err(FdStoreError::Exhausted { name }),
        }
    }

    /// Whether no answer can ever come, because the store's end of the socket is closed.
    fn is_closed(&self) -> bool {
        // The store ignores a message that is not a question.
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

    /// Serves until the other thread is done.
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
    fn what_was_stored_is_fetched_after_its_maker_is_gone() {
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
    fn an_fd_store_that_is_gone_is_an_error_whether_it_was_asked_before_or_after() {
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
