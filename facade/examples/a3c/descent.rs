//! From what happened in a rollout to the change of the parameters that it asks for.

use crate::network::{self, N_PARAMETERS, Opinion};

/// What a reward is worth one step later.
const DISCOUNT: f32 = 0.99;
/// How far an advantage looks ahead (generalised advantage estimation: Schulman and others, 2016).
const LAMBDA: f32 = 0.95;
/// What a reward of 1 counts, so that values stay near 1.
const REWARD_SCALE: f32 = 0.05;
/// How much an actor that is not sure is preferred, so that it goes on trying.
const ENTROPY_BONUS: f32 = 0.01;
/// How much the critic's error counts beside the actor's.
const VALUE_WEIGHT: f32 = 0.5;
/// The longest step.
const MAX_GRADIENT_NORM: f32 = 0.5;

/// One step of a rollout.
#[derive(Clone, Debug)]
pub(crate) struct Experience {
    pub(crate) opinion: Opinion,
    pub(crate) action: usize,
}

/// The gradient of the loss, averaged over the rollout, with its length limited. Every step was worth a
/// reward of 1; `value_after` is what the critic expects after the last one, 0 when the pole has fallen.
pub(crate) fn gradient(parameters: &[f32], rollout: &[Experience], value_after: f32) -> Vec<f32> {
    let mut gradient = vec![0.0; N_PARAMETERS];
    let each = 1.0 / rollout.len() as f32;
    let (mut advantage, mut value_next) = (0.0, value_after);
    for Experience { opinion, action } in rollout.iter().rev() {
        let surprise = REWARD_SCALE + DISCOUNT * value_next - opinion.value;
        advantage = surprise + DISCOUNT * LAMBDA * advantage;
        value_next = opinion.value;
        let entropy: f32 = -opinion.odds.iter().map(|odds| odds * ln(*odds)).sum::<f32>();
        let mut logit_slopes = opinion.odds;
        for (candidate, (slope, odds)) in logit_slopes.iter_mut().zip(opinion.odds).enumerate() {
            let chosen = if candidate == *action { 1.0 } else { 0.0 };
            *slope = each * (advantage * (odds - chosen) + ENTROPY_BONUS * odds * (ln(odds) + entropy));
        }
        // The target is the value and the advantage, so the error is the advantage.
        network::learn(parameters, opinion, logit_slopes, -each * VALUE_WEIGHT * advantage, &mut gradient);
    }
    let norm = gradient.iter().map(|slope| slope * slope).sum::<f32>().sqrt();
    if norm > MAX_GRADIENT_NORM {
        gradient.iter_mut().for_each(|slope| *slope *= MAX_GRADIENT_NORM / norm);
    }
    gradient
}

/// Not minus infinity for an action that is never chosen.
fn ln(odds: f32) -> f32 {
    odds.max(1e-8).ln()
}
