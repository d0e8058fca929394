//! Tensors whose kind is known at run time only.

use crate::any::AnyTensor;
use crate::any_mut::AnyTensorMut;
use crate::any_shared::AnySharedTensor;

/// A tensor that was received, of whatever kind it was sent as, and with whatever elements. A tensor without
/// elements is frozen.
///
/// ```
/// use tensorferry_reduce::Parcel;
/// use tensorferry_storage::Heap;
/// use tensorferry_tensor::{DynTensor, TensorMut};
///
/// let parcel = Parcel::pack(Heap::current()?, &TensorMut::<u8>::zeros([3])?)?;
/// let received: DynTensor = Parcel::open(Heap::current()?, parcel.id())?;
/// let DynTensor::Exclusive(mut tensor) = received else { panic!("it was sent exclusive") };
/// tensor.as_mut_bytes().fill(7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum DynTensor {
    /// A [`Tensor`](crate::Tensor) of some type.
    Frozen(AnyTensor),
    /// A [`TensorMut`](crate::TensorMut) of some type.
    Exclusive(AnyTensorMut),
    /// A [`SharedTensor`](crate::SharedTensor) of some type.
    Shared(AnySharedTensor),
}
