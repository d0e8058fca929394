//! Making a bundle of tensors that exist.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tensorferry_storage::{BlockId, Heap, OutgoingHandle, OutgoingHandles, SharedBlock};
use tensorferry_tensor::{AnyTensor, AtomicElement, DType, Element, Layout, SharedTensor, Tensor};

use crate::manifest::{Described, Manifest};
use crate::{Bundle, BundleError};

/// The longest name, in bytes.
const MAX_NAME_BYTES: usize = 4096;

/// A tensor that becomes part of a bundle. Made by `into` from each kind of tensor but the exclusive one,
/// which is frozen or shared first.
#[derive(Clone, Debug)]
pub struct BundleTensor(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Frozen(AnyTensor),
    Shared { dtype: DType, block: SharedBlock, layout: Layout },
}

impl From<AnyTensor> for BundleTensor {
    fn from(tensor: AnyTensor) -> Self {
        Self(Kind::Frozen(tensor))
    }
}

impl<T: Element> From<Tensor<T>> for BundleTensor {
    fn from(tensor: Tensor<T>) -> Self {
        Self(Kind::Frozen(tensor.into()))
    }
}

impl<T: Element> From<&Tensor<T>> for BundleTensor {
    fn from(tensor: &Tensor<T>) -> Self {
        tensor.clone().into()
    }
}

impl<T: AtomicElement> From<SharedTensor<T>> for BundleTensor {
    fn from(tensor: SharedTensor<T>) -> Self {
        let (dtype, layout) = (tensor.dtype(), tensor.layout().clone());
        Self(Kind::Shared { dtype, block: tensor.into_block(), layout })
    }
}

impl<T: AtomicElement> From<&SharedTensor<T>> for BundleTensor {
    fn from(tensor: &SharedTensor<T>) -> Self {
        tensor.clone().into()
    }
}

/// Collects the tensors of a bundle; from [`Bundle::builder`]. Their order stays.
#[derive(Debug, Default)]
pub struct BundleBuilder {
    tensors: Vec<(String, BundleTensor)>,
}

/// A storage that the bundle has already, and whether it is shared.
type Storages = HashMap<(BlockId, bool), usize>;

impl BundleBuilder {
    /// Adds a tensor under a name, which no other tensor of the bundle may have.
    #[must_use]
    pub fn add(mut self, name: impl Into<String>, tensor: impl Into<BundleTensor>) -> Self {
        self.tensors.push((name.into(), tensor.into()));
        self
    }

    /// Makes the bundle in the default domain. Nothing is copied but private tensors, once.
    ///
    /// # Errors
    /// As [`BundleBuilder::build_in`].
    pub fn build(self) -> Result<Bundle, BundleError> {
        self.build_in(Heap::current()?)
    }

    /// As [`BundleBuilder::build`], in the domain of `heap`.
    ///
    /// # Errors
    /// [`BundleError::DuplicateName`], and [`BundleError::LongName`] above 4,096 bytes;
    /// [`BundleError::Storage`] when there is no memory for it, and for more than 65,535 storages;
    /// [`BundleError::ForeignDomain`] for a tensor of another domain; [`BundleError::Tensor`] when a private
    /// tensor cannot be copied into shared memory; [`BundleError::Manifest`] when the names and shapes of all
    /// take more than 2 GiB.
    pub fn build_in(self, heap: &Heap) -> Result<Bundle, BundleError> {
        let mut handles = OutgoingHandles::new();
        let mut storages = Storages::new();
        let mut tensors = Vec::with_capacity(self.tensors.len());
        check_names(&self.tensors)?;
        for (name, BundleTensor(kind)) in self.tensors {
            let (dtype, layout, is_shared, storage) = match kind {
                Kind::Frozen(tensor) => {
                    let block = tensor.to_block(heap).map_err(|error| BundleError::of(&name, error))?;
                    check(block.heap(), heap, &name)?;
                    let handle = || OutgoingHandle::frozen(&block);
                    let storage = place(&mut storages, &mut handles, (block.id(), false), handle);
                    (tensor.dtype(), tensor.layout().clone(), false, storage)
                }
                Kind::Shared { dtype, block, layout } => {
                    check(block.heap(), heap, &name)?;
                    let handle = || OutgoingHandle::shared(&block);
                    (dtype, layout, true, place(&mut storages, &mut handles, (block.id(), true), handle))
                }
            };
            let storage = storage.filter(|_| layout.n_elements() > 0);
            tensors.push(Described { name: name.into_boxed_str(), dtype, is_shared, storage, layout });
        }
        let manifest = Arc::new(Manifest::new(heap, tensors, handles.len()));
        Bundle::pack(heap, manifest, handles)
    }
}

fn check_names(tensors: &[(String, BundleTensor)]) -> Result<(), BundleError> {
    let mut known = HashSet::new();
    for (name, _) in tensors {
        if name.len() > MAX_NAME_BYTES {
            return Err(BundleError::LongName { len_bytes: name.len(), limit_bytes: MAX_NAME_BYTES });
        }
        if !known.insert(name) {
            return Err(BundleError::DuplicateName { name: name.clone() });
        }
    }
    Ok(())
}

/// A block's number is unique only within its domain, so the domains are compared first.
fn check(of: Option<&Heap>, heap: &Heap, name: &str) -> Result<(), BundleError> {
    match of {
        Some(of) if !of.is_same_domain(heap) => Err(BundleError::ForeignDomain { name: name.to_owned() }),
        _ => Ok(()),
    }
}

/// The number of a storage in the table; `None` for one without bytes.
fn place(
    storages: &mut Storages,
    handles: &mut OutgoingHandles,
    key: (BlockId, bool),
    handle: impl FnOnce() -> Option<OutgoingHandle>,
) -> Option<usize> {
    if let Some(index) = storages.get(&key) {
        return Some(*index);
    }
    handles.push(handle()?);
    storages.insert(key, handles.len() - 1);
    Some(handles.len() - 1)
}
