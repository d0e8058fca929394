//! Connections whose values have a type that is known at run time only.

use serde::{Deserialize, Serialize};
use tensorferry_storage::{Heap, Role, StorageError};

use crate::error::OpenError;
use crate::{AnyEnd, Receiver, Sender};

/// A [`Connection`](crate::Connection) that was received, of whatever values: what [`AnyEnd`] is for a queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AnyConnection {
    // As the fields of a `Connection`.
    receiver: AnyEnd,
    sender: AnyEnd,
}

impl AnyConnection {
    /// Makes a pipe for values of any type, as [`pipe_in`](crate::pipe_in) makes one for two types. An end
    /// may be received as `Connection` of whatever the receiver likes.
    ///
    /// # Errors
    /// As [`Queue::new`](crate::Queue::new).
    pub fn pipe_in(heap: &Heap, capacity_items: usize) -> Result<(Self, Self), StorageError> {
        let [one, two] = [AnyEnd::create_in(heap, capacity_items)?, AnyEnd::create_in(heap, capacity_items)?];
        let end = |from: &AnyEnd, to: &AnyEnd| Self {
            receiver: from.with_role(Role::RECEIVER),
            sender: to.with_role(Role::SENDER),
        };
        Ok((end(&one, &two), end(&two, &one)))
    }

    /// Its two ends, for values of these types, which are not checked.
    ///
    /// # Errors
    /// [`OpenError::Storage`] when there is no memory to map the queues.
    pub fn into_ends<S, R>(self) -> Result<(Sender<S>, Receiver<R>), OpenError> {
        Ok((self.sender.into_sender()?, self.receiver.into_receiver()?))
    }
}
