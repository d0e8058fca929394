//! The payload of a device tensor in a message: see docs/WIRE.md, *Device memory*.
//!
//! The rest travels as handles next to the payload: the blocks of the storage, of its slab, and of the
//! timeline that a receiver waits for. All received values are checked before they are used.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, SeqAccess};
use serde::ser::{self, Serialize, Serializer};
use serde_bytes::ByteArray;
use tensorferry_reduce::{self as reduce, HandleIndex};
use tensorferry_tensor::{DType, Element, Layout};

use crate::any::AnyCudaTensor;
use crate::control::{SlabControl, StorageControl, TimelineControl};
use crate::registry;
use crate::tensor::{CudaTensor, Memory, Point};
use crate::tensor_error::{CudaTensorError, Result};

/// Indexes in the message's table of handles: storage, slab, and timeline with the number of the point.
type WireMemory = (HandleIndex, HandleIndex, Option<(HandleIndex, u64)>);

/// The mark, the code of the dtype, the layout, and the memory (absent if there are no elements).
type WireTensor = (Mark, u8, Layout, Option<WireMemory>);

/// What stands first in a device tensor, so that a reader that knows no types can tell it from a list. No
/// UTF-8 text begins with its first byte, nor does anything else that travels by handle.
const MARK: &[u8] = b"\xfdCUDA";

#[derive(Clone, Copy, Debug)]
struct Mark;

impl Serialize for Mark {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(MARK)
    }
}

/// Also reads a format without bytes, which the value may have passed through on its way.
impl<'de> Deserialize<'de> for Mark {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let not = |why: &dyn fmt::Display| {
            de::Error::custom(format_args!("not the mark of a device tensor: {why}"))
        };
        let bytes = ByteArray::<{ MARK.len() }>::deserialize(deserializer).map_err(|error| not(&error))?;
        if AnyCudaTensor::is_mark(&*bytes) { Ok(Self) } else { Err(not(&format_args!("{bytes:?}"))) }
    }
}

/// Puts handles into the message that is being built, and makes a point on the streams on which this process
/// has used the tensor. A receiver waits for that point. Outside of a message this is an error.
impl<T: Element> Serialize for CudaTensor<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write(T::DTYPE, self.layout(), self.memory(), serializer)
    }
}

/// As for [`CudaTensor`].
impl Serialize for AnyCudaTensor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write(self.dtype(), self.layout(), self.memory(), serializer)
    }
}

impl<'de, T: Element> Deserialize<'de> for CudaTensor<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let tensor = AnyCudaTensor::deserialize(deserializer)?;
        tensor.downcast().map_err(|e| de::Error::custom(refuse(e)))
    }
}

impl<'de> Deserialize<'de> for AnyCudaTensor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (Mark, code, layout, memory) = WireTensor::deserialize(deserializer)?;
        take(code, layout, memory).map_err(|e| de::Error::custom(refuse(e)))
    }
}

impl AnyCudaTensor {
    /// Whether a sequence that begins with these bytes is a device tensor. For readers that know no types.
    #[must_use]
    pub fn is_mark(bytes: &[u8]) -> bool {
        bytes == MARK
    }

    /// Reads what follows the mark ([`AnyCudaTensor::is_mark`]) in its sequence, to the end of that.
    ///
    /// # Errors
    /// As deserializing a whole one.
    pub fn deserialize_behind_mark<'de, A: SeqAccess<'de>>(mut rest: A) -> Result<Self, A::Error> {
        let missing = |n_read| de::Error::invalid_length(n_read, &"a device tensor of four parts");
        let code = rest.next_element()?.ok_or_else(|| missing(1))?;
        let layout = rest.next_element()?.ok_or_else(|| missing(2))?;
        let memory = rest.next_element()?.ok_or_else(|| missing(3))?;
        if rest.next_element::<IgnoredAny>()?.is_some() {
            return Err(missing(5));
        }
        take(code, layout, memory).map_err(|e| de::Error::custom(refuse(e)))
    }
}

fn write<S: Serializer>(
    dtype: DType,
    layout: &Layout,
    memory: Option<&Memory>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    // A view without elements is sent without its memory.
    let memory = memory.filter(|_| layout.n_elements() > 0);
    let memory = memory.map(give).transpose().map_err(|e| ser::Error::custom(refuse(e)))?;
    (Mark, dtype.code(), layout, memory).serialize(serializer)
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

fn take(code: u8, layout: Layout, memory: Option<WireMemory>) -> Result<AnyCudaTensor> {
    let bad = |what| CudaTensorError::BadMessage { what };
    let dtype = DType::from_code(code).ok_or_else(|| bad("it names no dtype"))?;
    let (storage, slab, point) = match memory {
        Some(_) if layout.n_elements() == 0 => return Err(bad("a tensor without elements has memory")),
        None if layout.n_elements() > 0 => return Err(bad("a tensor with elements has no memory")),
        None => return Ok(AnyCudaTensor::from_parts(dtype, None, layout)),
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
    layout.check_fits(hold.storage().len_bytes() / dtype.size_bytes())?;
    Ok(AnyCudaTensor::from_parts(dtype, Some(Memory { hold, ready }), layout))
}
