//! The life of a worker: it takes one task after another until there are no more.

use serde::{Deserialize, Serialize};
use tensorferry_reduce::{EncodeError, with_encoded_behind};
use tensorferry_spawn::hidden::{Send, SendError, Task, TaskFailure};
use tensorferry_spawn::{BoxedError, func};
use tensorferry_storage::{Deadline, IncomingMessage, Lease, OutgoingHandles, RingPutError, RingTakeError};

use crate::end::End;
use crate::head::{AnswerHead, Kind, TASK_HEAD_LEN_BYTES, TaskHead};

/// What a worker gets when it is started.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The worker's place in its pool, by which its answers are known.
    pub(crate) place: usize,
    /// One for each initializer. Each has one task, which is called before all others.
    pub(crate) initial: Vec<End>,
    pub(crate) tasks: End,
    pub(crate) answers: End,
    pub(crate) max_tasks: Option<usize>,
    /// How often a task may be delivered before it is given up.
    pub(crate) max_tries: u16,
}

/// Why a worker ends before the tasks do.
enum Stop {
    /// The pool is gone, or terminated.
    Orphaned,
    Failed(BoxedError),
}

impl From<RingPutError> for Stop {
    fn from(error: RingPutError) -> Self {
        match error {
            RingPutError::Closed | RingPutError::NoReceivers | RingPutError::PeerDied => Self::Orphaned,
            error => Self::Failed(error.into()),
        }
    }
}

/// The function that a worker's process runs.
#[func(crate = tensorferry_spawn)]
pub(crate) fn pool_worker(index: usize, order: Order) -> Result<(), BoxedError> {
    let Order { place, initial, tasks, answers, max_tasks, max_tries } = order;
    let worker = Worker { place, index, tasks, answers, max_tries };
    initial.iter().try_for_each(|initial| worker.initialize(initial))?;
    match worker.serve(max_tasks) {
        Ok(()) | Err(Stop::Orphaned) => Ok(()),
        Err(Stop::Failed(error)) => Err(error),
    }
}

struct Worker {
    place: usize,
    /// What the functions get as their first argument.
    index: usize,
    tasks: End,
    answers: End,
    max_tries: u16,
}

impl Worker {
    fn initialize(&self, initial: &End) -> Result<(), BoxedError> {
        let mut message = IncomingMessage::default();
        let ring = initial.ring();
        ring.take_into(&mut message, tensorferry_storage::Consumers::Single, Deadline::Now)?;
        let head = TaskHead::read(&message.payload).ok_or("the initializer's message is none")?;
        let mut nowhere = |_: &[u8], _: &mut OutgoingHandles| Ok(());
        match self.call(head, message, &[], &mut nowhere) {
            Ok(()) | Err(TaskFailure::Unwanted(_)) => Ok(()),
            Err(TaskFailure::Report(report)) => Err(format!("the initializer failed: {report:#}").into()),
        }
    }

    fn serve(&self, max_tasks: Option<usize>) -> Result<(), Stop> {
        self.say(self.head(Kind::Ready))?;
        let mut n_begun = 0;
        while max_tasks.is_none_or(|most| n_begun < most) {
            match self.tasks.ring().take_leased(Deadline::Never) {
                Ok((message, lease)) => n_begun += usize::from(self.work(message, lease)?),
                Err(RingTakeError::Closed | RingTakeError::NoSenders | RingTakeError::PeerDied) => break,
                Err(error) => return Err(Stop::Failed(error.into())),
            }
        }
        Ok(())
    }

    fn head(&self, kind: Kind) -> AnswerHead {
        AnswerHead::of_worker(self.place, kind)
    }

    fn say(&self, head: AnswerHead) -> Result<(), RingPutError> {
        self.answers.ring().put(&head.to_bytes(), OutgoingHandles::new(), Deadline::Never)
    }

    /// Answers one task, and returns whether it called the function. The lease keeps the task until then: if
    /// this process dies, another worker gets it.
    fn work(&self, message: IncomingMessage, lease: Lease) -> Result<bool, Stop> {
        let Some(task) = TaskHead::read(&message.payload) else {
            return Err(Stop::Failed("a task has no head".into()));
        };
        let head = |kind| AnswerHead { id: task.id, deliveries: lease.deliveries(), ..self.head(kind) };
        let is_begun = lease.deliveries() <= self.max_tries;
        if !is_begun {
            self.say(head(Kind::GivenUp))?;
        } else {
            self.say(head(Kind::Begun))?;
            let ring = self.answers.ring();
            let mut send = |payload: &[u8], handles: &mut OutgoingHandles| {
                ring.put_from(payload, handles, Deadline::Never).map_err(SendError::Put)
            };
            match self.call(task, message, &head(Kind::Value).to_bytes(), &mut send) {
                Ok(()) => {}
                Err(TaskFailure::Unwanted(error)) => return Err(error.into()),
                Err(TaskFailure::Report(report)) => {
                    let head = head(Kind::Raised).to_bytes();
                    let said = with_encoded_behind(ring.heap(), &head, &*report, send);
                    said.map_err(|error| match error {
                        SendError::Put(error) => Stop::from(error),
                        SendError::Encode(error) => Stop::from(error),
                    })?;
                }
            }
        }
        // Only a process that was declared dead has lost it, and such a one is about to end.
        lease.ack().map(|()| is_begun).map_err(|error| Stop::Failed(error.into()))
    }

    fn call<'a>(
        &'a self,
        task: TaskHead,
        message: IncomingMessage,
        head: &'a [u8],
        send: &'a mut Send<'a>,
    ) -> Result<(), TaskFailure> {
        let heap = self.tasks.ring().heap();
        let (worker, head_len_bytes) = (self.index, TASK_HEAD_LEN_BYTES);
        Task { worker, heap, message, head_len_bytes, head, send }.call(task.key)
    }
}

impl From<EncodeError> for Stop {
    fn from(error: EncodeError) -> Self {
        Self::Failed(error.into())
    }
}
