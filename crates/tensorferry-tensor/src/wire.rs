//! What of a tensor stands in the payload of a message; the bytes themselves travel as a handle beside it.
//!
//! All three kinds of tensor have one form: dtype, shape, strides (absent when contiguous), offset, and the index of
//! the storage in the message's table of handles (absent when there are no elements). It is a string of bytes, whatever
//! the format of the message is: there may be hundreds in a message, and numbers that describe themselves take several times
//! as long to read. The table knows whether an entry is exclusive, frozen or shared, and refuses to hand it out as another.
//! Everything that arrives is checked before it is used: rank, overflow, the end of the storage, the element type.

mod numbers;
mod recent;

use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::ser::{self, Serialize, Serializer};
use tensorferry_storage::{ExclusiveBlock, FrozenBlock, SharedBlock};

use crate::any::AnyTensor;
use crate::dims::Dims;
use crate::dtype::DType;
use crate::element::{AtomicElement, Element};
use crate::error::TensorError;
use crate::exclusive::TensorMut;
use crate::frozen::Tensor;
use crate::layout::{Layout, LayoutError, LayoutRef, MAX_RANK};
use crate::shape::Shape;
use crate::shared::SharedTensor;
use crate::storage::FrozenStorage;
use numbers::Numbers;

/// The payload of one tensor as it is written, borrowed from the tensor. `docs/WIRE.md` has it as a table.
struct Described<'a> {
    dtype: DType,
    shape: &'a [usize],
    /// Row-major from element `offset` when absent.
    strides: Option<&'a [usize]>,
    offset: usize,
    /// Index in the message's table of handles.
    storage: Option<u32>,
}

/// The first byte of a description. No text begins with it, so that none is taken for one where both are possible.
const MARK: u8 = 0xff;
/// No description is longer: two lists of 64 numbers of at most 10 bytes, and a few more.
const MAX_BYTES: usize = 2 * MAX_RANK * 10 + 32;

/// The same as it is read: the numbers after the dtype are believed in nothing before [`WireTensor::layout`].
#[derive(Clone, Copy)]
struct WireTensor<'a> {
    dtype: DType,
    rest: &'a [u8],
}

impl Described<'_> {
    /// Writes the description into `numbers`, which stay where they are: there is room for many.
    #[inline]
    fn write(&self, numbers: &mut Numbers<MAX_BYTES>) {
        numbers.put(self.dtype.code().into());
        numbers.put_list(self.shape);
        numbers.put(self.strides.is_some().into());
        if let Some(strides) = self.strides {
            numbers.put_list(strides);
        }
        numbers.put(self.offset as u64);
        numbers.put(self.storage.is_some().into());
        if let Some(index) = self.storage {
            numbers.put(index.into());
        }
    }
}

impl Serialize for Described<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut numbers = Numbers::after(MARK);
        self.write(&mut numbers);
        serializer.serialize_bytes(numbers.as_bytes())
    }
}

/// What is made of a description that was read.
trait Receive: Sized {
    fn receive(wire: WireTensor<'_>) -> Result<Self, Refusal>;
}

/// Why nothing was made of a description.
enum Refusal {
    Unreadable(Unreadable),
    Refused(TensorError),
}

impl From<Unreadable> for Refusal {
    #[cold]
    fn from(error: Unreadable) -> Self {
        Self::Unreadable(error)
    }
}

impl<E: Into<TensorError>> From<E> for Refusal {
    #[cold]
    fn from(error: E) -> Self {
        Self::Refused(error.into())
    }
}

/// Reads a description and makes of it what is received, in one place.
fn receive<'de, R: Receive, D: Deserializer<'de>>(deserializer: D) -> Result<R, D::Error> {
    struct Bytes<R>(PhantomData<R>);

    impl<'de, R: Receive> Visitor<'de> for Bytes<R> {
        type Value = R;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the bytes of a tensor's description")
        }

        fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<R, E> {
            WireTensor::read(bytes).map_err(Refusal::from).and_then(R::receive).map_err(|refusal| {
                match refusal {
                    Refusal::Unreadable(error) => E::custom(error),
                    Refusal::Refused(error) => E::custom(told(error)),
                }
            })
        }

        /// From a format that has no bytes, through which a value may have gone on its way.
        fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<R, A::Error> {
            let mut bytes = Vec::new();
            while let Some(byte) = sequence.next_element()? {
                if bytes.len() == MAX_BYTES {
                    return Err(de::Error::invalid_length(MAX_BYTES + 1, &self));
                }
                bytes.push(byte);
            }
            self.visit_bytes(&bytes)
        }
    }

