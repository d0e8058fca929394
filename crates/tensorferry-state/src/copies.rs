//! Copies of whole bundles: frozen tensors to train on, and a snapshot of shared ones.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tensorferry_storage::{Bundle as RawBundle, Heap, OutgoingHandle, OutgoingHandles, StorageError};

use crate::manifest::{Described, Manifest};
use crate::{Bundle, BundleError};

impl Bundle {
    /// A bundle with the same names, types and shapes in which every tensor is shared: parameters to train
    /// on, from a checkpoint. What is frozen here is copied once; tensors of one storage have one storage in
    /// the copy too. What is shared already stays where it is.
    ///
    /// ```
    /// use tensorferry_state::Bundle;
    /// use tensorferry_tensor::Tensor;
    ///
    /// let checkpoint = Bundle::new([("weight", Tensor::from_vec(vec![1.0_f32, 2.0], [2])?)])?;
    /// let parameters = checkpoint.to_shared()?;
    /// let weight = parameters.shared_tensor::<f32>("weight")?; // in every process that gets the bundle
    /// weight.store([1], 5.0)?;
    /// assert_eq!(parameters.to_frozen()?.tensor::<f32>("weight")?.to_vec(), [1.0, 5.0]);
    /// assert_eq!(checkpoint.tensor::<f32>("weight")?.to_vec(), [1.0, 2.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`BundleError::Storage`] when there is no memory for it, [`BundleError::NotShareable`] for a tensor of
    /// `Complex<f64>`.
    pub fn to_shared(&self) -> Result<Self, BundleError> {
        // What several may write is written in one step.
        let too_long = |tensor: &&Described| tensor.dtype.size_bytes() > 8;
        if let Some(Described { name, dtype, .. }) = self.manifest().tensors().iter().find(too_long) {
            return Err(BundleError::NotShareable { name: name.to_string(), dtype: *dtype });
        }
        self.copied(true, |bundle, index, is_shared| {
            let block = match is_shared {
                true => bundle.shared(index)?,
                false => copy_of(bundle, bundle.bytes(index)?)?.share(),
            };
            Ok(OutgoingHandle::shared(&block))
        })
    }

    /// A bundle with the same names, types and shapes in which every tensor is frozen: a snapshot of
    /// parameters that others go on to change. What is shared here is copied once, what is frozen already
    /// stays where it is.
    ///
    /// Each 8 bytes are copied at once, but not all of them at the same moment: while others write, the
    /// snapshot has some of what they write.
    ///
    /// # Errors
    /// As [`Bundle::to_shared`].
    pub fn to_frozen(&self) -> Result<Self, BundleError> {
        self.copied(false, |bundle, index, is_shared| {
            let block = match is_shared {
                true => {
                    let shared = bundle.shared(index)?;
                    let mut copy = heap_of(bundle)?.allocate(shared.len_bytes())?;
                    for (bytes, word) in copy.bytes_mut().chunks_mut(8).zip(shared.words()) {
                        let word = word.load(Ordering::Relaxed).to_le_bytes();
                        bytes.copy_from_slice(&word[..bytes.len()]);
                    }
                    copy.freeze()
                }
                false => bundle.frozen(index)?,
            };
            Ok(OutgoingHandle::frozen(&block))
        })
    }

    /// A bundle of the same tensors, all shared or all frozen, whose storages come from `storage`. It is told
    /// the number of a storage in this bundle, and whether that is shared.
    fn copied(
        &self,
        is_shared: bool,
        storage: impl Fn(&RawBundle, usize, bool) -> Result<Option<OutgoingHandle>, StorageError>,
    ) -> Result<Self, BundleError> {
        let (mut handles, mut indexes) = (OutgoingHandles::new(), HashMap::new());
        let mut tensors = Vec::with_capacity(self.len());
        for tensor in self.manifest().tensors() {
            let index = match tensor.storage {
                None => None,
                Some(here) => match indexes.get(&here) {
                    Some(there) => Some(*there),
                    None => storage(self.raw(), here, tensor.is_shared)?.map(|handle| {
                        handles.push(handle);
                        indexes.insert(here, handles.len() - 1);
                        handles.len() - 1
                    }),
                },
            };
            tensors.push(Described { is_shared, storage: index, ..tensor.clone() });
        }
        let heap = heap_of(self.raw())?;
        let manifest = Arc::new(Manifest::new(heap, tensors, handles.len()));
        Self::pack(heap, manifest, handles)
    }
}

fn heap_of(bundle: &RawBundle) -> Result<&Heap, StorageError> {
    let gone = StorageError::NotInBundle { index: 0, wanted: "memory", n_blocks: 0 };
    bundle.heap().ok_or(gone)
}

fn copy_of(bundle: &RawBundle, bytes: &[u8]) -> Result<tensorferry_storage::ExclusiveBlock, StorageError> {
    let mut copy = heap_of(bundle)?.allocate(bytes.len())?;
    copy.bytes_mut().copy_from_slice(bytes);
    Ok(copy)
}
