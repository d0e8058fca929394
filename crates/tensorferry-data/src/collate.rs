//! How samples become a batch.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_spawn::BoxedError;
use tensorferry_storage::Heap;
use tensorferry_tensor::{Bool, Complex, Element, Shape, Tensor, TensorError, TensorMut};

use crate::rows::TensorRows;

/// For how many samples private memory is reserved at first. A shard may have far fewer than a batch.
pub(crate) const MOST_RESERVED: usize = 1 << 10;

/// A sample that can be put into a batch with others: PyTorch's `collate_fn`, for each type once.
///
/// | a sample | its batch of *n* |
/// | --- | --- |
/// | a number `T`, `bool` | [`Tensor<T>`] (`Tensor<Bool>`) of shape `[n]` |
/// | `[T; k]`, `Vec<T>` of the same length *k* | `Tensor<T>` of shape `[n, k]` |
/// | [`Tensor<T>`], [`TensorMut<T>`] of the same shape | `Tensor<T>` with one more dimension in front |
/// | [`Padded`](crate::Padded): vectors of different lengths | `Tensor<T>` of shape `[n, longest]`, and the lengths |
/// | `String` | `Vec<String>` |
/// | a tuple | the tuple of the batches |
/// | `BTreeMap<String, _>` with the same keys | the map of the batches |
///
/// Each sample is copied to its place in shared memory as soon as it is made.
///
/// # Types of your own
/// Of a struct of samples the derive of the same name makes a sample: its batch is a struct with the same
/// fields.
///
/// ```
/// use tensorferry_data::Collate;
/// use tensorferry_storage::Heap;
///
/// #[derive(Collate)]
/// #[collate(batch = Photos, derive(Debug))]
/// struct Photo {
///     pixels: [f32; 4],
///     label: i64,
///     name: String,
/// }
///
/// let photo = |label| Photo { pixels: [0.5; 4], label, name: format!("{label}.png") };
/// let mut rows = Photo::begin(&photo(0), 2, Heap::current()?)?;
/// (0..2).try_for_each(|label| Photo::push(&mut rows, photo(label)))?;
/// let photos: Photos = Photo::finish(rows)?;
/// assert_eq!(photos.pixels.shape(), &[2, 4]);
/// assert_eq!((photos.label.to_vec(), photos.name), (vec![0, 1], vec!["0.png".to_owned(), "1.png".to_owned()]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Where a batch depends on all of its samples, [`Rows`](Self::Rows) is a vector of them. Texts of different
/// lengths, one behind the other:
///
/// ```
/// use tensorferry_data::{Collate, CollateError};
/// use tensorferry_storage::Heap;
/// use tensorferry_tensor::{Tensor, TensorMut};
///
/// /// The tokens of a text.
/// struct Tokens(Vec<u32>);
///
/// impl Collate for Tokens {
///     /// All tokens, and where each text ends.
///     type Batch = (Tensor<u32>, Vec<usize>);
///     type Rows = (Vec<Self>, Heap);
///
///     fn begin(_first: &Self, n_samples: usize, heap: &Heap) -> Result<Self::Rows, CollateError> {
///         Ok((Vec::with_capacity(n_samples), heap.clone()))
///     }
///
///     fn push((texts, _): &mut Self::Rows, sample: Self) -> Result<(), CollateError> {
///         texts.push(sample);
///         Ok(())
///     }
///
///     fn finish((texts, heap): Self::Rows) -> Result<Self::Batch, CollateError> {
///         let ends = texts.iter().scan(0, |end, Tokens(tokens)| {
///             *end += tokens.len();
///             Some(*end)
///         });
///         let ends: Vec<_> = ends.collect();
///         let mut batch = TensorMut::empty_in(&heap, [ends.last().copied().unwrap_or(0)])?;
///         let tokens = texts.iter().flat_map(|Tokens(tokens)| tokens);
///         batch.as_mut_slice().iter_mut().zip(tokens).for_each(|(place, token)| *place = *token);
///         Ok((batch.freeze(), ends))
///     }
/// }
///
/// let heap = Heap::current()?;
/// let texts = [Tokens(vec![5, 6]), Tokens(vec![7])];
/// let mut rows = Tokens::begin(&texts[0], 2, heap)?;
/// texts.into_iter().try_for_each(|text| Tokens::push(&mut rows, text))?;
/// let (batch, ends) = Tokens::finish(rows)?;
/// assert_eq!((batch.to_vec(), ends), (vec![5, 6, 7], vec![2, 3]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "a batch cannot be made of `{Self}`",
    note = "numbers of a fixed size (`u64` or `i64` for a `usize`), arrays, vectors and tensors of those, texts and tuples are known; on a struct of those put `#[derive(Collate)]`; for others, implement `Collate`"
)]
pub trait Collate: Sized {
    /// What a number of samples become.
    type Batch: Serialize + DeserializeOwned;
    /// A batch in the making.
    type Rows;

