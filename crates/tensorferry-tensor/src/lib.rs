//! Tensors in shared memory: dtypes, shapes, views, and three states with their rights.
//! (placeholder docs)
#![forbid(unsafe_code)]

mod dtype;
mod element;
mod small_float;

mod layout;
mod shape;

mod any;
mod exclusive;
mod frozen;
mod shared;

#[cfg(feature = "ndarray")]
mod nd;

mod bytes;
mod storage;
mod views;
mod wire;
mod words;

mod error;

pub use any::{AnyTensor, DowncastError};
pub use dtype::{DType, ParseDTypeError};
pub use element::{AtomicElement, AtomicNumber, Bool, Element};
pub use error::{FromVecError, TensorError, TryIntoMutError};
pub use exclusive::TensorMut;
pub use frozen::{Iter, Tensor};
pub use layout::{DimSlice, Layout, LayoutError, MAX_RANK, Offsets};
pub use num_complex::Complex;
pub use shape::Shape;
pub use shared::SharedTensor;
pub use small_float::{
    F4E2M1FnX2, F6E2M3Fn, F6E3M2Fn, F8E3M4, F8E4M3, F8E4M3B11Fnuz, F8E4M3Fn, F8E4M3Fnuz, F8E5M2, F8E5M2Fnuz,
    F8E8M0Fnu,
};
