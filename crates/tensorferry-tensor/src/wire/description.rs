//! The string of bytes that describes a tensor. `docs/WIRE.md` has it as a table.
//!
//! The storage comes first, because it differs from tensor to tensor. The *form* (dtype and layout) follows,
//! which most tensors of a stream have in common. An interned layout therefore keeps its numbers in encoded
//! form, and a form that was read recently is recognised as a whole (`recent.rs`).

use serde::ser::{Serialize, Serializer};
use tensorferry_reduce::HandleIndex;

use super::Refusal;
use super::known_forms;
use super::numbers::{self, Numbers};
use crate::dims::Dims;
use crate::dtype::DType;
use crate::error::TensorError;
use crate::layout::{Layout, LayoutError, LayoutRef, MAX_RANK};
use crate::shape::Shape;

/// The first byte of a description. No UTF-8 text begins with it, so a text cannot be mistaken for a
/// description.
pub(super) const MARK: u8 = 0xff;
/// The longest description: two lists of 64 numbers of at most 10 bytes, and a few more.
pub(super) const MAX_BYTES: usize = 2 * MAX_RANK * 10 + 32;

/// The bytes before the layout in a short description: the mark, the flag of the storage, its index, the
/// dtype.
const HEAD_BYTES: usize = 4;
const SHORT_WORDS: usize = 4;
const SHORT_BYTES: usize = SHORT_WORDS * 8;
/// An index below this is one byte.
const SHORT_INDEX: u32 = 0x80;

/// The encoded numbers of a layout, with room for the head before them, if all of it is short.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    /// Little-endian. The first [`HEAD_BYTES`] are zero.
    words: [u64; SHORT_WORDS],
    len_bytes: usize,
}

impl Written {
    /// Encodes a layout. `None` if its numbers are long.
    pub(crate) fn of(layout: &Layout) -> Option<Self> {
        let mut numbers = Numbers::<MAX_BYTES>::default();
        put_layout(&mut numbers, layout);
        let mut bytes = [0; SHORT_BYTES];
        let len_bytes = HEAD_BYTES + numbers.as_bytes().len();
        bytes.get_mut(HEAD_BYTES..len_bytes)?.copy_from_slice(numbers.as_bytes());
        let (words, _) = bytes.as_chunks();
        let words: &[[u8; 8]; SHORT_WORDS] = words.try_into().ok()?;
        Some(Self { words: words.map(u64::from_le_bytes), len_bytes })
    }

    /// The whole description. It is made in words, because a copy of bytes that were just written one by one
    /// stalls.
    #[inline]
    fn with_head(&self, index: u8, dtype: DType) -> [u64; SHORT_WORDS] {
        const { assert!(DType::F4E2M1FnX2.code() < 0x80, "the last code is one byte") };
        let head = u32::from_le_bytes([MARK, 1, index, dtype.code()]);
        let mut words = self.words;
        words[0] |= u64::from(head);
        words.map(u64::to_le)
    }

    #[cfg(test)]
    pub(super) fn bytes(&self, index: u8, dtype: DType) -> Vec<u8> {
        bytemuck::cast_slice(&self.with_head(index, dtype))[..self.len_bytes].to_vec()
    }
}

/// A tensor's description, borrowed from the tensor.
#[derive(Debug)]
pub(super) struct Description<'a> {
    pub(super) dtype: DType,
    pub(super) layout: &'a LayoutRef,
    /// Index in the message's table of handles.
    pub(super) storage: Option<u32>,
}

impl<'a> Description<'a> {
    /// Describes a tensor. `give` puts its storage into the message, and is called only if there are
    /// elements.
    #[inline]
    pub(super) fn of(
        dtype: DType,
        layout: &'a LayoutRef,
        give: impl FnOnce() -> Result<HandleIndex, Refusal>,
    ) -> Result<Self, Refusal> {
        let storage = if layout.n_elements() == 0 { None } else { Some(give()?.get()) };
        Ok(Self { dtype, layout, storage })
    }

    /// Encodes the description for any length of its numbers.
    #[cold]
    fn write(&self) -> Numbers<MAX_BYTES> {
        let mut numbers = Numbers::after(MARK);
        numbers.put(self.storage.is_some().into());
        if let Some(index) = self.storage {
            numbers.put(index.into());
        }
        numbers.put(self.dtype.code().into());
        put_layout(&mut numbers, self.layout);
        numbers
    }
}

impl Serialize for Description<'_> {
    #[inline]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let (Some(index @ ..SHORT_INDEX), Some(written)) = (self.storage, self.layout.written()) {
            let [index, ..] = index.to_le_bytes();
            let words = written.with_head(index, self.dtype);
            let (bytes, _) = bytemuck::cast_slice(&words).split_at(written.len_bytes);
            return serializer.serialize_bytes(bytes);
        }
        serializer.serialize_bytes(self.write().as_bytes())
    }
}

