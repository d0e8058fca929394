//! Two machines that talk to each other.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_os::fork_detector::ForkDetector;
use tensorferry_reduce::{decode, with_encoded};
use tensorferry_storage::Heap;

use crate::error::{ConnectionError, RecvError, SendError, SendErrorKind};
use crate::frames::{FrameReader, FrameWriter};
use crate::message::{self, Head};
use crate::patience::{Patience, SILENCE};

/// The longest message that is taken, unless somebody sets another limit: 64 GiB.
const MAX_MESSAGE_BYTES: u64 = 1 << 36;

/// How long a sender that is dropped tries to say goodbye.
const GOODBYE: Duration = Duration::from_millis(100);

/// One side of a connection to another machine: it sends values of type `S` and receives values of type `R`.
/// Python's `multiprocessing.connection.Connection`, over TCP.
///
/// Tensors and bundles anywhere in a value are sent with it: their bytes are read where they lie, and are
/// received into shared memory, so that the receiver can send them on to its own processes without a copy.
/// Queues, locks, what several processes write ([`SharedTensor`]) and what lies on a device cannot be sent.
///
/// Of a view the whole storage is sent: `compact` it before.
///
/// A send waits while the other side does not receive and the kernel's buffers, a few MiB, are full. Where
/// both sides send more than that before they receive, both wait for ever: [`split`](Self::split) it, and
/// receive in a thread of its own.
///
/// When one side is dropped, or ends in order, the other receives what was sent and then
/// [`RecvError::Disconnected`]; when it is killed, [`ConnectionError::Lost`]; and when its machine is off or
/// unreachable for 30 seconds, the system's error ([`set_peer_timeout`](Self::set_peer_timeout)). A machine
/// whose program only does not receive is waited for. A program that is dropped or ends while it has not
/// received all that was sent to it takes back what its kernel has not delivered yet: the other side may find
/// the connection failed instead of ended (RFC 1122, 4.2.2.13).
///
/// A process that is forked has no part in the connections of its parent ([`ConnectionError::Forked`]).
///
/// [`SharedTensor`]: https://docs.rs/tensorferry-tensor
#[derive(Debug)]
pub struct Connection<S, R = S> {
    sender: RemoteSender<S>,
    receiver: RemoteReceiver<R>,
}

/// The sending half of a [`Connection`].
pub struct RemoteSender<S> {
    writer: FrameWriter,
    heap: Heap,
    /// Knows the process that has it.
    fork_detector: Arc<ForkDetector>,
    /// A call has failed in the middle.
    is_broken: bool,
    /// A drop is not the end that the other side waits for.
    is_unfinished: bool,
    sends: PhantomData<fn(S)>,
}

/// The receiving half of a [`Connection`].
pub struct RemoteReceiver<R> {
    reader: FrameReader,
    heap: Heap,
    /// Knows the process that has it.
    fork_detector: Arc<ForkDetector>,
    max_message_bytes: u64,
    /// A head whose message there was no memory for.
    waiting: Option<Head>,
    state: State,
    receives: PhantomData<fn() -> R>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The other side has said goodbye.
    Ended,
    /// A call has failed in the middle.
    Broken,
}

/// Whether this is the process that has the connection, and no copy of it. The number of a process would not
/// tell: in another namespace, or later, a child can have that of its parent.
fn check_process(fork_detector: &ForkDetector) -> Result<(), ConnectionError> {
    if fork_detector.is_owner() { Ok(()) } else { Err(ConnectionError::Forked) }
}

impl<S, R> Connection<S, R> {
    pub(crate) fn new(writer: FrameWriter, reader: FrameReader, heap: &Heap) -> io::Result<Self> {
        let fork_detector = Arc::new(ForkDetector::new()?);
        let sender = RemoteSender {
            writer,
            heap: heap.clone(),
            fork_detector: Arc::clone(&fork_detector),
            is_broken: false,
            is_unfinished: false,
            sends: PhantomData,
        };
        let receiver = RemoteReceiver {
            reader,
            heap: heap.clone(),
            fork_detector,
            max_message_bytes: MAX_MESSAGE_BYTES,
            waiting: None,
            state: State::Open,
            receives: PhantomData,
        };
        let mut connection = Self { sender, receiver };
        connection.set_peer_timeout(SILENCE)?;
        Ok(connection)
    }

