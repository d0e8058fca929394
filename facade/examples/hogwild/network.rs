//! The network: pixels, one hidden layer of rectified units, ten logits; its gradient by back-propagation.
//!
//! All of it works on plain slices and on buffers that are allocated once. Where the parameters come from is not
//! known here.

use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView2, ArrayViewMut2, ShapeError, s};

use crate::digits::{Examples, N_CLASSES, N_PIXELS};
use crate::random::Random;

/// The sizes of the network, and where its parameters lie in one row of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Network {
    pub(crate) n_hidden: usize,
}

/// The parameters, or a change of them, by name: `[in, out]` and `[out]`, `[class, in]` and `[class]`.
struct Parts<Matrix, Vector> {
    hidden_weights: Matrix,
    hidden_biases: Vector,
    output_weights: Matrix,
    output_biases: Vector,
}

impl Network {
    /// How many parameters there are.
    pub(crate) fn n_parameters(self) -> usize {
        (N_PIXELS + 1) * self.n_hidden + (self.n_hidden + 1) * N_CLASSES
    }

    /// Where training begins: uniform, bounded by the square root of the number of a unit's inputs.
    pub(crate) fn initial(self, seed: u64) -> Vec<f32> {
        let mut random = Random::new(seed, 1);
        let hidden_bound = (N_PIXELS as f32).sqrt().recip();
        let output_bound = (self.n_hidden as f32).sqrt().recip();
        let n_before_output = (N_PIXELS + 1) * self.n_hidden;
        let bound = |i| if i < n_before_output { hidden_bound } else { output_bound };
        (0..self.n_parameters()).map(|i| random.next_signed() * bound(i)).collect()
    }

    fn parts(self, all: &[f32]) -> Result<Parts<ArrayView2<'_, f32>, &[f32]>, ShapeError> {
        let (hidden_weights, rest) = all.split_at(N_PIXELS * self.n_hidden);
        let (hidden_biases, rest) = rest.split_at(self.n_hidden);
        let (output_weights, output_biases) = rest.split_at(N_CLASSES * self.n_hidden);
        Ok(Parts {
            hidden_weights: ArrayView2::from_shape((N_PIXELS, self.n_hidden), hidden_weights)?,
            hidden_biases,
            output_weights: ArrayView2::from_shape((N_CLASSES, self.n_hidden), output_weights)?,
            output_biases,
        })
    }

    fn parts_mut(
        self,
        all: &mut [f32],
    ) -> Result<Parts<ArrayViewMut2<'_, f32>, &mut [f32]>, ShapeError> {
        let (hidden_weights, rest) = all.split_at_mut(N_PIXELS * self.n_hidden);
        let (hidden_biases, rest) = rest.split_at_mut(self.n_hidden);
        let (output_weights, output_biases) = rest.split_at_mut(N_CLASSES * self.n_hidden);
        Ok(Parts {
            hidden_weights: ArrayViewMut2::from_shape((N_PIXELS, self.n_hidden), hidden_weights)?,
            hidden_biases,
            output_weights: ArrayViewMut2::from_shape((N_CLASSES, self.n_hidden), output_weights)?,
            output_biases,
        })
    }
}

/// How well some images were recognised.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Score {
    /// The sum of the cross-entropies.
    pub(crate) loss: f64,
    pub(crate) n_right: usize,
    pub(crate) n_images: usize,
}

/// Buffers for one batch, used again for the next.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    network: Network,
    images: Array2<f32>,
    labels: Vec<u8>,
    hidden: Array2<f32>,
    /// Logits; after [`Workspace::score`] what each of them has to change by.
    logits: Array2<f32>,
    hidden_change: Array2<f32>,
    change: Vec<f32>,
}

impl Workspace {
    pub(crate) fn new(network: Network, max_batch: usize) -> Self {
        Self {
            network,
            images: Array2::zeros((max_batch, N_PIXELS)),
            labels: Vec::with_capacity(max_batch),
            hidden: Array2::zeros((max_batch, network.n_hidden)),
            logits: Array2::zeros((max_batch, N_CLASSES)),
            hidden_change: Array2::zeros((max_batch, network.n_hidden)),
            change: vec![0.0; network.n_parameters()],
        }
    }

    /// One step of gradient descent on the images `chosen`, at most `max_batch`: the change to be added to the
    /// parameters, and how well they did before it.
    pub(crate) fn step(
        &mut self,
        parameters: &[f32],
        examples: &Examples,
        chosen: &[usize],
        rate: f32,
    ) -> anyhow::Result<(&[f32], Score)> {
        self.gather(examples, chosen)?;
        self.forward(parameters)?;
        let score = self.score(rate / chosen.len() as f32);
        self.backward(parameters)?;
        Ok((&self.change, score))
    }

