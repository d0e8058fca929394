//! Actor and critic: one hidden layer that both share, from what is seen to what to do and what it is worth.

use crate::cart_pole::{N_ACTIONS, Seen};
use crate::random::Random;

const N_SEEN: usize = 4;
const N_HIDDEN: usize = 32;

/// Where each part begins among the parameters: weights and biases of the hidden layer, of the actor, of the
/// critic.
const HIDDEN_BIAS: usize = N_HIDDEN * N_SEEN;
const ACTOR: usize = HIDDEN_BIAS + N_HIDDEN;
const ACTOR_BIAS: usize = ACTOR + N_ACTIONS * N_HIDDEN;
const CRITIC: usize = ACTOR_BIAS + N_ACTIONS;
const CRITIC_BIAS: usize = CRITIC + N_HIDDEN;

/// How many parameters there are.
pub(crate) const N_PARAMETERS: usize = CRITIC_BIAS + 1;

/// One opinion, and what is needed to learn from it.
#[derive(Clone, Debug)]
pub(crate) struct Opinion {
    seen: Seen,
    hidden: [f32; N_HIDDEN],
    /// How likely each action is to be chosen.
    pub(crate) odds: [f32; N_ACTIONS],
    /// The rewards that are still to come, as the critic sees it.
    pub(crate) value: f32,
}

/// The parameters that training begins with. Actor and critic begin at 0: everything is equally likely and
/// worth nothing.
pub(crate) fn initial(random: &mut Random) -> Vec<f32> {
    let mut parameters = vec![0.0; N_PARAMETERS];
    parameters[..HIDDEN_BIAS].fill_with(|| random.next_signed());
    parameters
}

/// What to do where this is seen.
pub(crate) fn judge(parameters: &[f32], seen: Seen) -> Opinion {
    let mut hidden = [0.0; N_HIDDEN];
    for (unit, out) in hidden.iter_mut().enumerate() {
        let weights = &parameters[unit * N_SEEN..][..N_SEEN];
        *out = (dot(weights, &seen) + parameters[HIDDEN_BIAS + unit]).tanh();
    }
    let logit = |action: usize| {
        dot(&parameters[ACTOR + action * N_HIDDEN..][..N_HIDDEN], &hidden) + parameters[ACTOR_BIAS + action]
    };
    let logits = [logit(0), logit(1)];
    let highest = logits[0].max(logits[1]);
    let powers = logits.map(|logit| (logit - highest).exp());
    let sum: f32 = powers.iter().sum();
    let value = dot(&parameters[CRITIC..][..N_HIDDEN], &hidden) + parameters[CRITIC_BIAS];
    Opinion { seen, hidden, odds: powers.map(|power| power / sum), value }
}

/// Adds to `gradient` what one opinion contributes, given the slopes of the loss in the logits and in the
/// value.
pub(crate) fn learn(
    parameters: &[f32],
    opinion: &Opinion,
    logit_slopes: [f32; N_ACTIONS],
    value_slope: f32,
    gradient: &mut [f32],
) {
    for (action, slope) in logit_slopes.into_iter().enumerate() {
        gradient[ACTOR_BIAS + action] += slope;
    }
    gradient[CRITIC_BIAS] += value_slope;
    for (unit, &out) in opinion.hidden.iter().enumerate() {
        let mut slope = value_slope * parameters[CRITIC + unit];
        gradient[CRITIC + unit] += value_slope * out;
        for (action, logit_slope) in logit_slopes.into_iter().enumerate() {
            slope += logit_slope * parameters[ACTOR + action * N_HIDDEN + unit];
            gradient[ACTOR + action * N_HIDDEN + unit] += logit_slope * out;
        }
        // Of the hyperbolic tangent.
        slope *= 1.0 - out * out;
        gradient[HIDDEN_BIAS + unit] += slope;
        for (weight, seen) in gradient[unit * N_SEEN..][..N_SEEN].iter_mut().zip(opinion.seen) {
            *weight += slope * seen;
        }
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
