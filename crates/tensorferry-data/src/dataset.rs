//! What is loaded.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_spawn::BoxedError;

use crate::collate::Collate;
use crate::random::SampleRng;
use crate::samples::Samples;

/// A number of samples that are made by their index: PyTorch's map-style `Dataset`.
///
/// The value travels to each worker once, like an argument of a spawned function: tensors in it as handles,
/// the rest as a copy. What cannot travel, such as an open file, is left out (`#[serde(skip)]`) and opened on
/// first use.
///
/// [`dataset`](crate::dataset) on the `impl` registers the type, so that workers can be told to load it.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use tensorferry_data::{BoxedError, DataLoader, Dataset, SampleRng, dataset};
/// use tensorferry_tensor::Tensor;
///
/// #[derive(Serialize, Deserialize)]
/// struct Sines {
///     n_points: usize,
/// }
///
/// #[dataset]
/// impl Dataset for Sines {
///     type Sample = (Vec<f32>, i64);
///
///     fn len(&self) -> usize {
///         1_000
///     }
///
///     fn get(&self, index: usize, _rng: &mut SampleRng) -> Result<Self::Sample, BoxedError> {
///         let points = (0..self.n_points).map(|point| (point as f32 * index as f32).sin());
///         Ok((points.collect(), i64::try_from(index)?))
///     }
/// }
///
/// let loader = DataLoader::builder(Sines { n_points: 8 }).batch_size(64).workers(2).start()?;
/// let mut n_samples = 0;
/// for batch in loader.epoch(0) {
///     let (points, frequencies): (Tensor<f32>, Tensor<i64>) = batch?;
///     assert_eq!(points.shape(), &[frequencies.n_elements(), 8]);
///     n_samples += frequencies.n_elements();
/// }
/// assert_eq!(n_samples, 1_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(message = "`{Self}` is not a dataset")]
pub trait Dataset: Serialize + DeserializeOwned + Send + 'static {
    /// One sample: numbers, vectors, tensors, texts, tuples of such, or a type of your own that says how a
    /// batch is made of it.
    type Sample: Collate;

    /// How many samples there are. Asked once, when the loader is started.
    fn len(&self) -> usize;

    /// Whether there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes the sample with this index, which is below [`len`](Self::len).
    ///
    /// `rng` has the random numbers for this sample in this epoch, for crops, noise and the like.
    ///
    /// # Errors
    /// Whatever prevents it. Who iterates is told, with the index, and the loader goes on with the next
    /// batch. A panic counts as an error.
    fn get(&self, index: usize, rng: &mut SampleRng) -> Result<Self::Sample, BoxedError>;

    /// Makes a batch: PyTorch's `__getitems__`. Without this function, of what [`get`](Self::get) makes.
    ///
    /// # Errors
    /// As [`get`](Self::get). The index is known if the function [begins](Samples::begin) each sample.
    fn get_batch(&self, samples: &Samples<'_>) -> Result<Batch<Self>, BoxedError> {
        samples.collate(|index, rng| self.get(index, rng))
    }
}

/// What the samples of a dataset become together.
pub type Batch<D> = <<D as Dataset>::Sample as Collate>::Batch;