    deserializer.deserialize_bytes(Bytes(PhantomData))
}

/// Lengths or strides of a layout as a sequence; at most [`MAX_RANK`], and no allocation up to 5.
struct WireDims(Dims);

impl<'de> Deserialize<'de> for WireDims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DimsVisitor;

        impl<'de> Visitor<'de> for DimsVisitor {
            type Value = WireDims;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {MAX_RANK} numbers")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<WireDims, A::Error> {
                let mut dims = Dims::new();
                while let Some(number) = sequence.next_element()? {
                    if dims.len() == MAX_RANK {
                        return Err(de::Error::custom(LayoutError::RankTooLarge { rank: MAX_RANK + 1 }));
                    }
                    dims.push(number);
                }
                Ok(WireDims(dims))
            }
        }

        deserializer.deserialize_seq(DimsVisitor)
    }
}

/// Shape, strides (absent when contiguous), offset: plain numbers, which any format carries.
impl Serialize for Layout {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let strides = (!self.is_contiguous()).then_some(self.strides());
        (self.shape().as_slice(), strides, self.offset()).serialize(serializer)
    }
}

/// Refuses what [`Layout::new`] refuses.
impl<'de> Deserialize<'de> for Layout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (WireDims(shape), strides, offset): (_, Option<WireDims>, _) =
            Deserialize::deserialize(deserializer)?;
        let layout = Self::contiguous(shape).map_err(de::Error::custom)?;
        let strides = strides.as_ref().map_or(layout.strides(), |strides| &strides.0);
        Self::new(layout.shape(), strides, offset).map_err(de::Error::custom)
    }
}

/// Why a description cannot be read.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum Unreadable {
    #[error("what stands there describes no tensor")]
    NoTensor,
    #[error("a tensor's description is cut off")]
    CutOff,
    #[error("a tensor's description is {0} bytes too long")]
    TooLong(usize),
    #[error("no dtype has the code {0}")]
    DType(u64),
    #[error("no memory has {0} elements")]
    Length(u64),
    #[error("a tensor's description has {0} where it says whether something follows")]
    Flag(u64),
    #[error("no storage {0}")]
    Storage(u64),
    #[error("{}", LayoutError::RankTooLarge { rank: *.0 })]
    Rank(usize),
}

#[inline]
fn take_number(bytes: &mut &[u8]) -> Result<u64, Unreadable> {
    numbers::take(bytes).ok_or(Unreadable::CutOff)
}

#[inline]
fn take_length(bytes: &mut &[u8]) -> Result<usize, Unreadable> {
    let number = take_number(bytes)?;
    usize::try_from(number).map_err(|_| Unreadable::Length(number))
}

#[inline]
fn take_flag(bytes: &mut &[u8]) -> Result<bool, Unreadable> {
    match take_number(bytes)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Unreadable::Flag(other)),
    }
}

#[inline]
fn take_dims(bytes: &mut &[u8]) -> Result<Dims, Unreadable> {
    let rank = take_length(bytes)?;
    if rank > MAX_RANK {
        return Err(Unreadable::Rank(rank));
    }
    let mut dims = Dims::from_elem(0, rank);
    for dim in dims.iter_mut() {
        *dim = take_length(bytes)?;
    }
    Ok(dims)
}

