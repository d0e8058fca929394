//! From a queue of one machine into a queue of another.

use std::collections::VecDeque;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tensorferry_queue::{GetError, Lease, LeaseLostError, PutError, PutErrorKind, Receiver, Sender};

use crate::connection::Connection;
use crate::error::{RecvError, SendErrorKind};

/// The most messages that are on their way, or wait for the other side to say that it has them.
const WINDOW: usize = 8;

/// What [`feed`] answers: a message is in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept(());

/// Why not all of a queue was forwarded. What the other side has not confirmed is in the queue again. A
/// connection that is dropped after it says no goodbye: the other side finds it lost, and not ended.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// Nothing can be got from the queue; it may have no leases.
    #[error("the queue that is forwarded has failed: {0}")]
    Queue(GetError),
    /// A message was not sent. Where it cannot be, for what is in it, all before it are confirmed and it is
    /// the first one in the queue: take it out, and call [`forward`] again.
    #[error("a message was not forwarded: {0}")]
    Send(SendErrorKind),
    /// The other side did not confirm what was sent, or has ended.
    #[error("what was forwarded was not confirmed: {0}")]
    Confirm(RecvError),
    /// This process was declared dead, and its leases have gone to others.
    #[error(transparent)]
    Lease(#[from] LeaseLostError),
}

tensorferry_storage::debug_as_display!(ForwardError);

/// Why not all that came was put into the queue.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum FeedError {
    /// Nothing was received. After [`RecvError::Memory`] the same message can be received once there is
    /// memory: call [`feed`] again. After every other error the connection has ended without a goodbye, and
    /// what was not confirmed is in the other side's queue again.
    ///
    /// A message that this side can never take (it cannot be decoded, or is too long) comes first with each
    /// new connection, until the other side takes it out of its queue
    /// ([`Lease::deliveries`](tensorferry_queue::Lease::deliveries) tells how often it came).
    #[error(transparent)]
    Recv(#[from] RecvError),
    /// The queue takes no more, or there is no memory for its message. The message is not confirmed, so it
    /// comes back to the queue of the other side.
    #[error("the queue that is fed has failed: {0}")]
    Queue(PutErrorKind),
    /// The other side could not be told that its message is in the queue.
    #[error("a message could not be confirmed: {0}")]
    Confirm(SendErrorKind),
}

tensorferry_storage::debug_as_display!(FeedError);

/// Sends what the queue has to the other side, which [`feed`]s its own queue with it, until the queue is
/// closed and empty, or all of its senders are gone.
///
/// The queue has leases ([`channel_with_leases`](tensorferry_queue::channel_with_leases)), at least one for
/// each process that forwards; with eight of them the connection is never idle. A process that forwards the
/// queue to several machines at a time needs eight for each: one call that finds the leases with another one
/// of its process fails with [`GetError::AllLeased`].
///
/// A message is acknowledged when the other side has put it into its queue. Until then it is this process's
/// lease: when the other side, the network or this process fails, it is delivered again, to another forwarder
/// or with the next connection. So a message may arrive twice, if the confirmation was what got lost; none is
/// lost, except what this process cannot decode (as with every [`Receiver`]).
///
/// ```
/// use tensorferry_queue::{channel, channel_with_leases};
/// use tensorferry_remote::{Key, Listener, connect, feed, forward};
///
/// let key = Key::new("thirty-two random bytes, in fact")?;
/// let listener = Listener::bind("127.0.0.1:0", &key)?;
/// let address = listener.local_addr()?;
/// # let loader =
/// std::thread::spawn(move || {
///     // On the machine that makes the batches. Its workers would have clones of `sender`.
///     let (sender, receiver) = channel_with_leases::<Vec<f32>>(16, 8)?;
///     sender.put(vec![0.5; 3])?;
///     drop(sender);
///     forward(&receiver, &mut connect(address, &key)?)?;
///     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// });
/// // On the machine that trains. Its trainers would have clones of `receiver`.
/// let (sender, receiver) = channel::<Vec<f32>>(16)?;
/// feed(&mut listener.accept()?, &sender)?;
/// assert_eq!(receiver.get()?, [0.5; 3]);
/// # loader.join().unwrap()?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
///
/// # Blocking
/// Until there is no more to be forwarded. While there is nothing in the queue, that the other side has gone
/// is noticed with the next message. While the other side is unreachable, as long as the kernel tries
/// ([`Connection`]).
///
/// # Errors
/// [`ForwardError`].
pub fn forward<T>(from: &Receiver<T>, to: &mut Connection<T, Kept>) -> Result<(), ForwardError>
where
    T: Serialize + DeserializeOwned,
{
    to.set_unfinished(true);
    let outcome = forward_all(from, to);
    let is_agreed = match &outcome {
        Ok(()) | Err(ForwardError::Queue(_)) => true,
        Err(ForwardError::Send(kind)) => !matches!(kind, SendErrorKind::Connection(_)),
        Err(ForwardError::Confirm(_) | ForwardError::Lease(_)) => false,
    };
    if !is_agreed {
        to.abandon();
    }
    to.set_unfinished(outcome.is_err());
    outcome
}