    /// The address of the other side.
    ///
    /// # Errors
    /// The system's, when the connection has failed.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.receiver.reader.stream().peer_addr()
    }

    /// Sets the longest message that is taken, tensors included, in bytes. Without this call 64 GiB. For its
    /// tensors the domain has to have memory in any case; the rest may take 1 GiB.
    pub fn set_max_message_bytes(&mut self, max_bytes: u64) {
        self.receiver.max_message_bytes = max_bytes;
    }

    /// Sets how long the other machine may be silent before it is given up: it is off, or nothing reaches it.
    /// Without this call 30 seconds; less than two seconds count as two while nothing is under way to it.
    ///
    /// A machine that runs answers, whatever its program does. Where a network may fail for longer and come
    /// back, set more.
    ///
    /// # Errors
    /// The system's, when the connection has failed, and when it does not take so long a time (18 hours).
    pub fn set_peer_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        let patience = Patience::set(self.sender.writer.stream(), timeout)?;
        self.sender.writer.set_patience(patience);
        self.receiver.reader.set_patience(patience);
        Ok(())
    }

    /// Both halves, each for a thread of its own.
    #[must_use]
    pub fn split(self) -> (RemoteSender<S>, RemoteReceiver<R>) {
        (self.sender, self.receiver)
    }
}

impl<S: Serialize, R> Connection<S, R> {
    /// As [`RemoteSender::send`].
    ///
    /// # Blocking
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub fn send(&mut self, value: S) -> Result<(), SendError<S>> {
        self.sender.send(value)
    }
}

impl<S, R> Connection<S, R> {
    pub(crate) fn send_borrowed(&mut self, value: &S) -> Result<(), SendErrorKind>
    where
        S: Serialize,
    {
        self.sender.send_borrowed(value)
    }

    /// Ends the connection without a goodbye, because the two sides may not agree any more on what has
    /// arrived.
    pub(crate) fn abandon(&mut self) {
        if check_process(&self.sender.fork_detector).is_ok() {
            self.sender.is_broken = true;
            self.receiver.state = State::Broken;
            // It may have ended by itself.
            let _ = self.sender.writer.stream().shutdown(Shutdown::Both);
        }
    }

    /// Whether a drop leaves something unsent that the other side waits for, so that it says no goodbye.
    pub(crate) fn set_unfinished(&mut self, is_unfinished: bool) {
        self.sender.is_unfinished = is_unfinished;
    }
}

impl<S, R: DeserializeOwned> Connection<S, R> {
    /// As [`RemoteReceiver::recv`].
    ///
    /// # Blocking
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub fn recv(&mut self) -> Result<R, RecvError> {
        self.receiver.recv()
    }

    /// As [`RemoteReceiver::recv_timeout`].
    ///
    /// # Blocking
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<R, RecvError> {
        self.receiver.recv_timeout(timeout)
    }
}

impl<S: Serialize> RemoteSender<S> {
    /// Sends a value to the other side.
    ///
    /// `Ok` says that this machine's kernel has it, and not that the other side has received it.
    ///
    /// # Blocking
    /// While the other side does not receive and the kernel's buffers are full, however long that is.
    ///
    /// # Errors
    /// [`SendError`], which gives the value back.
    pub fn send(&mut self, value: S) -> Result<(), SendError<S>> {
        match self.send_borrowed(&value) {
            Ok(()) => Ok(()),
            Err(kind) => Err(SendError::new(value, kind)),
        }
    }