/// Writes shape, strides (absent when contiguous) and offset.
fn put_layout(numbers: &mut Numbers<MAX_BYTES>, layout: &Layout) {
    numbers.put_list(layout.shape());
    let strides = (!layout.is_contiguous()).then_some(layout.strides());
    numbers.put(strides.is_some().into());
    if let Some(strides) = strides {
        numbers.put_list(strides);
    }
    numbers.put(layout.offset() as u64);
}

/// A description that was received. The form is not checked before [`Received::form`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Received<'a> {
    /// Index in the message's table of handles. A whole word: half a word would share one with the tag, and
    /// reading both after writing them one by one would stall.
    storage: Option<usize>,
    form: &'a [u8],
}

/// Dtype and layout, checked.
#[derive(Clone, Debug)]
pub(super) struct Form {
    pub(super) dtype: DType,
    pub(super) layout: LayoutRef,
}

impl<'a> Received<'a> {
    /// Splits off the storage. Refuses bytes that do not begin a description.
    #[inline]
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, Unreadable> {
        // The usual case.
        if let [MARK, 1, index @ ..0x80, form @ ..] = bytes {
            return Ok(Self { storage: Some((*index).into()), form });
        }
        Self::read_any(bytes)
    }

    #[cold]
    fn read_any(bytes: &'a [u8]) -> Result<Self, Unreadable> {
        let Some((&MARK, mut form)) = bytes.split_first() else { return Err(Unreadable::NoTensor) };
        let index = if take_flag(&mut form)? { Some(take_number(&mut form)?) } else { None };
        let index = index.map(|index| usize::try_from(index).map_err(|_| Unreadable::Storage(index)));
        Ok(Self { storage: index.transpose()?, form })
    }

    /// Index in the message's table of handles.
    #[inline]
    pub(super) fn storage(&self) -> Result<Option<HandleIndex>, Unreadable> {
        let index = |index| {
            let number = u32::try_from(index).map_err(|_| Unreadable::Storage(index as u64));
            number.map(HandleIndex::new)
        };
        self.storage.map(index).transpose()
    }

    /// Checks the form. Refuses one that is cut off, too long, or has an invalid number; a dtype that is not
    /// `expected`; and a storage without elements, or elements without a storage.
    #[inline]
    pub(super) fn form(&self, expected: Option<DType>) -> Result<Form, Refusal> {
        let form = known_forms::form(self.form, read_form)?;
        if let Some(expected) = expected
            && form.dtype != expected
        {
            return Err(TensorError::DTypeMismatch { expected, found: form.dtype }.into());
        }
        match (self.storage, form.layout.n_elements()) {
            (Some(_), 0) => Err(Unreadable::StorageWithoutElements.into()),
            (None, n_elements) if n_elements > 0 => Err(Unreadable::NoStorage(n_elements).into()),
            _ => Ok(form),
        }
    }
}

/// Reads and checks the numbers of a form. The result depends on these bytes only.
#[cold]
fn read_form(form: &[u8]) -> Result<Form, Refusal> {
    let mut rest = form;
    let code = take_number(&mut rest)?;
    let dtype = u8::try_from(code).ok().and_then(DType::from_code).ok_or(Unreadable::DType(code))?;
    let layout = read_layout(&mut rest)?;
    if !rest.is_empty() {
        return Err(Unreadable::TooLong(rest.len()).into());
    }
    Ok(Form { dtype, layout: layout.into() })
}

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

/// Why a description cannot be read, or describes no tensor.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("the message has a storage for a tensor of 0 elements")]
    StorageWithoutElements,
    #[error("the message has no storage for a tensor of {0} elements")]
    NoStorage(usize),
    /// An exclusive tensor owns a whole storage in row-major order, but the message describes another layout.
    #[error("an exclusive tensor is contiguous from element 0, but the message has strides or offset {0}")]
    NotWhole(usize),
    /// A sealed tensor is all of its file.
    #[error("a sealed tensor is contiguous from element 0, but the message has strides or offset {0}")]
    SealedInParts(usize),
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

fn take_number(bytes: &mut &[u8]) -> Result<u64, Unreadable> {
    numbers::take(bytes).ok_or(Unreadable::CutOff)
}

fn take_length(bytes: &mut &[u8]) -> Result<usize, Unreadable> {
    let number = take_number(bytes)?;
    usize::try_from(number).map_err(|_| Unreadable::Length(number))
}

fn take_flag(bytes: &mut &[u8]) -> Result<bool, Unreadable> {
    match take_number(bytes)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Unreadable::Flag(other)),
    }
}

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
