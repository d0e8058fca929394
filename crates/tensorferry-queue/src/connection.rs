//! Two processes that talk to each other, over two channels.

use std::fmt;
use std::io;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tensorferry_storage::{Heap, StorageError};

use crate::wait::sealed::{Sealed, WaitsFor};
use crate::{GetError, Iter, PutError, ReadyFd, SoleReceiver, SoleSender, Source, spsc_in, wait_timeout};

/// One end of a [`pipe`]: it sends values of type `S` and receives values of type `R`. Python's
/// `multiprocessing.connection.Connection`.
///
/// There is never a second handle on it: it cannot be cloned, and sending it to another process, as an
/// argument of a function or in a message, moves it there. When an end is dropped, or its process ends, the
/// other one receives what was sent and then [`GetError::Disconnected`], or [`GetError::PeerDied`] if the
/// process died. That is Python's `EOFError`. What is sent to an end that is just being dropped may be lost.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Connection<S, R = S> {
    /// Dropped first: who was told of the end by a `recv` cannot send any more.
    receiver: SoleReceiver<R>,
    sender: SoleSender<S>,
}

/// Makes a pipe in the default domain: two ends, of which each receives what the other one sends. Python's
/// `Pipe()`. Each direction has room for `capacity_items` messages (at least one).
///
/// For `Pipe(duplex=False)` there is [`spsc`](crate::spsc).
///
/// ```
/// use tensorferry_queue::pipe;
///
/// // Here numbers one way, and texts the other way.
/// let (mut here, mut there) = pipe::<u32, String>(1)?;
/// let answers = std::thread::spawn(move || {
///     // Another process would get its end with its arguments.
///     while let Ok(number) = there.recv() {
///         there.send(format!("{number} squared is {}", number * number))?;
///     }
///     Ok::<(), tensorferry_queue::PutError<String>>(())
/// });
/// here.send(12)?;
/// assert_eq!(here.recv()?, "12 squared is 144");
/// drop(here);
/// # answers.join().unwrap()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`Queue::new`](crate::Queue::new).
#[expect(clippy::type_complexity, reason = "two ends, as a channel has")]
pub fn pipe<S, R>(capacity_items: usize) -> Result<(Connection<S, R>, Connection<R, S>), StorageError> {
    pipe_in(Heap::current()?, capacity_items)
}

/// As [`pipe`], in the domain of `heap`.
///
/// # Errors
/// As [`pipe`].
#[expect(clippy::type_complexity, reason = "two ends, as a channel has")]
pub fn pipe_in<S, R>(
    heap: &Heap,
    capacity_items: usize,
) -> Result<(Connection<S, R>, Connection<R, S>), StorageError> {
    let (sender, their_receiver) = spsc_in(heap, capacity_items)?;
    let (their_sender, receiver) = spsc_in(heap, capacity_items)?;
    Ok((Connection { sender, receiver }, Connection { sender: their_sender, receiver: their_receiver }))
}

impl<S: Serialize + DeserializeOwned, R> Connection<S, R> {
    /// Sends a value to the other end.
    ///
    /// # Blocking
    /// While the other end has `capacity_items` messages to receive. Two ends that both send without
    /// receiving wait for each other.
    ///
    /// # Errors
    /// As [`SoleSender::put`]; the error gives the value back.
    pub fn send(&mut self, value: S) -> Result<(), PutError<S>> {
        self.sender.put(value)
    }

    /// As [`Connection::send`], waiting for at most `timeout`.
    ///
    /// # Blocking
    /// As [`Connection::send`], for at most `timeout`.
    ///
    /// # Errors
    /// As [`SoleSender::put_timeout`].
    pub fn send_timeout(&mut self, value: S, timeout: Duration) -> Result<(), PutError<S>> {
        self.sender.put_timeout(value, timeout)
    }

    /// As [`Connection::send`], for a task: see [`Sender::put_async`](crate::Sender::put_async).
    ///
    /// # Errors
    /// As [`SoleSender::put_async`].
    pub async fn send_async(&mut self, value: S) -> Result<(), PutError<S>> {
        self.sender.put_async(value).await
    }

    /// As [`Connection::send`], without waiting.
    ///
    /// # Errors
    /// As [`SoleSender::put_nowait`].
    pub fn try_send(&mut self, value: S) -> Result<(), PutError<S>> {
        self.sender.put_nowait(value)
    }
}

impl<S, R: Serialize + DeserializeOwned> Connection<S, R> {
    /// Receives the next value that the other end has sent.
    ///
    /// # Blocking
    /// Until there is one, or the other end is gone.
    ///
    /// # Errors
    /// As [`SoleReceiver::get`].
    pub fn recv(&mut self) -> Result<R, GetError> {
        self.receiver.get()
    }

    /// As [`Connection::recv`], waiting for at most `timeout`.
    ///
    /// # Blocking
    /// As [`Connection::recv`], for at most `timeout`.
    ///
    /// # Errors
    /// As [`SoleReceiver::get_timeout`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<R, GetError> {
        self.receiver.get_timeout(timeout)
    }

    /// As [`Connection::recv`], for a task: see [`Receiver::get_async`](crate::Receiver::get_async).
    ///
    /// # Errors
    /// As [`SoleReceiver::get_async`].
    pub async fn recv_async(&mut self) -> Result<R, GetError> {
        self.receiver.get_async().await
    }

    /// A descriptor that is readable when there is something to receive.
    ///
    /// # Errors
    /// As [`Receiver::ready_fd`](crate::Receiver::ready_fd).
    pub fn ready_fd(&self) -> io::Result<ReadyFd> {
        self.receiver.ready_fd()
    }

    /// As [`Connection::recv`], without waiting.
    ///
    /// # Errors
    /// As [`SoleReceiver::get_nowait`].
    pub fn try_recv(&mut self) -> Result<R, GetError> {
        self.receiver.get_nowait()
    }

    /// Receives values until the other end is gone. [`Iter::finish`] tells a normal end from a failure.
    ///
    /// # Blocking
    /// Each step blocks as [`Connection::recv`] does.
    #[must_use]
    pub fn iter(&mut self) -> Iter<'_, R> {
        self.receiver.iter()
    }
}

impl<S, R> Connection<S, R> {
    /// Waits until [`Connection::recv`] would return at once, with a value or an error; false when it would
    /// not within `timeout`. Python's `poll`. For several connections there is [`wait`](crate::wait).
    ///
    /// # Blocking
    /// For at most `timeout`.
    #[must_use]
    pub fn poll(&self, timeout: Duration) -> bool {
        // Waiting for one alone ends only by news or in time.
        wait_timeout(&[&self.receiver], timeout).is_ok()
    }

    /// The two halves, so that one thread can send while another one receives.
    #[must_use]
    pub fn split(self) -> (SoleSender<S>, SoleReceiver<R>) {
        (self.sender, self.receiver)
    }

    /// Sets how long calls of this end poll before they sleep: [`SoleReceiver::set_busy_poll`].
    pub fn set_busy_poll(&self, how_long: Option<Duration>) {
        self.sender.set_busy_poll(how_long);
        self.receiver.set_busy_poll(how_long);
    }
}

impl<S, R> Source for Connection<S, R> {}

impl<S, R> Sealed for Connection<S, R> {
    fn waits_for(&self) -> WaitsFor<'_> {
        self.receiver.waits_for()
    }
}

impl<S, R> fmt::Debug for Connection<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("to_receive", &self.receiver.len())
            .field("sent", &self.sender.len())
            .field("capacity_items", &self.sender.capacity_items())
            .finish_non_exhaustive()
    }
}
