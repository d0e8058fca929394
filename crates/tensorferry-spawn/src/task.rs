//! One call of a registered function by a worker that makes many, as those of `tensorferry-pool`.
//!
//! The arguments of a task and its value are parts of messages that other code sends and takes. Only the
//! function knows their types, so it is the registry's entry that reads the one and writes the other.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde::de::DeserializeOwned;
use tensorferry_process::{Report, catch};
use tensorferry_reduce::{EncodeError, decode_behind, with_encoded_behind};
use tensorferry_storage::{Heap, IncomingMessage, OutgoingHandles, RingPutError};

use crate::call::__tensorferry_call;
use crate::error::StartErrorKind;
use crate::function::{BoxedError, Function};
use crate::registry::{self, FUNCTIONS, Registered, Signature};

/// Identifies a registered function to another process of the same program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskKey {
    /// Its place in the table of functions.
    place: u32,
    /// A hash of its name and its types, for another build of the program.
    signature: u64,
}

/// The length of [`TaskKey::to_bytes`], in bytes.
pub const TASK_KEY_LEN_BYTES: usize = 12;

/// Sends a payload with its handles, and takes the handles if it does.
pub type Send<'a> = dyn FnMut(&[u8], &mut OutgoingHandles) -> Result<(), SendError> + 'a;

/// A task that a worker has taken.
#[allow(missing_debug_implementations, reason = "it holds a closure")]
pub struct Task<'a> {
    /// The worker's index, the first argument of the function.
    pub worker: usize,
    /// Where the value goes.
    pub heap: &'a Heap,
    /// The message with the arguments.
    pub message: IncomingMessage,
    /// What comes before the arguments, in bytes.
    pub head_len_bytes: usize,
    /// What comes before the value.
    pub head: &'a [u8],
    /// Sends the value.
    pub send: &'a mut Send<'a>,
}

/// Why a task has sent no value.
#[derive(Debug)]
pub enum TaskFailure {
    /// The function was not called, failed or panicked, or its value cannot be sent.
    Report(Box<Report>),
    /// Nobody takes the value.
    Unwanted(RingPutError),
}

/// Why a value was not sent.
#[derive(Debug)]
pub enum SendError {
    /// It cannot be encoded.
    Encode(EncodeError),
    /// The ring refused it.
    Put(RingPutError),
}

impl From<EncodeError> for SendError {
    fn from(error: EncodeError) -> Self {
        Self::Encode(error)
    }
}

impl TaskKey {
    fn of(place: u32, signature: &Signature) -> Self {
        let mut hasher = DefaultHasher::new();
        (signature.name(), signature.arguments(), signature.value()).hash(&mut hasher);
        Self { place, signature: hasher.finish() }
    }

    /// The key of a function of this program.
    ///
    /// # Errors
    /// [`StartErrorKind::NotRegistered`].
    pub fn find<F: Function<Args>, Args>(function: &F) -> Result<Self, StartErrorKind> {
        let (place, signature) = registry::place_of(function)?;
        Ok(Self::of(place, &signature))
    }

    /// As it stands in a message.
    #[must_use]
    pub fn to_bytes(self) -> [u8; TASK_KEY_LEN_BYTES] {
        let mut bytes = [0; TASK_KEY_LEN_BYTES];
        let (place, signature) = bytes.split_at_mut(4);
        place.copy_from_slice(&self.place.to_le_bytes());
        signature.copy_from_slice(&self.signature.to_le_bytes());
        bytes
    }

    /// From a message.
    #[must_use]
    pub fn from_bytes(bytes: [u8; TASK_KEY_LEN_BYTES]) -> Self {
        let [a, b, c, d, signature @ ..] = bytes;
        Self { place: u32::from_le_bytes([a, b, c, d]), signature: u64::from_le_bytes(signature) }
    }

    /// The function in this process. It is searched for where its place is another one, as in another build.
    fn resolve(self) -> Option<&'static Registered> {
        let has_signature =
            |function: &&Registered| Self::of(self.place, &function.signature()).signature == self.signature;
        let there = usize::try_from(self.place).ok().and_then(|place| FUNCTIONS.get(place));
        there.filter(has_signature).or_else(|| FUNCTIONS.iter().find(has_signature))
    }
}

impl Task<'_> {
    /// Calls the function of this key.
    ///
    /// # Errors
    /// [`TaskFailure`].
    pub fn call(self, key: TaskKey) -> Result<(), TaskFailure> {
        match key.resolve() {
            Some(function) => function.run_task(self),
            None => {
                let text = "no function with its name and types is registered in the worker";
                Err(TaskFailure::Report(Box::new(Report::refused(text))))
            }
        }
    }

    /// Reads the arguments, calls the function, and sends its value.
    ///
    /// # Errors
    /// [`TaskFailure`].
    pub fn run<F, Args>(mut self, function: F) -> Result<(), TaskFailure>
    where
        F: Function<Args>,
        Args: DeserializeOwned,
    {
        let args = decode_behind(self.head_len_bytes, &mut self.message).map_err(|error| {
            let text = format!("its arguments cannot be read: {error}");
            TaskFailure::Report(Box::new(Report::refused(&text)))
        })?;
        let mut unwanted = None;
        // A value whose `Serialize` panics costs no worker either.
        let done = catch(|| {
            let value = __tensorferry_call(function, self.worker, args)?;
            with_encoded_behind(self.heap, self.head, &value, self.send).map_err(|error| {
                let error: BoxedError = match error {
                    SendError::Encode(error) => error.into(),
                    SendError::Put(RingPutError::Storage(error)) => error,
                    SendError::Put(
                        error @ (RingPutError::TooManyHandles(_) | RingPutError::NotRepeatable),
                    ) => error.into(),
                    SendError::Put(error) => {
                        unwanted = Some(error);
                        return "nobody takes its value".into();
                    }
                };
                format!("its value cannot be sent: {error}").into()
            })
        });
        match (done, unwanted) {
            (Ok(()), _) => Ok(()),
            (Err(_), Some(error)) => Err(TaskFailure::Unwanted(error)),
            (Err(report), None) => Err(TaskFailure::Report(report)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_their_bytes() {
        let key = TaskKey { place: 0x0102_0304, signature: 0x1122_3344_5566_7788 };
        assert_eq!(TaskKey::from_bytes(key.to_bytes()), key);
    }

    #[test]
    fn a_key_that_nothing_has_is_refused() {
        let key = TaskKey { place: 0, signature: 0 };
        assert!(key.resolve().is_none());
    }
}