    /// Begins a batch of at most `n_samples`, of which `first` is the first. It is not yet part of the batch.
    /// `heap` is where the batch is to lie.
    ///
    /// # Errors
    /// [`CollateError`], for example when there is no memory.
    fn begin(first: &Self, n_samples: usize, heap: &Heap) -> Result<Self::Rows, CollateError>;

    /// Adds the next sample. No method, because `Vec` has one of that name.
    ///
    /// # Errors
    /// [`CollateError`] when the sample does not fit to those before it.
    fn push(rows: &mut Self::Rows, sample: Self) -> Result<(), CollateError>;

    /// The batch.
    ///
    /// # Errors
    /// [`CollateError`].
    fn finish(rows: Self::Rows) -> Result<Self::Batch, CollateError>;
}

/// Why samples cannot become a batch.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CollateError {
    /// The shapes differ.
    #[error(
        "the shape {found} differs from that of the first sample of the batch, {expected}: give all samples the same, \
         or implement `Collate` for a type of your own"
    )]
    Shape {
        /// The shape of the batch's first sample.
        expected: Shape,
        /// The shape of this one.
        found: Shape,
    },
    /// The keys of the maps differ.
    #[error("the sample has other keys than the first of the batch: `{key}`")]
    Keys {
        /// A key that only one of them has.
        key: String,
    },
    /// What happened to a field of a struct that derives [`Collate`].
    #[error("`{field}`: {error}")]
    Field {
        /// Its name.
        field: &'static str,
        /// What happened to it.
        error: Box<Self>,
    },
    /// More samples than were announced.
    #[error("the batch was begun for {0} samples, and this is one more")]
    Full(usize),
    /// There is no memory for the batch, or there is no such shape.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// What a [`Collate`] of another crate says.
    #[error(transparent)]
    Other(BoxedError),
}

tensorferry_storage::debug_as_display!(CollateError);

