//! The network: pixels, one hidden layer of rectified units, ten logits; its gradient by back-propagation.
//!
//! All of it works on plain slices and on buffers that are allocated once. Where the parameters come from is
//! not known here.

use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, ShapeError};

use crate::digits::{Examples, N_CLASSES, N_PIXELS};
use crate::random::Random;

/// The sizes of the network, and where its parameters lie in one row of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Network {
    pub(crate) n_hidden: usize,
}

/// Parameters, or a change of them, by name.
struct Parts<Numbers> {
    /// `[N_PIXELS, n_hidden]`
    hidden_weights: Numbers,
    /// `[n_hidden]`
    hidden_biases: Numbers,
    /// `[N_CLASSES, n_hidden]`
    output_weights: Numbers,
    /// `[N_CLASSES]`
    output_biases: Numbers,
}

impl Network {
    /// How many parameters there are.
    pub(crate) fn n_parameters(self) -> usize {
        (N_PIXELS + 1) * self.n_hidden + (self.n_hidden + 1) * N_CLASSES
    }

    /// Where training begins: uniform, bounded by the inverse square root of the number of a unit's inputs.
    pub(crate) fn initial(self, seed: u64) -> Vec<f32> {
        let mut random = Random::new(seed, 0);
        let mut parameters = vec![0.0; self.n_parameters()];
        let (hidden, output) = parameters.split_at_mut((N_PIXELS + 1) * self.n_hidden);
        for (part, n_inputs) in [(hidden, N_PIXELS), (output, self.n_hidden)] {
            let bound = (n_inputs as f32).sqrt().recip();
            part.fill_with(|| bound * random.next_signed());
        }
        parameters
    }

    fn parts(self, all: &[f32]) -> Parts<&[f32]> {
        let (hidden_weights, rest) = all.split_at(N_PIXELS * self.n_hidden);
        let (hidden_biases, rest) = rest.split_at(self.n_hidden);
        let (output_weights, output_biases) = rest.split_at(N_CLASSES * self.n_hidden);
        Parts { hidden_weights, hidden_biases, output_weights, output_biases }
    }

    fn parts_mut(self, all: &mut [f32]) -> Parts<&mut [f32]> {
        let (hidden_weights, rest) = all.split_at_mut(N_PIXELS * self.n_hidden);
        let (hidden_biases, rest) = rest.split_at_mut(self.n_hidden);
        let (output_weights, output_biases) = rest.split_at_mut(N_CLASSES * self.n_hidden);
        Parts { hidden_weights, hidden_biases, output_weights, output_biases }
    }
}

/// How well some images were recognised.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Score {
    /// The sum of the cross-entropies.
    pub(crate) loss: f64,
    pub(crate) n_right: f64,
    pub(crate) n_images: f64,
}

/// Buffers for one batch, used again for the next. Each holds one row for every image of the batch.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    network: Network,
    images: Vec<f32>,
    labels: Vec<u8>,
    hidden: Vec<f32>,
    logits: Vec<f32>,
    hidden_change: Vec<f32>,
    logits_change: Vec<f32>,
    change: Vec<f32>,
}

impl Workspace {
    pub(crate) fn new(network: Network, max_batch: usize) -> Self {
        let per_image = |n| Vec::with_capacity(max_batch * n);
        Self {
            network,
            images: per_image(N_PIXELS),
            labels: Vec::with_capacity(max_batch),
            hidden: per_image(network.n_hidden),
            logits: per_image(N_CLASSES),
            hidden_change: per_image(network.n_hidden),
            logits_change: per_image(N_CLASSES),
            change: vec![0.0; network.n_parameters()],
        }
    }

    /// Which way is down: minus the gradient of the mean cross-entropy of the images `chosen`. Also how well
    /// the parameters do.
    pub(crate) fn descent(
        &mut self,
        parameters: &[f32],
        examples: &Examples,
        chosen: &[usize],
    ) -> anyhow::Result<(&[f32], Score)> {
        self.gather(examples, chosen)?;
        self.forward(parameters)?;
        let score = self.score((chosen.len() as f32).recip());
        self.backward(parameters)?;
        Ok((&self.change, score))
    }

    /// How well the parameters recognise all of the images.
    pub(crate) fn evaluate(&mut self, parameters: &[f32], examples: &Examples) -> anyhow::Result<Score> {
        let all: Vec<usize> = (0..examples.len()).collect();
        self.gather(examples, &all)?;
        self.forward(parameters)?;
        Ok(self.score(0.0))
    }

    fn gather(&mut self, examples: &Examples, chosen: &[usize]) -> anyhow::Result<()> {
        let (images, labels) = (examples.images.as_slice()?, examples.labels.as_slice()?);
        self.images.clear();
        self.labels.clear();
        for &index in chosen {
            self.images.extend_from_slice(&images[index * N_PIXELS..][..N_PIXELS]);
            self.labels.push(labels[index]);
        }
        let n = chosen.len();
        self.hidden.resize(n * self.network.n_hidden, 0.0);
        self.hidden_change.resize(n * self.network.n_hidden, 0.0);
        self.logits.resize(n * N_CLASSES, 0.0);
        self.logits_change.resize(n * N_CLASSES, 0.0);
        Ok(())
    }

