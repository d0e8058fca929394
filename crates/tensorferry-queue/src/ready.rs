//! Waiting for a queue without a thread of one's own: in a task, or by a descriptor.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tensorferry_os::event::EventFd;
use tensorferry_storage::{Awaited, Ring};

use crate::reactor::Registration;

/// Ready once a ring has had what is awaited. Another one may have been faster.
pub(crate) struct Ready<'a> {
    ring: &'a Arc<Ring>,
    awaited: Awaited,
    registration: Option<Registration>,
}

impl<'a> Ready<'a> {
    pub(crate) fn new(ring: &'a Arc<Ring>, awaited: Awaited) -> Self {
        Self { ring, awaited, registration: None }
    }
}

impl Future for Ready<'_> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let waker = context.waker();
        match &self.registration {
            Some(registration) => registration.poll(waker).map(Ok),
            None if self.ring.has(self.awaited) => Poll::Ready(Ok(())),
            None => match Registration::new(self.ring, self.awaited, waker) {
                Ok(registration) => {
                    self.registration = Some(registration);
                    Poll::Pending
                }
                Err(error) => Poll::Ready(Err(error)),
            },
        }
    }
}

/// A descriptor that is readable when a queue has something to get, for poll(2), epoll(7) and the event
/// loops that are made of them. [`Receiver::ready_fd`](crate::Receiver::ready_fd) makes one; likewise
/// [`leases_ready_fd`](crate::Receiver::leases_ready_fd) for a value that can be leased and
/// [`room_ready_fd`](crate::Sender::room_ready_fd) for room.
///
/// When it is readable, get with `get_nowait` until that says [`Empty`](crate::GetError::Empty), and then
/// call [`rearm`](Self::rearm). It stays readable until then; nothing has to be read from it. It may be
/// readable although there is nothing, because another receiver was faster.
///
/// While it exists, this process counts as one that can receive, as while it has the receiver; of one for
/// room, as one that can send.
///
/// ```
/// use std::os::fd::AsFd;
///
/// use tensorferry_queue::{GetError, channel};
/// # use tensorferry_os::event::poll_readable;
///
/// let (sender, receiver) = channel(8)?;
/// let ready = receiver.ready_fd()?;
/// std::thread::spawn(move || sender.put(7)); // or another process
/// let end = loop {
///     poll_readable(&[ready.as_fd()], None)?; // an event loop does this for many descriptors
///     match receiver.get_nowait() {
///         Ok(number) => assert_eq!(number, 7),
///         Err(GetError::Empty) => ready.rearm()?,
///         Err(end) => break end,
///     }
/// };
/// assert!(matches!(end, GetError::Disconnected));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// In tokio, where [`get_async`](crate::Receiver::get_async) is the simpler way, it goes into an `AsyncFd`:
///
/// ```
/// use tensorferry_queue::{GetError, channel};
/// use tokio::io::unix::AsyncFd;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (sender, receiver) = channel(8)?;
/// let ready = AsyncFd::new(receiver.ready_fd()?)?;
/// std::thread::spawn(move || sender.put(7));
/// let number = loop {
///     let mut guard = ready.readable().await?;
///     match receiver.get_nowait() {
///         Err(GetError::Empty) => {
///             ready.get_ref().rearm()?;
///             guard.clear_ready();
///         }
///         got => break got?,
///     }
/// };
/// assert_eq!(number, 7);
/// # Ok(())
/// # }
/// ```
pub struct ReadyFd {
    event: Arc<Event>,
    ring: Arc<Ring>,
    awaited: Awaited,
    registration: Mutex<Option<Registration>>,
}

/// A descriptor that is woken as a task is.
struct Event(EventFd);

impl Wake for Event {
    fn wake(self: Arc<Self>) {
        self.0.signal();
    }
}

impl ReadyFd {
    pub(crate) fn new(ring: &Arc<Ring>, awaited: Awaited) -> io::Result<Self> {
        let event = Arc::new(Event(EventFd::new()?));
        let ready = Self { event, ring: Arc::clone(ring), awaited, registration: Mutex::default() };
        ready.rearm()?;
        Ok(ready)
    }

    /// Makes it unreadable until the queue has what it is for. Where it has something already, that is at
    /// once.
    ///
    /// # Errors
    /// The system's, when no thread could be started to wait for the queue; one waits for all of a process.
    pub fn rearm(&self) -> io::Result<()> {
        let mut registration = self.registration.lock().unwrap_or_else(PoisonError::into_inner);
        // The one before wakes nobody any more when the event is cleared.
        *registration = None;
        self.event.0.clear();
        let waker = Waker::from(Arc::clone(&self.event));
        *registration = Some(Registration::new(&self.ring, self.awaited, &waker)?);
        Ok(())
    }
}

impl AsFd for ReadyFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.0.as_fd()
    }
}

/// For event loops that ask for it, as `AsyncFd` of tokio does.
#[expect(clippy::disallowed_types, reason = "the trait has it")]
impl AsRawFd for ReadyFd {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for ReadyFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadyFd").field("fd", &self.as_fd()).field("awaited", &self.awaited).finish()
    }
}
