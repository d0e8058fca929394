//! The storage of a frozen tensor: a private vector, or a block of shared memory.

use std::any::Any;
use std::hint::cold_path;
use std::sync::Arc;

use once_cell::sync::OnceCell;
use tensorferry_storage::{BlockId, FrozenBlock, Heap, StorageError};

use crate::bytes;
use crate::dtype::DType;
use crate::element::Element;
use crate::error::TensorError;
use crate::layout::Layout;

/// A copy in shared memory, counted.
fn copied_to(heap: &Heap, bytes: &[u8]) -> Result<FrozenBlock, StorageError> {
    let mut copy = heap.allocate(bytes.len())?;
    copy.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    tensorferry_reduce::count_copied(bytes.len());
    Ok(copy.freeze())
}

/// The bytes under frozen tensors. Cloning never copies them.
///
/// Each kind is one pointer, so that a storage is passed in two registers. (A wide pointer would be written
/// in two halves and read as a whole, for which a processor waits.)
pub(crate) enum FrozenStorage {
    /// Memory of this process only, until it is shared.
    Private(Arc<Box<dyn PrivateBytes>>),
    /// Memory that all processes of the domain can read.
    Block(FrozenBlock),
}

impl Clone for FrozenStorage {
    #[inline]
    fn clone(&self) -> Self {
        match self {
            Self::Block(block) => Self::Block(block.clone()),
            Self::Private(private) => {
                // What is sent and received lies in shared memory.
                cold_path();
                Self::Private(Arc::clone(private))
            }
        }
    }
}

/// A vector whose element type is erased.
pub(crate) trait PrivateBytes: Any + Send + Sync {
    fn bytes(&self) -> &[u8];
    /// The copy in shared memory, made when the first view of this storage is shared or sent. It is kept, so
    /// that all views, in one message or in many, arrive as views of one storage.
    fn copy(&self) -> &OnceCell<FrozenBlock>;
}

struct Private<T> {
    data: Vec<T>,
    /// INVARIANT: at most the bytes of `data`.
    len_bytes: usize,
    copy: OnceCell<FrozenBlock>,
}

impl<T: Element> PrivateBytes for Private<T> {
    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.data)[..self.len_bytes]
    }

    fn copy(&self) -> &OnceCell<FrozenBlock> {
        &self.copy
    }
}

impl FrozenStorage {
    /// Memory of this process that was made elsewhere in this crate.
    pub(crate) fn over_private(bytes: impl PrivateBytes) -> Self {
        Self::Private(Arc::new(Box::new(bytes)))
    }

    pub(crate) fn private<T: Element>(data: Vec<T>) -> Self {
        let len_bytes = size_of_val(data.as_slice());
        Self::private_prefix(data, len_bytes)
    }

    fn private_prefix<T: Element>(data: Vec<T>, len_bytes: usize) -> Self {
        Self::over_private(Private { data, len_bytes, copy: OnceCell::new() })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Private(private) => private.bytes(),
            Self::Block(block) => block.bytes(),
        }
    }

    /// The block in shared memory, if there is one yet.
    pub(crate) fn block(&self) -> Option<&FrozenBlock> {
        match self {
            Self::Block(block) => Some(block),
            Self::Private(private) => {
                cold_path();
                private.copy().get()
            }
        }
    }

    pub(crate) fn id(&self) -> Option<BlockId> {
        self.block().map(FrozenBlock::id)
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        if self.bytes().is_empty() || other.bytes().is_empty() {
            return false;
        }
        match (self, other) {
            (Self::Private(one), Self::Private(two)) => std::ptr::eq(one.bytes(), two.bytes()),
            _ => self.block().zip(other.block()).is_some_and(|(one, two)| one.ptr_eq(two)),
        }
    }

    /// The block in shared memory; a private storage is copied the first time, and its bytes are counted.
    pub(crate) fn share<E: From<StorageError>>(
        &self,
        heap: impl FnOnce() -> Result<Heap, E>,
    ) -> Result<FrozenBlock, E> {
        let private = match self {
            Self::Block(block) => return Ok(block.clone()),
            Self::Private(private) => private,
        };
        // Of several threads one copies, and the others wait for its copy.
        private.copy().get_or_try_init(|| Ok(copied_to(&heap()?, private.bytes())?)).cloned()
    }

    /// As [`FrozenStorage::share`], in the domain of `heap`: a private storage that was shared in another
    /// domain is copied again.
    pub(crate) fn share_in(&self, heap: &Heap) -> Result<FrozenBlock, StorageError> {
        let block = self.share(|| Ok::<_, StorageError>(heap.clone()))?;
        match self {
            Self::Private(private) if !block.heap().is_some_and(|own| own.is_same_domain(heap)) => {
                copied_to(heap, private.bytes())
            }
            _ => Ok(block),
        }
    }

    /// The vector itself, if this is its only reference and its elements are of type `T`.
    ///
    /// # Errors
    /// The storage, otherwise.
    pub(crate) fn try_into_vec<T: Element>(self) -> Result<Vec<T>, Self> {
        let Self::Private(mut private) = self else { return Err(self) };
        let bytes: Option<&mut dyn Any> = Arc::get_mut(&mut private).map(|bytes| &mut **bytes as _);
        match bytes.and_then(|bytes| bytes.downcast_mut::<Private<T>>()) {
            Some(private) => Ok(std::mem::take(&mut private.data)),
            None => Err(Self::Private(private)),
        }
    }

    /// A storage of the same kind (private or shared) with exactly the elements of `layout`, in row-major
    /// order.
    pub(crate) fn gathered(&self, dtype: DType, layout: &Layout) -> Result<Self, TensorError> {
        layout.check_fits(self.bytes().len() / dtype.size_bytes())?;
        let len_bytes = layout.n_elements() * dtype.size_bytes();
        self.copied(len_bytes, |from, to| bytes::gather(from, layout, dtype.size_bytes(), to))
    }

    /// A storage of the same kind (private or shared) with only the span that `layout` covers.
    /// `layout.rebased()` fits it.
    pub(crate) fn span(&self, dtype: DType, layout: &Layout) -> Result<Self, TensorError> {
        layout.check_fits(self.bytes().len() / dtype.size_bytes())?;
        let start = layout.offset() * dtype.size_bytes();
        let end = layout.end() * dtype.size_bytes();
        self.copied(end.saturating_sub(start), |from, to| to.copy_from_slice(&from[start..end]))
    }

    fn copied(&self, len_bytes: usize, fill: impl FnOnce(&[u8], &mut [u8])) -> Result<Self, TensorError> {
        let mut copy = match self {
            Self::Private(_) => {
                // Words, because their alignment is enough for every element type.
                let mut words = vec![0_u64; len_bytes.div_ceil(size_of::<u64>())];
                let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
                fill(self.bytes(), &mut bytes[..len_bytes]);
                return Ok(Self::private_prefix(words, len_bytes));
            }
            Self::Block(_) => Heap::current()?.allocate(len_bytes)?,
        };
        fill(self.bytes(), &mut copy.bytes_mut()[..len_bytes]);
        Ok(Self::Block(copy.freeze()))
    }
}
