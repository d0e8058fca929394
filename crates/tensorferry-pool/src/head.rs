//! What comes before the arguments of a task, and before the value of an answer.

use tensorferry_spawn::hidden::{TASK_KEY_LEN_BYTES, TaskKey};

/// The length of a task's head, in bytes: `id:64 | key`.
pub(crate) const TASK_HEAD_LEN_BYTES: usize = 8 + TASK_KEY_LEN_BYTES;

/// The length of an answer's head, in bytes: `id:64 | worker:32 | deliveries:16 | kind:8`.
pub(crate) const ANSWER_HEAD_LEN_BYTES: usize = 15;

/// Which task it is, and what it calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskHead {
    pub(crate) id: u64,
    pub(crate) key: TaskKey,
}

/// What a worker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It has initialised itself, and takes tasks from here on. Of no task.
    Ready,
    /// It calls the function.
    Begun,
    /// The value follows.
    Value,
    /// A report of the failure follows.
    Raised,
    /// It does not call the function, because too many workers have died over it.
    GivenUp,
    /// It has ended. The pool's process says so, after everything that the worker itself has said.
    Ended,
}

/// Who says what about which task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnswerHead {
    pub(crate) id: u64,
    pub(crate) worker: u32,
    /// How often the task was delivered, this time included.
    pub(crate) deliveries: u16,
    pub(crate) kind: Kind,
}

impl TaskHead {
    pub(crate) fn to_bytes(self) -> [u8; TASK_HEAD_LEN_BYTES] {
        let mut bytes = [0; TASK_HEAD_LEN_BYTES];
        let (id, key) = bytes.split_at_mut(8);
        id.copy_from_slice(&self.id.to_le_bytes());
        key.copy_from_slice(&self.key.to_bytes());
        bytes
    }

    /// `None` for a payload that is no task's.
    pub(crate) fn read(payload: &[u8]) -> Option<Self> {
        let (id, rest) = payload.split_first_chunk()?;
        let key = rest.first_chunk()?;
        Some(Self { id: u64::from_le_bytes(*id), key: TaskKey::from_bytes(*key) })
    }
}

impl AnswerHead {
    /// Of no task.
    pub(crate) fn of_worker(index: usize, kind: Kind) -> Self {
        Self { id: 0, worker: u32::try_from(index).unwrap_or(u32::MAX), deliveries: 0, kind }
    }

    pub(crate) fn to_bytes(self) -> [u8; ANSWER_HEAD_LEN_BYTES] {
        let kind = match self.kind {
            Kind::Ready => 0,
            Kind::Begun => 1,
            Kind::Value => 2,
            Kind::Raised => 3,
            Kind::GivenUp => 4,
            Kind::Ended => 5,
        };
        let [a, b, c, d, e, f, g, h] = self.id.to_le_bytes();
        let [i, j, k, l] = self.worker.to_le_bytes();
        let [m, n] = self.deliveries.to_le_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l, m, n, kind]
    }

    /// `None` for a payload that is no answer.
    pub(crate) fn read(payload: &[u8]) -> Option<Self> {
        let (id, rest) = payload.split_first_chunk()?;
        let (worker, rest) = rest.split_first_chunk()?;
        let (deliveries, rest) = rest.split_first_chunk()?;
        let kind = match rest.first()? {
            0 => Kind::Ready,
            1 => Kind::Begun,
            2 => Kind::Value,
            3 => Kind::Raised,
            4 => Kind::GivenUp,
            5 => Kind::Ended,
            _ => return None,
        };
        Some(Self {
            id: u64::from_le_bytes(*id),
            worker: u32::from_le_bytes(*worker),
            deliveries: u16::from_le_bytes(*deliveries),
            kind,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_survive_their_bytes_and_shorter_payloads_are_none() {
        let kinds = [Kind::Ready, Kind::Begun, Kind::Value, Kind::Raised, Kind::GivenUp, Kind::Ended];
        for kind in kinds {
            let head =
                AnswerHead { id: 0x1122_3344_5566_7788, worker: 0x0102_0304, deliveries: 0x0506, kind };
            let bytes = head.to_bytes();
            assert_eq!(AnswerHead::read(&bytes), Some(head));
            assert!((0..bytes.len()).all(|len| AnswerHead::read(&bytes[..len]).is_none()));
        }
        let key = TaskKey::from_bytes([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        let bytes = TaskHead { id: 7, key }.to_bytes();
        assert_eq!(TaskHead::read(&bytes), Some(TaskHead { id: 7, key }));
        assert!((0..bytes.len()).all(|len| TaskHead::read(&bytes[..len]).is_none()));
    }

    #[test]
    fn an_unknown_kind_is_no_answer() {
        let mut bytes = AnswerHead::of_worker(7, Kind::Ended).to_bytes();
        bytes[ANSWER_HEAD_LEN_BYTES - 1] = 6;
        assert_eq!(AnswerHead::read(&bytes), None);
    }
}