    fn send_borrowed(&mut self, value: &S) -> Result<(), SendErrorKind> {
        check_process(&self.fork_detector)?;
        if self.is_broken {
            return Err(ConnectionError::Broken.into());
        }
        let writer = &mut self.writer;
        let sent = with_encoded(&self.heap, value, |payload, handles| {
            message::write(writer, payload, handles)?;
            // What was given away is gone.
            handles.clear();
            Ok(())
        });
        self.is_broken = matches!(sent, Err(SendErrorKind::Connection(_)));
        sent
    }
}

impl<S> RemoteSender<S> {
    /// Says goodbye. Dropping a sender does it too, as far as it takes no time.
    ///
    /// # Blocking
    /// As [`RemoteSender::send`].
    ///
    /// # Errors
    /// [`ConnectionError`].
    pub fn close(mut self) -> Result<(), ConnectionError> {
        check_process(&self.fork_detector)?;
        self.say_goodbye()
    }

    fn say_goodbye(&mut self) -> Result<(), ConnectionError> {
        if std::mem::replace(&mut self.is_broken, true) {
            return Err(ConnectionError::Broken);
        }
        message::write_goodbye(&mut self.writer)
    }
}

impl<S> Drop for RemoteSender<S> {
    fn drop(&mut self) {
        // A copy of somebody else's.
        if check_process(&self.fork_detector).is_err() {
            return;
        }
        if !self.is_broken && !self.is_unfinished {
            // Whoever is not told finds the connection lost.
            self.writer.set_deadline(Instant::now().checked_add(GOODBYE));
            let _ = self.say_goodbye();
        }
        let _ = self.writer.stream().shutdown(Shutdown::Write);
    }
}

impl<R: DeserializeOwned> RemoteReceiver<R> {
    /// Receives the next value that the other side has sent.
    ///
    /// # Blocking
    /// Until there is one, or the other side is gone. In the middle of a message for at most 60 seconds
    /// without a byte.
    ///
    /// # Errors
    /// [`RecvError`].
    pub fn recv(&mut self) -> Result<R, RecvError> {
        self.receive(None)
    }

    /// As [`RemoteReceiver::recv`], waiting for at most `timeout` for the beginning of a value.
    ///
    /// # Blocking
    /// For at most `timeout`, and then as long as a value takes that has begun to arrive.
    ///
    /// # Errors
    /// [`RecvError`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<R, RecvError> {
        self.receive(Some(timeout))
    }

    fn receive(&mut self, timeout: Option<Duration>) -> Result<R, RecvError> {
        check_process(&self.fork_detector)?;
        let outcome = self.receive_or_fail(timeout);
        if matches!(outcome, Err(RecvError::Connection(_))) {
            self.state = State::Broken;
        }
        outcome
    }

    fn receive_or_fail(&mut self, timeout: Option<Duration>) -> Result<R, RecvError> {
        match self.state {
            State::Open => {}
            State::Ended => return Err(RecvError::Disconnected),
            State::Broken => return Err(ConnectionError::Broken.into()),
        }
        let head = match self.waiting.take() {
            Some(head) => head,
            None if !self.reader.wait(timeout)? => return Err(RecvError::TimedOut),
            None => match Head::read(&mut self.reader, self.max_message_bytes)? {
                Some(head) => head,
                None => {
                    self.state = State::Ended;
                    return Err(RecvError::Disconnected);
                }
            },
        };
        let blocks = match head.allocate(&self.heap) {
            Ok(blocks) => blocks,
            Err(error) => {
                self.waiting = Some(head);
                return Err(RecvError::Memory(error));
            }
        };
        let mut message = head.read_message(&mut self.reader, blocks, &self.heap)?;
        Ok(decode(&mut message)?)
    }
}

impl<S> fmt::Debug for RemoteSender<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peer = self.writer.stream().peer_addr().ok();
        f.debug_struct("RemoteSender").field("peer", &peer).field("is_broken", &self.is_broken).finish()
    }
}

impl<R> fmt::Debug for RemoteReceiver<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peer = self.reader.stream().peer_addr().ok();
        f.debug_struct("RemoteReceiver").field("peer", &peer).field("state", &self.state).finish()
    }
}