/// Returns with a message unconfirmed only if the connection can be used for nothing more.
fn forward_all<T>(from: &Receiver<T>, to: &mut Connection<T, Kept>) -> Result<(), ForwardError>
where
    T: Serialize + DeserializeOwned,
{
    let (mut unconfirmed, mut end) = (VecDeque::new(), None);
    loop {
        if end.is_none() && unconfirmed.len() < WINDOW {
            // Without any to be confirmed there is nothing else to wait for.
            let next = if unconfirmed.is_empty() { from.get_leased() } else { from.get_leased_nowait() };
            match next {
                Ok(lease) => match to.send_borrowed(&*lease) {
                    Ok(()) => {
                        unconfirmed.push_back(lease);
                        continue;
                    }
                    Err(error @ SendErrorKind::Connection(_)) => {
                        // What it had confirmed before it was gone is not sent to another one.
                        while let (false, Ok(Kept(()))) =
                            (unconfirmed.is_empty(), to.recv_timeout(Duration::ZERO))
                        {
                            unconfirmed.pop_front().map(Lease::ack).transpose()?;
                        }
                        return Err(ForwardError::Send(error));
                    }
                    Err(error) => end = Some(ForwardError::Send(error)),
                },
                Err(GetError::Empty | GetError::AllLeased(_)) if !unconfirmed.is_empty() => {}
                Err(error) => end = Some(ForwardError::Queue(error)),
            }
        }
        // They are confirmed in the order in which they were sent.
        if let Some(lease) = unconfirmed.pop_front() {
            let Kept(()) = to.recv().map_err(ForwardError::Confirm)?;
            lease.ack()?;
            continue;
        }
        match end {
            None => {}
            Some(ForwardError::Queue(GetError::Closed | GetError::Disconnected)) => return Ok(()),
            Some(error) => return Err(error),
        }
    }
}

/// Puts what a [`forward`] of the other side sends into a queue, and confirms it, until the other side has no
/// more.
///
/// `Ok` says that all of the other side's queue is in this one. Where its [`forward`] has failed and the
/// connection was dropped, this call fails too.
///
/// # Blocking
/// Until the other side has no more. While the queue is full, so that the other side sends no more either.
///
/// # Errors
/// [`FeedError`].
pub fn feed<T>(from: &mut Connection<Kept, T>, into: &Sender<T>) -> Result<(), FeedError>
where
    T: Serialize + DeserializeOwned,
{
    let outcome = feed_all(from, into);
    if !matches!(outcome, Ok(()) | Err(FeedError::Recv(RecvError::Memory(_)))) {
        // A message was taken and not confirmed. The next confirmation would be taken for its.
        from.abandon();
    }
    outcome
}