/// Scalars, arrays, vectors: rows of a tensor.
macro_rules! of_elements {
    ($($(#[$condition:meta])* $Type:ty),+ $(,)?) => {$(
        $(#[$condition])*
        impl Collate for $Type {
            type Batch = Tensor<Self>;
            type Rows = TensorRows<Self>;

            fn begin(_: &Self, n_samples: usize, heap: &Heap) -> Result<Self::Rows, CollateError> {
                TensorRows::begin(&[], n_samples, heap)
            }

            fn push(rows: &mut Self::Rows, sample: Self) -> Result<(), CollateError> {
                rows.push(&[], std::slice::from_ref(&sample))
            }

            fn finish(rows: Self::Rows) -> Result<Self::Batch, CollateError> {
                rows.finish()
            }
        }
    )+};
}

of_elements! {
    u8, i8, u16, i16, u32, i32, u64, i64, f32, f64, Bool, Complex<f32>, Complex<f64>,
    #[cfg(feature = "half")] tensorferry_tensor::f16,
    #[cfg(feature = "half")] tensorferry_tensor::bf16,
}

impl Collate for bool {
    type Batch = Tensor<Bool>;
    type Rows = TensorRows<Bool>;

    fn begin(_: &Self, n_samples: usize, heap: &Heap) -> Result<Self::Rows, CollateError> {
        TensorRows::begin(&[], n_samples, heap)
    }

    fn push(rows: &mut Self::Rows, sample: Self) -> Result<(), CollateError> {
        Bool::push(rows, Bool::from(sample))
    }

    fn finish(rows: Self::Rows) -> Result<Self::Batch, CollateError> {
        rows.finish()
    }
}

impl<T: Element> Collate for Vec<T> {
    type Batch = Tensor<T>;
    type Rows = TensorRows<T>;

    fn begin(first: &Self, n_samples: usize, heap: &Heap) -> Result<Self::Rows, CollateError> {
        TensorRows::begin(&[first.len()], n_samples, heap)
    }

    fn push(rows: &mut Self::Rows, sample: Self) -> Result<(), CollateError> {
        rows.push(&[sample.len()], &sample)
    }

    fn finish(rows: Self::Rows) -> Result<Self::Batch, CollateError> {
        rows.finish()
    }
}

impl<T: Element, const N: usize> Collate for [T; N] {
    type Batch = Tensor<T>;
    type Rows = TensorRows<T>;

    fn begin(_: &Self, n_samples: usize, heap: &Heap) -> Result<Self::Rows, CollateError> {
        TensorRows::begin(&[N], n_samples, heap)
    }

    fn push(rows: &mut Self::Rows, sample: Self) -> Result<(), CollateError> {
        rows.push(&[N], &sample)
    }

    fn finish(rows: Self::Rows) -> Result<Self::Batch, CollateError> {
        rows.finish()
    }
}

impl<T: Element> Collate for Tensor<T> {
    type Batch = Self;
    type Rows = TensorRows<T>;

    fn begin(first: &Self, n_samples: usize, heap: &Heap) -> Result<Self::Rows, CollateError> {
        TensorRows::begin(first.shape(), n_samples, heap)
    }

    fn push(rows: &mut Self::Rows, sample: Self) -> Result<(), CollateError> {
        rows.push_tensor(&sample)
    }

    fn finish(rows: Self::Rows) -> Result<Self::Batch, CollateError> {
        rows.finish()
    }
}

impl<T: Element> Collate for TensorMut<T> {
    type Batch = Tensor<T>;
    type Rows = TensorRows<T>;

    fn begin(first: &Self, n_samples: usize, heap: &Heap) -> Result<Self::Rows, CollateError> {
        TensorRows::begin(first.shape(), n_samples, heap)
    }

    fn push(rows: &mut Self::Rows, mut sample: Self) -> Result<(), CollateError> {
        let shape = sample.shape().clone();
        rows.push(&shape, sample.as_slice())
    }

    fn finish(rows: Self::Rows) -> Result<Self::Batch, CollateError> {
        rows.finish()
    }
}

impl Collate for String {
    type Batch = Vec<Self>;
    type Rows = Vec<Self>;

    fn begin(_: &Self, n_samples: usize, _: &Heap) -> Result<Self::Rows, CollateError> {
        Ok(Vec::with_capacity(n_samples.min(MOST_RESERVED)))
    }

    fn push(rows: &mut Self::Rows, sample: Self) -> Result<(), CollateError> {
        rows.push(sample);
        Ok(())
    }

    fn finish(rows: Self::Rows) -> Result<Self::Batch, CollateError> {
        Ok(rows)
    }
}

impl<C: Collate> Collate for BTreeMap<String, C> {
    type Batch = BTreeMap<String, C::Batch>;
    type Rows = BTreeMap<String, C::Rows>;

    fn begin(first: &Self, n_samples: usize, heap: &Heap) -> Result<Self::Rows, CollateError> {
        first.iter().map(|(key, value)| Ok((key.clone(), C::begin(value, n_samples, heap)?))).collect()
    }

    fn push(rows: &mut Self::Rows, sample: Self) -> Result<(), CollateError> {
        if let Some(key) = rows.keys().find(|key| !sample.contains_key(*key)) {
            return Err(CollateError::Keys { key: key.clone() });
        }
        for (key, value) in sample {
            match rows.get_mut(&key) {
                Some(rows) => C::push(rows, value)?,
                None => return Err(CollateError::Keys { key }),
            }
        }
        Ok(())
    }

    fn finish(rows: Self::Rows) -> Result<Self::Batch, CollateError> {
        rows.into_iter().map(|(key, rows)| Ok((key, C::finish(rows)?))).collect()
    }
}

macro_rules! tuples {
    ($(($($Type:ident $name:ident $rows:ident),+))+) => {$(
        impl<$($Type: Collate),+> Collate for ($($Type,)+) {
            type Batch = ($($Type::Batch,)+);
            type Rows = ($($Type::Rows,)+);

            fn begin(first: &Self, n_samples: usize, heap: &Heap) -> Result<Self::Rows, CollateError> {
                let ($($name,)+) = first;
                Ok(($($Type::begin($name, n_samples, heap)?,)+))
            }

            fn push(rows: &mut Self::Rows, sample: Self) -> Result<(), CollateError> {
                let (($($name,)+), ($($rows,)+)) = (sample, rows);
                $($Type::push($rows, $name)?;)+
                Ok(())
            }

            fn finish(rows: Self::Rows) -> Result<Self::Batch, CollateError> {
                let ($($rows,)+) = rows;
                Ok(($($Type::finish($rows)?,)+))
            }
        }
    )+};
}

tuples! {
    (A a aa)
    (A a aa, B b bb)
    (A a aa, B b bb, C c cc)
    (A a aa, B b bb, C c cc, D d dd)
    (A a aa, B b bb, C c cc, D d dd, E e ee)
    (A a aa, B b bb, C c cc, D d dd, E e ee, F f ff)
    (A a aa, B b bb, C c cc, D d dd, E e ee, F f ff, G g gg)
    (A a aa, B b bb, C c cc, D d dd, E e ee, F f ff, G g gg, H h hh)
}
