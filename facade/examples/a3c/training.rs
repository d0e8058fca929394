//! The parent's side: it sets up the shared memory, starts the actors, and watches how they fare.

use std::time::Duration;

use anyhow::Context as _;
use tensorferry::{GetError, ProcessContext, Queue, SharedTensor, rank_seed, start_processes};

use crate::actor::{Account, Episode, Job, act};
use crate::network;
use crate::random::Random;

/// The mean reward at which the problem counts as solved, and over how many episodes in a row.
pub(crate) const SOLVED: f64 = 195.0;
pub(crate) const WINDOW: usize = 100;

/// How often progress is told, in episodes.
const TOLD_EVERY: usize = 25;

/// How often the parent looks after its processes when it hears nothing.
const GLANCE: Duration = Duration::from_millis(100);

/// How far it has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) n_episodes: usize,
    pub(crate) n_steps: usize,
    pub(crate) best: usize,
    /// The mean reward of the last [`WINDOW`] episodes, or of as many as there were.
    pub(crate) mean: f64,
}

/// What came out.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) progress: Progress,
    pub(crate) is_solved: bool,
    pub(crate) episodes: Vec<Episode>,
    pub(crate) n_changes: usize,
    /// By the transport, in all processes together.
    pub(crate) bytes_copied: u64,
}

/// Lets so many actors learn until the problem is solved, or for `max_episodes`.
pub(crate) fn run(
    actors: usize,
    seed: u64,
    max_episodes: usize,
    mut tell: impl FnMut(Progress) -> anyhow::Result<()>,
) -> anyhow::Result<Outcome> {
    // The actors have the seeds from 0.
    let initial = network::initial(&mut Random::new(rank_seed(seed, actors)));
    let queue = Queue::new(2 * actors)?;
    let job = Job {
        seed,
        parameters: SharedTensor::from_slice(&initial, [initial.len()])?,
        squares: SharedTensor::zeros([initial.len()])?,
        episodes: queue.clone(),
    };
    let mut context = start_processes(act, (job,), actors)?;
    let (mut episodes, mut progress) = (Vec::new(), Progress::default());
    let mut is_solved = false;
    while !is_solved && episodes.len() < max_episodes {
        let episode = next_episode(&queue, &mut context)?;
        episodes.push(episode);
        let last = &episodes[episodes.len().saturating_sub(WINDOW)..];
        progress = Progress {
            n_episodes: episodes.len(),
            n_steps: progress.n_steps + episode.reward,
            best: progress.best.max(episode.reward),
            mean: last.iter().map(|episode| episode.reward as f64).sum::<f64>() / last.len() as f64,
        };
        is_solved = last.len() == WINDOW && progress.mean >= SOLVED;
        if is_solved || episodes.len().is_multiple_of(TOLD_EVERY) {
            tell(progress)?;
        }
    }
    queue.close();
    let accounts: Vec<Account> = context.into_values()?;
    let n_changes = accounts.iter().map(|account| account.n_changes).sum();
    let bytes_copied = accounts.iter().map(|account| account.bytes_copied).sum();
    Ok(Outcome { progress, is_solved, episodes, n_changes, bytes_copied })
}

/// Waits for the end of an episode, and glances at the processes meanwhile: one that fails tells of no more.
fn next_episode(queue: &Queue<Episode>, context: &mut ProcessContext<Account>) -> anyhow::Result<Episode> {
    loop {
        match queue.get_timeout(GLANCE) {
            Ok(episode) => return Ok(episode),
            Err(GetError::Empty | GetError::PeerDied) => {
                context.join_timeout(Duration::ZERO)?;
            }
            Err(error) => return Err(error).context("no episode from the actors"),
        }
    }
}
