//! What each of the processes does: play, learn from it, tell the reward.

use serde::{Deserialize, Serialize};
use tensorferry::queue::PutErrorKind;
use tensorferry::reduce::bytes_copied;
use tensorferry::{Queue, SharedTensor, func, rank_seed};

use crate::cart_pole::{CartPole, Outcome};
use crate::descent::{self, Experience};
use crate::network::{self, N_PARAMETERS};
use crate::random::Random;

/// After so many steps at most an actor learns from them, and sees what the others have learnt.
const ROLLOUT_STEPS: usize = 20;

/// The learning rate.
const RATE: f32 = 0.003;

/// How much of the mean of squared gradients stays with each change.
const SQUARES_STAY: f32 = 0.99;

/// Everything that an actor needs. The tensors and the queue arrive as handles.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) seed: u64,
    pub(crate) parameters: SharedTensor<f32>,
    /// A running mean of each parameter's squared gradient, over all actors: steps are divided by its root
    /// (RMSProp, shared as in the paper).
    pub(crate) squares: SharedTensor<f32>,
    /// Closed when there is no more to learn.
    pub(crate) episodes: Queue<Episode>,
}

/// An episode that has ended.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Episode {
    pub(crate) rank: usize,
    /// One for each step.
    pub(crate) reward: usize,
}

/// What an actor did.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) n_changes: usize,
    /// Tensor data that this process's transport copied.
    pub(crate) bytes_copied: u64,
}

/// Plays and learns until nobody wants to know of its episodes any more.
#[func]
pub(crate) fn act(rank: usize, job: Job) -> anyhow::Result<Account> {
    let mut random = Random::new(rank_seed(job.seed, rank));
    let mut cart_pole = CartPole::new(&mut random);
    let mut snapshot = Snapshot { parameters: vec![0.0; N_PARAMETERS], squares: vec![0.0; N_PARAMETERS] };
    let mut rollout = Vec::with_capacity(ROLLOUT_STEPS);
    let mut n_changes = 0;
    loop {
        job.parameters.read_into(&mut snapshot.parameters)?;
        let outcome = play(&snapshot.parameters, &mut cart_pole, &mut random, &mut rollout);
        let value_after = match outcome {
            Outcome::Fell => 0.0,
            // What would have come counts, although it ends here: the end of time is nobody's fault.
            Outcome::Stands | Outcome::Enough => network::judge(&snapshot.parameters, cart_pole.see()).value,
        };
        let gradient = descent::gradient(&snapshot.parameters, &rollout, value_after);
        snapshot.descend(&job, gradient)?;
        n_changes += 1;
        if outcome != Outcome::Stands {
            let episode = Episode { rank, reward: cart_pole.n_steps() };
            match job.episodes.put(episode) {
                Ok(()) => cart_pole = CartPole::new(&mut random),
                Err(refused) if matches!(refused.kind, PutErrorKind::Closed) => break,
                Err(refused) => return Err(refused.into()),
            }
        }
    }
    Ok(Account { n_changes, bytes_copied: bytes_copied() })
}

/// Plays on until the episode ends, or for [`ROLLOUT_STEPS`].
fn play(
    parameters: &[f32],
    cart_pole: &mut CartPole,
    random: &mut Random,
    rollout: &mut Vec<Experience>,
) -> Outcome {
    rollout.clear();
    loop {
        let opinion = network::judge(parameters, cart_pole.see());
        let action = usize::from(random.next_unit() < opinion.odds[1]);
        rollout.push(Experience { opinion, action });
        let outcome = cart_pole.step(action);
        if outcome != Outcome::Stands || rollout.len() == ROLLOUT_STEPS {
            return outcome;
        }
    }
}

/// What an actor has of the shared tensors.
struct Snapshot {
    parameters: Vec<f32>,
    squares: Vec<f32>,
}

impl Snapshot {
    /// Adds a step against the gradient to the shared parameters. Others do the same meanwhile; each addition
    /// counts, and what an actor has computed from may be a little older than what it adds to.
    fn descend(&mut self, job: &Job, mut gradient: Vec<f32>) -> anyhow::Result<()> {
        job.squares.read_into(&mut self.squares)?;
        for (slope, square) in gradient.iter_mut().zip(&mut self.squares) {
            let more = (1.0 - SQUARES_STAY) * (slope.powi(2) - *square);
            *slope = -*slope / ((*square + more).max(0.0).sqrt() + 1e-4);
            *square = more;
        }
        job.squares.add_from(&self.squares)?;
        Ok(job.parameters.add_scaled_from(&gradient, RATE)?)
    }
}
