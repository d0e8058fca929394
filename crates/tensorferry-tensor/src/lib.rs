//! Tensors in shared memory: the elements in a block, their layout, and the access that each kind of tensor
//! gives.
//!
//! | type | this holder has | other holders can |
//! | --- | --- | --- |
//! | [`TensorMut<T>`] exclusive | `&[T]`, `&mut [T]`; sending it moves it | nothing |
//! | [`Tensor<T>`] frozen | `&[T]`, `Clone`, views; back to exclusive when there is no other holder | read |
//! | [`SharedTensor<T>`] shared on purpose | atomic access to elements, in bulk too; views | read and write |
//! | [`SealedTensor<T>`] sealed by the kernel | `&[T]`, `Clone` | read, whatever they are up to |
//! | [`AnyTensor`] frozen | its [`DType`] at run time; [`AnyTensor::downcast`] to [`Tensor<T>`] | read |
//!
//! A tensor begins in one of two ways. An exclusive tensor ([`TensorMut::zeros`]) lies in shared memory and
//! is never copied. A private tensor ([`Tensor::from_vec`]) lies in a vector. It is copied once, and counted,
//! when it is sent or [shared](Tensor::share_memory).
//!
//! All these types implement `serde`'s traits. Inside a message they travel as a handle and a few numbers,
//! whatever the size of their storage. Outside a message serialising them is an error. Elements are plain
//! data ([`Element`]): Rust's numbers, [`Bool`], [`Complex`], `half`'s floats, and floats of 8 bits and
//! fewer.
//!
//! Views share the storage and keep it alive. Several views of one storage in one message arrive as views of
//! one storage. [`Layout`] does the arithmetic and can be used alone. Shapes, strides and offsets count
//! elements, and the order is row-major. Numbers from another process are checked before they are used.
//!
//! ```
//! use tensorferry_tensor::{AnyTensor, SharedTensor, Tensor, TensorMut};
//!
//! // One owner fills the tensor, then everybody reads it.
//! let mut image = TensorMut::<u8>::zeros([3, 480, 640])?;
//! image.as_mut_slice()[7] = 255;
//! let image: Tensor<u8> = image.freeze();
//!
//! // Views copy nothing.
//! let left_half = image.narrow(2, 0, 320)?.transpose(1, 2)?;
//! assert_eq!(left_half.shape(), &[3, 320, 480]);
//! assert_eq!(left_half.get([0, 7, 0])?, 255);
//! assert!(left_half.shares_storage_with(&image));
//!
//! // Without another holder, the memory can be written again.
//! drop(left_half);
//! let mut image = image.try_into_mut()?;
//! image.as_mut_slice().fill(0);
//!
//! // Several processes change these parameters at the same time.
//! let weights = SharedTensor::<f32>::zeros([128, 10])?;
//! weights.select(0, 5)?.add_scaled_from(&[1.0; 10], -0.5)?;
//! assert_eq!(weights.load([5, 9])?, -0.5);
//!
//! // The element type can be known at run time only.
//! let any = AnyTensor::from(Tensor::from_vec(vec![1_i64, 2, 3], [3])?);
//! assert_eq!(any.dtype().to_string(), "int64");
//! assert!(any.downcast::<f32>().is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! - `half` (on by default): elements `f16`, `bf16` and `Complex<f16>`.
//! - `ndarray`: tensors as array views (`as_array`, `as_array_mut`), and arrays as tensors.
//!
//! # What this crate does not do
//!
//! It computes nothing. It starts no processes and has no queue. `tensorferry-reduce` builds the messages.

#![forbid(unsafe_code)]

mod dims;
mod dtype;
mod element;
mod small_float;

mod layout;
mod shape;

mod any;
mod any_mut;
mod any_shared;
mod dynamic;
mod exclusive;
mod frozen;
mod sealed;
mod shared;

#[cfg(feature = "ndarray")]
mod nd;
mod wire;
#[cfg(test)]
mod wire_tests;

mod bytes;
mod listing;
mod recent;
mod sealed_socket;
mod sealed_storage;
mod storage;
mod views;
mod words;

mod error;

pub use any::{AnyTensor, DowncastError};
pub use any_mut::AnyTensorMut;
pub use any_shared::AnySharedTensor;
pub use dtype::{DType, ParseDTypeError};
pub use dynamic::DynTensor;
pub use element::{AtomicElement, AtomicNumber, Bool, Element};
pub use error::{FromVecError, SealedError, TensorError, TryIntoMutError, TryIntoMutErrorKind};
pub use exclusive::TensorMut;
pub use frozen::{Iter, Tensor};
#[cfg(feature = "half")]
pub use half::{bf16, f16};
pub use layout::{DimSlice, Layout, LayoutError, MAX_RANK, Offsets};
/// The crate whose arrays the feature `ndarray` knows: of another version they are other types.
#[cfg(feature = "ndarray")]
#[doc(no_inline)]
pub use ndarray;
pub use num_complex::Complex;
pub use sealed::SealedTensor;
pub use shape::Shape;
pub use shared::SharedTensor;
pub use small_float::{
    F4E2M1FnX2, F6E2M3Fn, F6E3M2Fn, F8E3M4, F8E4M3, F8E4M3B11Fnuz, F8E4M3Fn, F8E4M3Fnuz, F8E5M2, F8E5M2Fnuz,
    F8E8M0Fnu,
};
pub use tensorferry_storage::{BlockId, Heap, SharedBlock, StorageError};
pub use wire::is_description;