impl<'a> Described<'a> {
    /// Describes a tensor; `give` puts its storage into the message and is called only if there are elements.
    fn of(
        dtype: DType,
        layout: &'a Layout,
        give: impl FnOnce() -> Result<u32, TensorError>,
    ) -> Result<Self, TensorError> {
        let storage = if layout.n_elements() == 0 { None } else { Some(give()?) };
        let strides = (!layout.is_contiguous()).then_some(layout.strides());
        Ok(Self { dtype, shape: layout.shape(), strides, offset: layout.offset(), storage })
    }
}

impl<'a> WireTensor<'a> {
    /// Refuses what describes no tensor of a dtype that there is.
    #[inline]
    fn read(bytes: &'a [u8]) -> Result<Self, Unreadable> {
        let Some((&MARK, mut rest)) = bytes.split_first() else { return Err(Unreadable::NoTensor) };
        let code = take_number(&mut rest)?;
        let dtype = u8::try_from(code).ok().and_then(DType::from_code).ok_or(Unreadable::DType(code))?;
        Ok(Self { dtype, rest })
    }

    /// The layout, checked, and the index of the storage. Refuses what is cut off, too long, or no number of its kind.
    #[inline]
    fn layout(mut self) -> Result<(LayoutRef, Option<u32>), Refusal> {
        let rest = &mut self.rest;
        let layout = recent::layout(rest, read_layout)?;
        let storage = take_storage(rest)?;
        match (storage, layout.n_elements()) {
            (Some(_), 0) => Err(TensorError::StorageAndShapeDisagree { given: "a", n_elements: 0 }.into()),
            (None, n_elements) if n_elements > 0 => {
                Err(TensorError::StorageAndShapeDisagree { given: "no", n_elements }.into())
            }
            _ => Ok((layout, storage)),
        }
    }

    #[inline]
    fn expect<T: Element>(&self) -> Result<(), TensorError> {
        if self.dtype != T::DTYPE {
            return Err(TensorError::DTypeMismatch { expected: T::DTYPE, found: self.dtype });
        }
        Ok(())
    }
}

/// The numbers of a layout, checked. It depends on nothing else.
#[cold]
fn read_layout(rest: &mut &[u8]) -> Result<Layout, Refusal> {
    let shape = Shape::from(take_dims(rest)?);
    let strides = if take_flag(rest)? { Some(take_dims(rest)?) } else { None };
    let offset = take_length(rest)?;
    let contiguous = Layout::contiguous(shape)?;
    Ok(match strides {
        None if offset == 0 => contiguous,
        None => Layout::new(contiguous.shape(), contiguous.strides(), offset)?,
        Some(strides) => Layout::new(contiguous.shape(), &strides, offset)?,
    })
}

/// The last number: the index of the storage, if there is one.
fn take_storage(rest: &mut &[u8]) -> Result<Option<u32>, Unreadable> {
    let index = if take_flag(rest)? { Some(take_number(rest)?) } else { None };
    if !rest.is_empty() {
        return Err(Unreadable::TooLong(rest.len()));
    }
    index.map(|index| u32::try_from(index).map_err(|_| Unreadable::Storage(index))).transpose()
}

impl<T: Element> Receive for TensorMut<T> {
    fn receive(wire: WireTensor<'_>) -> Result<Self, Refusal> {
        wire.expect::<T>()?;
        let (layout, storage) = wire.layout()?;
        if layout.offset() != 0 || !layout.is_contiguous() {
            return Err(TensorError::NotWhole { offset: layout.offset() }.into());
        }
        let block =
            storage.map_or_else(|| Ok(ExclusiveBlock::empty()), tensorferry_reduce::take_exclusive)?;
        Ok(Self::from_parts(block, layout)?)
    }
}

