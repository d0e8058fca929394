//! The payload of a device tensor in a message: see docs/WIRE.md, *Device memory*.
//!
//! The rest travels as handles next to the payload: the blocks of the storage, of its slab, and of the
//! timeline that a receiver waits for. All received values are checked before they are used.

use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{self, Serialize, Serializer};
use tensorferry_reduce::{self as reduce, HandleIndex};
use tensorferry_tensor::{DType, Element, Layout};

use crate::control::{SlabControl, StorageControl, TimelineControl};
use crate::registry;
use crate::tensor::{CudaTensor, Memory, Point};
use crate::tensor_error::{CudaTensorError, Result};

/// Indexes in the message's table of handles: storage, slab, and timeline with the number of the point.
type WireMemory = (HandleIndex, HandleIndex, Option<(HandleIndex, u64)>);

/// The code of the dtype, the layout, and the memory (absent if there are no elements).
type WireTensor = (u8, Layout, Option<WireMemory>);

/// Puts handles into the message that is being built, and makes a point on the streams on which this process
/// has used the tensor. A receiver waits for that point. Outside of a message this is an error.
impl<T: Element> Serialize for CudaTensor<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A view without elements is sent without its memory.
        let memory = self.memory().filter(|_| self.n_elements() > 0);
        let memory = memory.map(give).transpose().map_err(|e| ser::Error::custom(refuse(e)))?;
        (T::DTYPE.code(), self.layout(), memory).serialize(serializer)
    }
}

impl<'de, T: Element> Deserialize<'de> for CudaTensor<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        take(WireTensor::deserialize(deserializer)?).map_err(|e| de::Error::custom(refuse(e)))
    }
}

/// Stores the error in the message in progress, so that the caller of `put` or `get` gets it.
fn refuse(error: CudaTensorError) -> CudaTensorError {
    reduce::refuse(&error);
    error
}

fn give(memory: &Memory) -> Result<WireMemory> {
    let (storage, slab) = (memory.hold.storage(), memory.hold.storage().slab());
    // First, because it fails outside of a message, before the driver is called.
    let storage_index = reduce::give_shared(storage.control().0.block())?;
    let slab_index = reduce::give_shared(slab.control().0.block())?;
    slab.store()?;
    let point = point_of(memory)?;
    let point = point.map(|(timeline, number)| {
        Ok::<_, CudaTensorError>((reduce::give_shared(timeline.control().0.block())?, number))
    });
    Ok((storage_index, slab_index, point.transpose()?))
}

/// The point that a receiver has to wait for. For a tensor that was received and not used since, it is the
/// point that came with it.
fn point_of(memory: &Memory) -> Result<Option<Point>> {
    if !memory.hold.is_used_here() {
        return Ok(memory.ready.clone());
    }
    memory.hold.record_after(memory.ready.as_ref())
}

fn take<T: Element>((code, layout, memory): WireTensor) -> Result<CudaTensor<T>> {
    let bad = |what| CudaTensorError::BadMessage { what };
    let found = DType::from_code(code).ok_or_else(|| bad("it names no dtype"))?;
    if found != T::DTYPE {
        return Err(CudaTensorError::DTypeMismatch { expected: T::DTYPE, found });
    }
    let (storage, slab, point) = match memory {
        Some(_) if layout.n_elements() == 0 => return Err(bad("a tensor without elements has memory")),
        None if layout.n_elements() > 0 => return Err(bad("a tensor with elements has no memory")),
        None => return Ok(CudaTensor::from_parts(None, layout)),
        Some(memory) => memory,
    };
    let storage =
        StorageControl::check(reduce::take_shared(storage)?).ok_or_else(|| bad("its block is no storage"))?;
    let slab = SlabControl::check(reduce::take_shared(slab)?).ok_or_else(|| bad("its block is no slab"))?;
    let ready = match point {
        Some((timeline, number)) => {
            let control = TimelineControl::check(reduce::take_shared(timeline)?);
            let control = control.ok_or_else(|| bad("its block is no timeline"))?;
            Some((registry::get().timeline(control)?, number))
        }
        None => None,
    };
    let hold = registry::get().hold(storage, slab)?;
    layout.check_fits(hold.storage().len_bytes() / size_of::<T>())?;
    Ok(CudaTensor::from_parts(Some(Memory { hold, ready }), layout))
}
