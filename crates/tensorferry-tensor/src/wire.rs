//! The part of a tensor that travels in the payload of a message. The elements travel as a handle beside it.
//!
//! All kinds of tensor have the same description: the index of the storage in the message's table of handles
//! (absent when there are no elements), dtype, shape, strides (absent when contiguous) and offset. The
//! description is a string of bytes in every format. A message may have hundreds of them, and self-describing
//! numbers take several times as long to read. The table knows whether an entry is exclusive, frozen or
//! shared, and refuses to return it as another kind. Everything that arrives is checked before it is used:
//! rank, overflow, the end of the storage, the element type.

mod description;
mod known_forms;
mod numbers;

use std::fmt;
use std::hint::cold_path;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::ser::{self, Serialize, Serializer};
use tensorferry_reduce::{HandleIndex, HandleKind, TransitError};
use tensorferry_storage::{ExclusiveBlock, FrozenBlock, SharedBlock, StorageError};

use crate::any::AnyTensor;
use crate::any_mut::AnyTensorMut;
use crate::any_shared::AnySharedTensor;
use crate::dims::Dims;
use crate::dtype::DType;
use crate::dynamic::DynTensor;
use crate::element::{AtomicElement, Element};
use crate::error::TensorError;
use crate::exclusive::TensorMut;
use crate::frozen::Tensor;
use crate::layout::{Layout, LayoutError, MAX_RANK};
use crate::sealed::SealedTensor;
use crate::sealed_storage::SealedStorage;
use crate::shared::SharedTensor;
use crate::storage::FrozenStorage;
pub(crate) use description::Written;
use description::{Description, Form, MAX_BYTES, Received, Unreadable};

/// A tensor that is made from a description that was read.
trait Receive: Sized {
    fn receive(received: &Received<'_>) -> Result<Self, Refusal>;
}

/// Why a description could not be made from a tensor, or a tensor from a description.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Unreadable(Unreadable),
    #[error(transparent)]
    Transit(TransitError),
    #[error(transparent)]
    Refused(TensorError),
}

impl From<Unreadable> for Refusal {
    #[cold]
    fn from(error: Unreadable) -> Self {
        Self::Unreadable(error)
    }
}

impl From<TransitError> for Refusal {
    #[cold]
    fn from(error: TransitError) -> Self {
        Self::Transit(error)
    }
}

impl From<TensorError> for Refusal {
    #[cold]
    fn from(error: TensorError) -> Self {
        Self::Refused(error)
    }
}

impl From<StorageError> for Refusal {
    #[cold]
    fn from(error: StorageError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<LayoutError> for Refusal {
    #[cold]
    fn from(error: LayoutError) -> Self {
        Self::Refused(error.into())
    }
}

/// Reads a description and makes the tensor from it.
fn receive<'de, R: Receive, D: Deserializer<'de>>(deserializer: D) -> Result<R, D::Error> {
    struct Bytes<R>(PhantomData<R>);

    impl<'de, R: Receive> Visitor<'de> for Bytes<R> {
        type Value = R;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the bytes of a tensor's description")
        }

        fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<R, E> {
            // By reference: what is moved right after it was written in parts is waited for.
            let made = match &Received::read(bytes) {
                Ok(received) => R::receive(received),
                Err(unreadable) => Err((*unreadable).into()),
            };
            made.map_err(|refusal| E::custom(refuse(refusal)))
        }

        /// Reads a format without bytes, which the value may have passed through on its way.
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

/// Whether these bytes describe a tensor, of whichever message. Bytes of a user that do would arrive as a
/// tensor where the receiver knows no types.
#[must_use]
pub fn is_description(bytes: &[u8]) -> bool {
    Received::read(bytes).is_ok_and(|received| received.form(None).is_ok())
}

/// Lengths or strides of a layout as a sequence of at most [`MAX_RANK`]. Allocates above rank 5 only.
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

/// Writes shape, strides (absent when contiguous) and offset, as plain numbers that any format carries.
impl Serialize for Layout {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let strides = (!self.is_contiguous()).then_some(self.strides());
        (self.shape().as_slice(), strides, self.offset()).serialize(serializer)
    }
}

/// Refuses the layouts that [`Layout::new`] refuses.
impl<'de> Deserialize<'de> for Layout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (WireDims(shape), strides, offset): (_, Option<WireDims>, _) =
            Deserialize::deserialize(deserializer)?;
        let layout = Self::contiguous(shape).map_err(de::Error::custom)?;
        let strides = strides.as_ref().map_or(layout.strides(), |strides| &strides.0);
        Self::new(layout.shape(), strides, offset).map_err(de::Error::custom)
    }
}