    /// How well the parameters recognise all of the images.
    pub(crate) fn evaluate(&mut self, parameters: &[f32], examples: &Examples) -> anyhow::Result<Score> {
        let all: Vec<usize> = (0..examples.len()).collect();
        let mut sum = Score::default();
        for chosen in all.chunks(self.images.nrows()) {
            self.gather(examples, chosen)?;
            self.forward(parameters)?;
            sum += self.score(1.0);
        }
        Ok(sum)
    }

    fn gather(&mut self, examples: &Examples, chosen: &[usize]) -> anyhow::Result<()> {
        let (images, labels) = (examples.images.as_slice()?, examples.labels.as_slice()?);
        self.labels.clear();
        for (mut row, &index) in self.images.rows_mut().into_iter().zip(chosen) {
            let image = &images[index * N_PIXELS..][..N_PIXELS];
            row.iter_mut().zip(image).for_each(|(to, from)| *to = *from);
            self.labels.push(labels[index]);
        }
        Ok(())
    }

    fn forward(&mut self, parameters: &[f32]) -> anyhow::Result<()> {
        let n = self.labels.len();
        let parameters = self.network.parts(parameters)?;
        let images = self.images.slice(s![..n, ..]);
        let mut hidden = self.hidden.slice_mut(s![..n, ..]);
        general_mat_mul(1.0, &images, &parameters.hidden_weights, 0.0, &mut hidden);
        for mut row in hidden.rows_mut() {
            for (unit, bias) in row.iter_mut().zip(parameters.hidden_biases) {
                *unit = (*unit + bias).max(0.0);
            }
        }
        let mut logits = self.logits.slice_mut(s![..n, ..]);
        general_mat_mul(1.0, &hidden, &parameters.output_weights.t(), 0.0, &mut logits);
        for mut row in logits.rows_mut() {
            row.iter_mut().zip(parameters.output_biases).for_each(|(logit, bias)| *logit += bias);
        }
        Ok(())
    }

    /// Replaces each logit by the negative derivative of its image's cross-entropy, times `scale`.
    fn score(&mut self, scale: f32) -> Score {
        let mut score = Score { n_images: self.labels.len(), ..Score::default() };
        for (mut row, &label) in self.logits.rows_mut().into_iter().zip(&self.labels) {
            let label = usize::from(label);
            let right = row[label];
            let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut sum = 0.0;
            for value in &mut row {
                *value = (*value - largest).exp();
                sum += *value;
            }
            score.n_right += usize::from(right >= largest);
            score.loss += f64::from(sum.ln() + largest - right);
            row.iter_mut().for_each(|value| *value *= -scale / sum);
            row[label] += scale;
        }
        score
    }

    fn backward(&mut self, parameters: &[f32]) -> anyhow::Result<()> {
        let n = self.labels.len();
        let parameters = self.network.parts(parameters)?;
        let mut change = self.network.parts_mut(&mut self.change)?;
        let images = self.images.slice(s![..n, ..]);
        let hidden = self.hidden.slice(s![..n, ..]);
        let logits_change = self.logits.slice(s![..n, ..]);
        let mut hidden_change = self.hidden_change.slice_mut(s![..n, ..]);

        general_mat_mul(1.0, &logits_change.t(), &hidden, 0.0, &mut change.output_weights);
        change.output_biases.fill(0.0);
        for row in logits_change.rows() {
            change.output_biases.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        }

        general_mat_mul(1.0, &logits_change, &parameters.output_weights, 0.0, &mut hidden_change);
        change.hidden_biases.fill(0.0);
        for (mut row, units) in hidden_change.rows_mut().into_iter().zip(hidden.rows()) {
            for ((value, unit), sum) in row.iter_mut().zip(units).zip(change.hidden_biases.iter_mut()) {
                // Nothing flows back through a unit that was cut off.
                *value = if *unit > 0.0 { *value } else { 0.0 };
                *sum += *value;
            }
        }
        general_mat_mul(1.0, &images.t(), &hidden_change, 0.0, &mut change.hidden_weights);
        Ok(())
    }
}

impl Score {
    pub(crate) fn mean_loss(&self) -> f64 {
        self.loss / self.n_images as f64
    }

    pub(crate) fn accuracy(&self) -> f64 {
        self.n_right as f64 / self.n_images as f64
    }
}

impl std::ops::AddAssign for Score {
    fn add_assign(&mut self, other: Self) {
        self.loss += other.loss;
        self.n_right += other.n_right;
        self.n_images += other.n_images;
    }
}