    fn forward(&mut self, parameters: &[f32]) -> Result<(), ShapeError> {
        let (n, n_hidden) = (self.labels.len(), self.network.n_hidden);
        let parameters = self.network.parts(parameters);
        general_mat_mul(
            1.0,
            &matrix([n, N_PIXELS], &self.images)?,
            &matrix([N_PIXELS, n_hidden], parameters.hidden_weights)?,
            0.0,
            &mut matrix_mut([n, n_hidden], &mut self.hidden)?,
        );
        for row in self.hidden.chunks_exact_mut(n_hidden) {
            row.iter_mut()
                .zip(parameters.hidden_biases)
                .for_each(|(unit, bias)| *unit = (*unit + bias).max(0.0));
        }
        general_mat_mul(
            1.0,
            &matrix([n, n_hidden], &self.hidden)?,
            &matrix([N_CLASSES, n_hidden], parameters.output_weights)?.t(),
            0.0,
            &mut matrix_mut([n, N_CLASSES], &mut self.logits)?,
        );
        for row in self.logits.chunks_exact_mut(N_CLASSES) {
            row.iter_mut().zip(parameters.output_biases).for_each(|(logit, bias)| *logit += bias);
        }
        Ok(())
    }

    /// Compares the logits with the labels. How each logit has to change is minus the derivative of its
    /// image's cross-entropy, times `weight`.
    fn score(&mut self, weight: f32) -> Score {
        let n = self.labels.len();
        let mut score = Score { n_images: n as f64, ..Score::default() };
        let rows = self.logits.chunks_exact(N_CLASSES).zip(self.logits_change.chunks_exact_mut(N_CLASSES));
        for ((logits, change), &label) in rows.zip(&self.labels) {
            let label = usize::from(label);
            let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut sum = 0.0;
            for (change, logit) in change.iter_mut().zip(logits) {
                *change = (logit - largest).exp();
                sum += *change;
            }
            change.iter_mut().for_each(|value| *value *= -weight / sum);
            change[label] += weight;
            score.loss += f64::from(sum.ln() + largest - logits[label]);
            score.n_right += if logits[label] >= largest { 1.0 } else { 0.0 };
        }
        score
    }

    fn backward(&mut self, parameters: &[f32]) -> Result<(), ShapeError> {
        let (n, n_hidden) = (self.labels.len(), self.network.n_hidden);
        let parameters = self.network.parts(parameters);
        let change = self.network.parts_mut(&mut self.change);
        let logits_change = matrix([n, N_CLASSES], &self.logits_change)?;

        general_mat_mul(
            1.0,
            &logits_change.t(),
            &matrix([n, n_hidden], &self.hidden)?,
            0.0,
            &mut matrix_mut([N_CLASSES, n_hidden], change.output_weights)?,
        );
        change.output_biases.fill(0.0);
        for row in self.logits_change.chunks_exact(N_CLASSES) {
            change.output_biases.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        }

        general_mat_mul(
            1.0,
            &logits_change,
            &matrix([N_CLASSES, n_hidden], parameters.output_weights)?,
            0.0,
            &mut matrix_mut([n, n_hidden], &mut self.hidden_change)?,
        );
        change.hidden_biases.fill(0.0);
        let rows = self.hidden_change.chunks_exact_mut(n_hidden).zip(self.hidden.chunks_exact(n_hidden));
        for (row, units) in rows {
            for ((value, unit), sum) in row.iter_mut().zip(units).zip(change.hidden_biases.iter_mut()) {
                // Nothing flows back through a unit that was cut off.
                *value = if *unit > 0.0 { *value } else { 0.0 };
                *sum += *value;
            }
        }
        general_mat_mul(
            1.0,
            &matrix([n, N_PIXELS], &self.images)?.t(),
            &matrix([n, n_hidden], &self.hidden_change)?,
            0.0,
            &mut matrix_mut([N_PIXELS, n_hidden], change.hidden_weights)?,
        );
        Ok(())
    }
}

fn matrix(shape: [usize; 2], numbers: &[f32]) -> Result<ArrayView2<'_, f32>, ShapeError> {
    ArrayView2::from_shape(shape, numbers)
}

fn matrix_mut(shape: [usize; 2], numbers: &mut [f32]) -> Result<ArrayViewMut2<'_, f32>, ShapeError> {
    ArrayViewMut2::from_shape(shape, numbers)
}

impl Score {
    pub(crate) fn mean_loss(&self) -> f64 {
        self.loss / self.n_images
    }

    pub(crate) fn accuracy(&self) -> f64 {
        self.n_right / self.n_images
    }
}

impl std::ops::AddAssign for Score {
    fn add_assign(&mut self, other: Self) {
        self.loss += other.loss;
        self.n_right += other.n_right;
        self.n_images += other.n_images;
    }
}