impl<T: Element> Receive for TensorMut<T> {
    fn receive(received: &Received<'_>) -> Result<Self, Refusal> {
        let storage = received.storage()?;
        let layout = received.form(Some(T::DTYPE))?.layout;
        Ok(Self::from_parts(take_exclusive(storage, &layout)?, layout)?)
    }
}

impl Receive for AnyTensorMut {
    fn receive(received: &Received<'_>) -> Result<Self, Refusal> {
        let storage = received.storage()?;
        let Form { dtype, layout } = received.form(None)?;
        Ok(Self::from_parts(dtype, take_exclusive(storage, &layout)?, layout)?)
    }
}

impl<T: Element> Receive for Tensor<T> {
    #[inline]
    fn receive(received: &Received<'_>) -> Result<Self, Refusal> {
        let storage = received.storage()?;
        let layout = received.form(Some(T::DTYPE))?.layout;
        Ok(Self::from_block(take_frozen(storage)?, layout)?)
    }
}

impl Receive for AnyTensor {
    #[inline]
    fn receive(received: &Received<'_>) -> Result<Self, Refusal> {
        let storage = received.storage()?;
        let Form { dtype, layout } = received.form(None)?;
        Ok(Self::over_block(dtype, take_frozen(storage)?, layout)?)
    }
}

impl<T: AtomicElement> Receive for SharedTensor<T> {
    #[inline]
    fn receive(received: &Received<'_>) -> Result<Self, Refusal> {
        let storage = received.storage()?;
        let layout = received.form(Some(T::DTYPE))?.layout;
        Ok(Self::from_parts(take_shared(storage)?, layout)?)
    }
}

impl Receive for AnySharedTensor {
    #[inline]
    fn receive(received: &Received<'_>) -> Result<Self, Refusal> {
        let storage = received.storage()?;
        let Form { dtype, layout } = received.form(None)?;
        Ok(Self::over_block(dtype, take_shared(storage)?, layout)?)
    }
}

impl Receive for DynTensor {
    fn receive(received: &Received<'_>) -> Result<Self, Refusal> {
        match received.storage()?.and_then(tensorferry_reduce::handle_kind) {
            Some(HandleKind::Exclusive) => AnyTensorMut::receive(received).map(Self::Exclusive),
            Some(HandleKind::Shared) => AnySharedTensor::receive(received).map(Self::Shared),
            _ => AnyTensor::receive(received).map(Self::Frozen),
        }
    }
}

/// Takes the block of an exclusive tensor, which is contiguous from element 0.
fn take_exclusive(storage: Option<HandleIndex>, layout: &Layout) -> Result<ExclusiveBlock, Refusal> {
    if layout.offset() != 0 || !layout.is_contiguous() {
        return Err(Unreadable::NotWhole(layout.offset()).into());
    }
    Ok(storage.map_or_else(|| Ok(ExclusiveBlock::empty()), tensorferry_reduce::take_exclusive)?)
}

fn take_shared(storage: Option<HandleIndex>) -> Result<SharedBlock, TransitError> {
    storage.map_or_else(|| Ok(SharedBlock::empty()), tensorferry_reduce::take_shared)
}

fn take_frozen(storage: Option<HandleIndex>) -> Result<FrozenBlock, TransitError> {
    storage.map_or_else(|| Ok(FrozenBlock::empty()), tensorferry_reduce::take_frozen)
}

fn give_frozen(storage: &FrozenStorage) -> Result<HandleIndex, Refusal> {
    let copied;
    let block = match storage.block() {
        Some(block) => block,
        None => {
            cold_path();
            copied = storage.share(|| tensorferry_reduce::heap().map_err(Refusal::from))?;
            &copied
        }
    };
    Ok(tensorferry_reduce::give_frozen(block)?)
}

fn write<S: Serializer>(
    described: Result<Description<'_>, Refusal>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    described.map_err(|error| ser::Error::custom(refuse(error)))?.serialize(serializer)
}

/// Records the refusal in the message in progress, so that the caller of `put` or `get` gets a typed error.
/// Returns its text. A description that cannot be read says nothing about a tensor, and its error is left to
/// serde.
fn refuse(refusal: Refusal) -> String {
    let text = refusal.to_string();
    match refusal {
        Refusal::Unreadable(_) => {}
        Refusal::Refused(TensorError::Storage(shortage)) if shortage.is_out_of_memory() => {
            tensorferry_reduce::refuse_as(TransitError::NoMemory(Arc::new(shortage)));
        }
        Refusal::Refused(TensorError::Sealed(error)) if error.is_for_now() => {
            tensorferry_reduce::refuse_as(TransitError::NotNow(text.clone()));
        }
        _ => tensorferry_reduce::refuse(&text),
    }
    text
}

