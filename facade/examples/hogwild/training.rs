//! The parent's side of a training: it sets up the shared memory, starts the workers, and watches.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use tensorferry::reduce::bytes_copied;
use tensorferry::{GetError, ProcessContext, Queue, SharedTensor, Tensor, start_processes};

use crate::digits::Digits;
use crate::exchange::{Exchange, Message};
use crate::network::{Score, Workspace};
use crate::worker::{Account, Job, Recipe, train};

/// How often the parent looks at the progress while the workers train.
const GLANCE: Duration = Duration::from_millis(50);

/// Where the parameters are while they are trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Shared,
    ByValue,
}

/// What came out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) processes: usize,
    /// Of the images that were held out.
    pub(crate) accuracy: f64,
    /// From the moment that all workers were ready to the moment that the last of them had finished.
    pub(crate) samples_per_second: f64,
    /// By the transport, in all processes together.
    pub(crate) bytes_copied: u64,
    /// By workers, for themselves.
    pub(crate) bytes_snapshot: u64,
}

/// Trains with so many processes. `on_epoch` is told about every epoch, in order, soon after it ends.
pub(crate) fn run(
    digits: &Digits,
    recipe: Recipe,
    processes: usize,
    transport: Transport,
    mut on_epoch: impl FnMut(usize, Score) -> anyhow::Result<()>,
) -> anyhow::Result<Outcome> {
    let copied_before = bytes_copied();
    let mut server = Server::new(recipe, processes, transport)?;
    let messages = Queue::new(2 * processes)?;
    let start = Queue::new(processes)?;
    let history = SharedTensor::zeros([recipe.epochs, 3])?;
    let job = Job {
        recipe,
        examples: digits.training.clone(),
        exchange: server.exchange(&messages, processes),
        next_step: SharedTensor::zeros([1])?,
        history: history.clone(),
        messages: messages.clone(),
        start: start.clone(),
    };
    let mut context = start_processes(train, (job,), processes)?;

    for _ in 0..processes {
        next_message(&messages, &mut context, || Ok(()))?;
    }
    let begin = Instant::now();
    for rank in 0..processes {
        server.send_parameters(rank)?;
        start.put(())?;
    }
    let mut news = News { history, n_images: digits.training.len(), n_told: 0 };
    let mut n_done = 0;
    while n_done < processes {
        match next_message(&messages, &mut context, || news.tell(&mut on_epoch))? {
            Message::Ready => {}
            Message::Change { rank, change } => {
                server.add(&change)?;
                server.send_parameters(rank)?;
            }
            Message::Done => n_done += 1,
        }
    }
    let seconds = begin.elapsed().as_secs_f64();

    let accounts: Vec<Account> = context.into_values()?;
    news.tell(&mut on_epoch)?;
    let parameters = server.into_parameters();
    let score =
        Workspace::new(recipe.network, digits.held_out.len()).evaluate(&parameters, &digits.held_out)?;
    Ok(Outcome {
        processes,
        accuracy: score.accuracy(),
        samples_per_second: (recipe.epochs * digits.training.len()) as f64 / seconds,
        bytes_copied: accounts.iter().map(|account| account.bytes_copied).sum::<u64>() + bytes_copied()
            - copied_before,
        bytes_snapshot: accounts.iter().map(|account| account.bytes_snapshot).sum(),
    })
}

/// Waits for a message, and glances at the progress and at the processes meanwhile: one that fails sends
/// nothing more.
fn next_message(
    messages: &Queue<Message>,
    context: &mut ProcessContext<Account>,
    mut glance: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Message> {
    loop {
        match messages.get_timeout(GLANCE) {
            Ok(message) => return Ok(message),
            Err(GetError::Empty | GetError::PeerDied) => {
                context.join_timeout(Duration::ZERO)?;
                glance()?;
            }
            Err(error) => return Err(error).context("no message from the workers"),
        }
    }
}

/// The epochs that are complete.
struct News {
    history: SharedTensor<f64>,
    n_images: usize,
    n_told: usize,
}

impl News {
    fn tell(&mut self, on_epoch: &mut impl FnMut(usize, Score) -> anyhow::Result<()>) -> anyhow::Result<()> {
        for row in self.history.to_vec().chunks_exact(3).skip(self.n_told) {
            let [loss, n_right, n_images] = [row[0], row[1], row[2]];
            if n_images < self.n_images as f64 {
                break;
            }
            self.n_told += 1;
            on_epoch(self.n_told, Score { loss, n_right, n_images })?;
        }
        Ok(())
    }
}

/// Who has the parameters.
enum Server {
    /// All processes.
    Shared(SharedTensor<f32>),
    /// The parent.
    ByValue { parameters: Vec<f32>, to_workers: Vec<Queue<Tensor<f32>>> },
}

impl Server {
    fn new(recipe: Recipe, processes: usize, transport: Transport) -> anyhow::Result<Self> {
        let parameters = recipe.network.initial(recipe.seed);
        Ok(match transport {
            Transport::Shared => Self::Shared(SharedTensor::from_slice(&parameters, [parameters.len()])?),
            Transport::ByValue => {
                let to_workers = (0..processes).map(|_| Queue::new(2)).collect::<Result<_, _>>()?;
                Self::ByValue { parameters, to_workers }
            }
        })
    }

    fn exchange(&self, messages: &Queue<Message>, n_workers: usize) -> Exchange {
        match self {
            Self::Shared(parameters) => Exchange::Shared { parameters: parameters.clone(), n_workers },
            Self::ByValue { to_workers, .. } => {
                Exchange::ByValue { changes: messages.clone(), parameters: to_workers.clone() }
            }
        }
    }

    /// Workers that share the parameters have them already.
    fn send_parameters(&self, rank: usize) -> anyhow::Result<()> {
        if let Self::ByValue { parameters, to_workers } = self {
            let worker = to_workers.get(rank).context("a change from a worker that there is not")?;
            worker.put(Tensor::from(parameters.clone()))?;
        }
        Ok(())
    }

    fn add(&mut self, change: &Tensor<f32>) -> anyhow::Result<()> {
        if let Self::ByValue { parameters, .. } = self {
            parameters
                .iter_mut()
                .zip(change.as_slice()?)
                .for_each(|(parameter, change)| *parameter += change);
        }
        Ok(())
    }

    fn into_parameters(self) -> Vec<f32> {
        match self {
            Self::Shared(parameters) => parameters.to_vec(),
            Self::ByValue { parameters, .. } => parameters,
        }
    }
}