fn feed_all<T>(from: &mut Connection<Kept, T>, into: &Sender<T>) -> Result<(), FeedError>
where
    T: Serialize + DeserializeOwned,
{
    loop {
        let value = match from.recv() {
            Ok(value) => value,
            Err(RecvError::Disconnected) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        into.put(value).map_err(|error: PutError<T>| FeedError::Queue(error.kind))?;
        from.send_borrowed(&Kept(())).map_err(FeedError::Confirm)?;
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tensorferry_queue::{channel, channel_with_leases};

    use super::*;
    use crate::{Key, Listener, connect};

    fn pair<T: Send + 'static>() -> (Connection<T, Kept>, Connection<Kept, T>) {
        let key = Key::new("a secret that is long enough").unwrap();
        let listener = Listener::bind("127.0.0.1:0", &key).unwrap();
        let address = listener.local_addr().unwrap();
        let there = thread::spawn(move || connect(address, &key).unwrap());
        (listener.accept().unwrap(), there.join().unwrap())
    }

    #[test]
    fn a_confirmation_is_written_as_nothing() {
        let heap = tensorferry_storage::Heap::current().unwrap();
        tensorferry_reduce::with_encoded(heap, &Kept(()), |payload, handles| {
            assert_eq!((payload, handles.len()), (&[0xC0][..], 0), "MessagePack's nil");
            Ok::<_, tensorferry_reduce::EncodeError>(())
        })
        .unwrap();
    }

    #[test]
    fn what_was_not_confirmed_goes_to_whoever_connects_next() {
        let (sender, receiver) = channel_with_leases::<u32>(64, 8).unwrap();
        (0..20).for_each(|n| sender.put(n).unwrap());
        drop(sender);
        let mut arrived = Vec::new();
        // Each takes three messages, and confirms two of them.
        for _ in 0..3 {
            let (mut here, mut there) = pair();
            let other = thread::spawn(move || {
                let mut got = Vec::new();
                for n in 0..3 {
                    got.push(there.recv().unwrap());
                    if n < 2 {
                        there.send(Kept(())).unwrap();
                    }
                }
                got
            });
            let error = forward(&receiver, &mut here).unwrap_err();
            assert!(matches!(error, ForwardError::Confirm(_) | ForwardError::Send(_)), "{error}");
            arrived.push(other.join().unwrap());
        }
        // What was confirmed comes again only if the confirmation was lost with the connection.
        let mut n_confirmed = 0;
        for got in &arrived {
            let first = got[0];
            assert!(first <= n_confirmed && first + 2 >= n_confirmed, "{arrived:?}");
            assert_eq!(*got, [first, first + 1, first + 2]);
            n_confirmed = first + 2;
        }
        let (mut here, mut there) = pair();
        let forwards = thread::spawn(move || forward(&receiver, &mut here).unwrap());
        let (theirs, values) = channel(64).unwrap();
        feed(&mut there, &theirs).unwrap();
        forwards.join().unwrap();
        drop(theirs);
        let rest: Vec<_> = values.iter().collect();
        assert!(rest[0] <= n_confirmed && rest[0] + 2 >= n_confirmed, "{rest:?} after {arrived:?}");
        assert_eq!(rest, (rest[0]..20).collect::<Vec<_>>(), "all that were not confirmed, in order");
    }

    #[test]
    fn what_cannot_be_sent_stays_first_and_the_connection_goes_on_without_it() {
        type Item = (u32, Option<Sender<u8>>);
        let (sender, receiver) = channel_with_leases::<Item>(64, 8).unwrap();
        let (end, _other) = channel::<u8>(1).unwrap();
        (0..6).for_each(|n| sender.put((n, (n == 3).then(|| end.clone()))).unwrap());
        drop(sender);
        let (mut here, mut there) = pair::<Item>();
        let (tell, told) = std::sync::mpsc::channel();
        let other = thread::spawn(move || {
            let mut got = Vec::new();
            for n in 0..3 {
                got.push(there.recv().unwrap().0);
                if n == 2 {
                    // Not before the first call returns, if it does not wait for it.
                    let _ = told.recv_timeout(Duration::from_millis(200));
                    (0..3).for_each(|_| there.send(Kept(())).unwrap());
                }
            }
            while let Ok((n, _)) = there.recv() {
                got.push(n);
                there.send(Kept(())).unwrap();
            }
            got
        });
        let error = forward(&receiver, &mut here).unwrap_err();
        tell.send(()).unwrap();
        assert!(matches!(error, ForwardError::Send(SendErrorKind::Local(_))), "{error}");
        assert_eq!(receiver.get().unwrap().0, 3, "the first one in the queue");
        forward(&receiver, &mut here).unwrap();
        drop(here);
        assert_eq!(other.join().unwrap(), [0, 1, 2, 4, 5], "each once");
    }

    #[test]
    fn a_message_that_was_taken_and_not_kept_ends_the_connection() {
        let (sender, receiver) = channel_with_leases::<u32>(64, 8).unwrap();
        (0..6).for_each(|n| sender.put(n).unwrap());
        drop(sender);
        let forwards = |(mut here, mut there): (Connection<_, Kept>, Connection<Kept, _>),
                        into: &Sender<_>| {
            let receiver = receiver.clone();
            let forwarding = thread::spawn(move || forward(&receiver, &mut here));
            let error = feed(&mut there, into).unwrap_err();
            // Another call would have its confirmations taken for that of the message that is missing.
            let again = feed(&mut there, into).unwrap_err();
            assert!(
                matches!(again, FeedError::Recv(RecvError::Connection(crate::ConnectionError::Broken))),
                "{again}"
            );
            forwarding.join().unwrap().unwrap_err();
            error
        };
        let (into, got) = channel::<u32>(64).unwrap();
        drop(got);
        let error = forwards(pair(), &into);
        assert!(matches!(error, FeedError::Queue(_)), "{error}");
        // All are still there.
        let (mut here, mut there) = pair();
        let (into, got) = channel::<u32>(64).unwrap();
        let receiver = receiver.clone();
        let forwarding = thread::spawn(move || forward(&receiver, &mut here));
        feed(&mut there, &into).unwrap();
        forwarding.join().unwrap().unwrap();
        drop(into);
        assert!(got.iter().eq(0..6));
    }
}