/// Moves the tensor into the message that is being built. The tensor here reads as empty then, unless the
/// message cannot be sent. Outside a message this is an error.
impl<T: Element> Serialize for TensorMut<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (block, layout) = self.parts();
        let give = || Ok(tensorferry_reduce::give_exclusive(block)?);
        write(Description::of(T::DTYPE, layout, give), serializer)
    }
}

impl<'de, T: Element> Deserialize<'de> for TensorMut<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        receive(deserializer)
    }
}

/// Puts a handle into the message that is being built. A private storage is copied into shared memory first,
/// once. Outside a message this is an error.
impl<T: Element> Serialize for Tensor<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write(Description::of(T::DTYPE, self.layout_ref(), || give_frozen(self.storage())), serializer)
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
        write(Description::of(self.dtype(), self.layout_ref(), || give_frozen(self.storage())), serializer)
    }
}

impl<'de> Deserialize<'de> for AnyTensor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        receive(deserializer)
    }
}

/// Puts a handle into the message that is being built. The receiver reads and writes the same memory. Outside
/// a message this is an error.
impl<T: AtomicElement> Serialize for SharedTensor<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let give = || Ok(tensorferry_reduce::give_shared(self.block())?);
        write(Description::of(T::DTYPE, self.layout_ref(), give), serializer)
    }
}

impl<'de, T: AtomicElement> Deserialize<'de> for SharedTensor<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        receive(deserializer)
    }
}

/// As for [`TensorMut`].
impl Serialize for AnyTensorMut {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (block, layout) = self.parts();
        let give = || Ok(tensorferry_reduce::give_exclusive(block)?);
        write(Description::of(self.dtype(), layout, give), serializer)
    }
}

impl<'de> Deserialize<'de> for AnyTensorMut {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        receive(deserializer)
    }
}

/// As each kind.
impl Serialize for DynTensor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Frozen(tensor) => tensor.serialize(serializer),
            Self::Exclusive(tensor) => tensor.serialize(serializer),
            Self::Shared(tensor) => tensor.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for DynTensor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        receive(deserializer)
    }
}

/// As for [`SharedTensor`].
impl Serialize for AnySharedTensor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let give = || Ok(tensorferry_reduce::give_shared(self.block())?);
        write(Description::of(self.dtype(), self.layout_ref(), give), serializer)
    }
}

impl<'de> Deserialize<'de> for AnySharedTensor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        receive(deserializer)
    }
}

/// How a sealed tensor stands in a payload: its ticket (none if there are no elements), dtype and layout.
type Sealed<L> = (Option<HandleIndex>, u8, L);

/// Puts a handle into the message that is being built. Outside a message this is an error.
impl<T: Element> Serialize for SealedTensor<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let give = || -> Result<HandleIndex, Refusal> {
            let ticket = self.storage().ticket(&tensorferry_reduce::heap()?)?;
            Ok(tensorferry_reduce::give_shared(&ticket)?)
        };
        let ticket = (self.n_elements() > 0).then(give).transpose();
        let ticket = ticket.map_err(|error| ser::Error::custom(refuse(error)))?;
        let sealed: Sealed<&Layout> = (ticket, T::DTYPE.code(), self.as_tensor().layout());
        sealed.serialize(serializer)
    }
}

/// # Blocking
/// A file that this process has not yet is fetched from the process that made the domain: until that answers,
/// for 20 seconds at most.
impl<'de, T: Element> Deserialize<'de> for SealedTensor<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let sealed = Sealed::<Layout>::deserialize(deserializer)?;
        receive_sealed(sealed).map_err(|refusal| de::Error::custom(refuse(refusal)))
    }
}

fn receive_sealed<T: Element>((ticket, code, layout): Sealed<Layout>) -> Result<SealedTensor<T>, Refusal> {
    let found = DType::from_code(code).ok_or(Unreadable::DType(code.into()))?;
    if found != T::DTYPE {
        return Err(TensorError::DTypeMismatch { expected: T::DTYPE, found }.into());
    }
    if layout.offset() != 0 || !layout.is_contiguous() {
        return Err(Unreadable::SealedInParts(layout.offset()).into());
    }
    let storage = match (ticket, layout.n_elements()) {
        (Some(_), 0) => return Err(Unreadable::StorageWithoutElements.into()),
        (None, 0) => SealedStorage::create(0, |_| {}),
        (None, n_elements) => return Err(Unreadable::NoStorage(n_elements).into()),
        (Some(index), _) => SealedStorage::redeem(tensorferry_reduce::take_shared(index)?),
    };
    Ok(SealedTensor::checked(storage.map_err(TensorError::from)?, layout)?)
}

#[cfg(test)]
mod tests;
