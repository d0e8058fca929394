//! A process that has connected, on its way in.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use tensorferry_domain::{Admission, DomainError, MemberInfo, OsError, Phase, PidFd};
use tensorferry_os::socket;
use tensorferry_reduce::Parcel;
use tensorferry_storage::Heap;

use crate::AcceptError;
use crate::greeting::{self, Answer, Hello, Incoming, Unheard};

/// How long a process that has connected may take to say what it wants. Others wait as long.
const GREETING_TIME: Duration = Duration::from_secs(2);
/// How long it may take to join and to take what it came for. It has much to do, on a machine that may be
/// busy.
const JOINING_TIME: Duration = Duration::from_secs(10);

/// A process that has connected, and what is kept for it until it is in.
#[derive(Debug)]
pub(crate) struct Newcomer<K> {
    socket: OwnedFd,
    pid: u32,
    process: PidFd,
    incoming: Incoming,
    /// Until when it may take for its present step.
    deadline: Instant,
    /// Once it was welcomed: what is kept for it, and the parcel that it was told to open. Dropping a parcel
    /// that was not opened takes back what is in it.
    welcomed: Option<(K, Parcel)>,
}

impl<K> Newcomer<K> {
    /// Whoever is at the other end of this socket, if it is a process of this user.
    pub(crate) fn meet(socket: OwnedFd) -> Result<Self, AcceptError> {
        match identify(&socket) {
            Ok((pid, process)) => Ok(Self {
                socket,
                pid,
                process,
                incoming: Incoming::default(),
                deadline: Instant::now() + GREETING_TIME,
                welcomed: None,
            }),
            Err(error) => {
                refuse(&socket, &error);
                Err(error)
            }
        }
    }

    /// When it is refused if it has not gone on.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Goes on until `until`, or for as long as the newcomer may take for its present step. Returns what was
    /// kept for it once it has what it came for, and `None` when it needs more time, which it has. One that
    /// is refused is told why.
    ///
    /// `pack` makes the parcel for it, and what is to be kept.
    pub(crate) fn go_on(
        &mut self,
        heap: &Heap,
        until: Option<Instant>,
        pack: impl FnOnce() -> Result<(K, Parcel), AcceptError>,
    ) -> Result<Option<K>, AcceptError> {
        self.advance(heap, until, pack).inspect_err(|error| refuse(&self.socket, error))
    }

    fn advance(
        &mut self,
        heap: &Heap,
        until: Option<Instant>,
        pack: impl FnOnce() -> Result<(K, Parcel), AcceptError>,
    ) -> Result<Option<K>, AcceptError> {
        let no_later = |deadline| until.map_or(deadline, |until: Instant| until.min(deadline));
        if self.welcomed.is_none() {
            match self.incoming.receive::<Hello>(&self.socket, Some(no_later(self.deadline))) {
                Ok((hello, _)) => self.welcome(heap, &hello, pack)?,
                Err(unheard) => return self.unheard(unheard, "it said nothing"),
            }
        }
        // It has opened the parcel when it says thanks. An admission that it has not used it gets again
        // (`Domain::admit_once`), so that one that comes again and again has one.
        match self.incoming.receive_thanks(&self.socket, no_later(self.deadline)) {
            Ok(()) => Ok(self.welcomed.take().map(|(kept, _)| kept)),
            Err(unheard) => self.unheard(unheard, "it did not take what it came for"),
        }
    }

    fn unheard(&self, unheard: Unheard, silent: &'static str) -> Result<Option<K>, AcceptError> {
        let pid = self.pid;
        Err(match unheard {
            Unheard::TimedOut if Instant::now() < self.deadline => return Ok(None),
            Unheard::TimedOut => AcceptError::BadGreeting { pid, reason: silent },
            Unheard::Bad(reason) => AcceptError::BadGreeting { pid, reason },
            Unheard::Socket(error) => AcceptError::Socket { pid, error },
        })
    }

    /// Answers the hello.
    fn welcome(
        &mut self,
        heap: &Heap,
        hello: &Hello,
        pack: impl FnOnce() -> Result<(K, Parcel), AcceptError>,
    ) -> Result<(), AcceptError> {
        let pid = self.pid;
        let (admit, failed) =
            (|error| AcceptError::Admit { pid, error }, |error| AcceptError::Socket { pid, error });
        let domain = heap.domain();
        let is_member = is_member(heap, &self.process, hello).map_err(failed)?;
        let admission = match is_member {
            true => None,
            false => Some(domain.admit_once(&self.process).map_err(admit)?),
        };
        let (kept, parcel) = pack()?;
        send_welcome(&self.socket, heap, admission, parcel.id()).map_err(|error| match error {
            NotWelcomed::Domain(error) => admit(error),
            NotWelcomed::Socket(error) => failed(error),
        })?;
        self.incoming = Incoming::default();
        self.deadline = Instant::now() + JOINING_TIME;
        self.welcomed = Some((kept, parcel));
        Ok(())
    }
}

impl<K> AsFd for Newcomer<K> {
    /// Readable when it can go on.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn identify(socket: &OwnedFd) -> Result<(u32, PidFd), AcceptError> {
    let peer = socket::peer(socket).map_err(|error| AcceptError::Socket { pid: 0, error })?;
    let (pid, own_uid) = (peer.pid, socket::effective_uid());
    if peer.uid != own_uid {
        return Err(AcceptError::OtherUser { pid, uid: peer.uid, own_uid });
    }
    let process = PidFd::of_peer(socket).map_err(|error| AcceptError::Socket { pid, error })?;
    Ok((pid, process))
}

fn refuse(socket: &OwnedFd, error: &AcceptError) {
    let refusal = greeting::encode(&Answer::Refused(error.to_string()));
    // It may be gone, or not read.
    let _ = socket::try_send(socket, &refusal, &[]);
}

/// Whether this process is a member, and says so too.
fn is_member(heap: &Heap, process: &PidFd, hello: &Hello) -> Result<bool, OsError> {
    let domain = heap.domain();
    if !hello.domains.contains(&domain.id()) {
        return Ok(false);
    }
    let identity = process.identity()?;
    let is_it = |info: &MemberInfo| info.phase == Phase::Live && info.identity.is_same_process(&identity);
    Ok(domain.members().iter().any(is_it))
}

fn send_welcome(
    socket: &OwnedFd,
    heap: &Heap,
    admission: Option<Admission>,
    parcel: u64,
) -> Result<(), NotWelcomed> {
    let domain = heap.domain();
    let fds = match admission {
        Some(_) => domain.fds().map_err(NotWelcomed::Domain)?.into_message().collect(),
        None => Vec::new(),
    };
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    let answer = Answer::Welcome { domain_id: domain.id(), admission, parcel };
    // Nothing has been written to the socket, so it has room.
    socket::send_all(socket, &greeting::encode(&answer), &fds).map_err(NotWelcomed::Socket)
}

/// Why the answer was not sent.
enum NotWelcomed {
    Domain(DomainError),
    Socket(OsError),
}