impl<T: Element> Receive for Tensor<T> {
    #[inline]
    fn receive(wire: WireTensor<'_>) -> Result<Self, Refusal> {
        wire.expect::<T>()?;
        let (layout, storage) = wire.layout()?;
        Ok(Self::from_parts(take_frozen(storage)?, layout)?)
    }
}

impl Receive for AnyTensor {
    #[inline]
    fn receive(wire: WireTensor<'_>) -> Result<Self, Refusal> {
        let dtype = wire.dtype;
        let (layout, storage) = wire.layout()?;
        Ok(Self::from_parts(dtype, take_frozen(storage)?, layout)?)
    }
}

impl<T: AtomicElement> Receive for SharedTensor<T> {
    #[inline]
    fn receive(wire: WireTensor<'_>) -> Result<Self, Refusal> {
        wire.expect::<T>()?;
        let (layout, storage) = wire.layout()?;
        let block = storage.map_or_else(|| Ok(SharedBlock::empty()), tensorferry_reduce::take_shared)?;
        Ok(Self::from_parts(block, layout)?)
    }
}

fn take_frozen(storage: Option<u32>) -> Result<FrozenStorage, TensorError> {
    let block = storage.map_or_else(|| Ok(FrozenBlock::empty()), tensorferry_reduce::take_frozen)?;
    Ok(FrozenStorage::Block(block))
}

fn give_frozen(storage: &FrozenStorage) -> Result<u32, TensorError> {
    if let Some(block) = storage.block() {
        return Ok(tensorferry_reduce::give_frozen(block)?);
    }
    let block = storage.share(|| tensorferry_reduce::heap().map_err(TensorError::from))?;
    Ok(tensorferry_reduce::give_frozen(&block)?)
}

fn write<S: Serializer>(wire: Result<Described<'_>, TensorError>, serializer: S) -> Result<S::Ok, S::Error> {
    wire.map_err(|error| ser::Error::custom(told(error)))?.serialize(serializer)
}

/// Tells the message in progress why, so that the caller of `put` or `get` has it as a typed error.
fn told(error: TensorError) -> TensorError {
    tensorferry_reduce::refuse(&error);
    error
}

/// Moves the tensor into the message that is being built. What stays here reads as empty, unless the message cannot be
/// sent. Outside of a message this is an error.
impl<T: Element> Serialize for TensorMut<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (block, shape) = self.parts();
        // Contiguous, always.
        let describe = || {
            let storage =
                if shape.contains(&0) { None } else { Some(tensorferry_reduce::give_exclusive(block)?) };
            Ok(Described { dtype: T::DTYPE, shape, strides: None, offset: 0, storage })
        };
        write(describe(), serializer)
    }
}

impl<'de, T: Element> Deserialize<'de> for TensorMut<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        receive(deserializer)
    }
}

/// Puts a handle into the message that is being built; private storage is copied into shared memory first, once.
/// Outside of a message this is an error.
impl<T: Element> Serialize for Tensor<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write(Described::of(T::DTYPE, self.layout(), || give_frozen(self.storage())), serializer)
    }
}

impl<'de, T: Element> Deserialize<'de> for Tensor<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        receive(deserializer)
    }
}

/// As for [`Tensor`].
impl Serialize for AnyTensor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write(Described::of(self.dtype(), self.layout(), || give_frozen(self.storage())), serializer)
    }
}

impl<'de> Deserialize<'de> for AnyTensor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        receive(deserializer)
    }
}

/// Puts a handle into the message that is being built; the receiver reads and writes the same memory. Outside of a
/// message this is an error.
impl<T: AtomicElement> Serialize for SharedTensor<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let give = || Ok(tensorferry_reduce::give_shared(self.block())?);
        write(Described::of(T::DTYPE, self.layout(), give), serializer)
    }
}

impl<'de, T: AtomicElement> Deserialize<'de> for SharedTensor<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        receive(deserializer)
    }
}

#[cfg(test)]
mod tests;
