//! Many tensors as one: a bundle has named tensors and travels between processes as one handle.
//!
//! The parameters of a model are hundreds of tensors, and a replica needs all of them or none. A [`Bundle`]
//! is made once from tensors that exist, without copying them. To send it costs what sending one tensor
//! costs, and so does receiving it. A receiver reads the tensors where they lie ([`Entry::as_slice`]), or
//! takes those that it wants to keep ([`Entry::tensor`]).
//!
//! | | lives as long as | to make or get it |
//! | --- | --- | --- |
//! | a bundle | any process has it; its tensors live as long | one header in shared memory, however many tensors |
//! | an entry, and its slice | the borrow of the bundle | nothing in shared memory |
//! | a tensor that was taken out | itself | one header for each tensor |
//!
//! A bundle does not change. Its frozen tensors do not either; what a [`SharedTensor`] in it holds may be
//! written by any process, as ever.
//!
//! ```
//! use tensorferry_reduce::Parcel;
//! use tensorferry_state::Bundle;
//! use tensorferry_storage::Heap;
//! use tensorferry_tensor::{SharedTensor, Tensor};
//!
//! let weight = Tensor::from_vec(vec![1.0_f32, 2.0, 3.0, 4.0], [2, 2])?;
//! let steps = SharedTensor::<u64>::zeros([1])?;
//! let bundle = Bundle::builder().add("layer.weight", weight).add("steps", steps.clone()).build()?;
//!
//! // As `put` and `get` of a queue do: the message has one handle.
//! let heap = Heap::current()?;
//! let parcel = Parcel::pack(heap, &bundle)?;
//! let received: Bundle = Parcel::open(heap, parcel.id())?;
//! parcel.take_back();
//! drop(bundle);
//!
//! assert_eq!(received.entry("layer.weight")?.as_slice::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
//! received.entry("steps")?.shared_tensor::<u64>()?.store([0], 7)?;
//! assert_eq!(steps.load([0])?, 7);
//! let weight: Tensor<f32> = received.tensor("layer.weight")?; // lives without the bundle
//! drop(received);
//! assert_eq!(weight.get([1, 0])?, 3.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! - `safetensors`: [`Bundle`]s from files in that format, and as such files.
//!
//! # Limits
//!
//! A bundle has at most 65,535 storages, and any number of views of them. A device tensor cannot be in one,
//! and neither can another bundle. The process that made a bundle holds its tensors until no other process
//! has the bundle; it notices that within half a second, or when it needs memory.

#![forbid(unsafe_code)]

mod builder;
mod bundle;
mod copies;
mod entry;
mod error;
mod manifest;
#[cfg(feature = "safetensors")]
mod safetensors;

#[cfg(doc)]
use tensorferry_tensor::SharedTensor;

pub use builder::{BundleBuilder, BundleTensor};
pub use bundle::Bundle;
pub use entry::{Entry, Iter};
pub use error::{BundleError, ManifestError};
#[cfg(feature = "safetensors")]
pub use safetensors::{SafetensorsError, SafetensorsMetadata};
