//! A bundle: named tensors behind one handle.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tensorferry_storage::{BlockId, Bundle as RawBundle, Heap, OutgoingHandles};
use tensorferry_tensor::{AnyTensor, AtomicElement, Element, SharedTensor, Tensor};

use crate::manifest::Manifest;
use crate::{BundleBuilder, BundleError, BundleTensor, Entry, Iter};

/// Named tensors that travel together, as one handle: what torch calls a state dict. Cheap to clone.
///
/// The tensors live as long as any process has the bundle. Those that are taken out of it live by themselves.
#[doc(alias = "state_dict")]
#[derive(Clone)]
pub struct Bundle {
    raw: RawBundle,
    manifest: Arc<Manifest>,
}

impl Bundle {
    /// Begins a bundle.
    #[must_use]
    pub fn builder() -> BundleBuilder {
        BundleBuilder::default()
    }

    /// Makes a bundle of these tensors in the default domain. They are all of one Rust type here;
    /// [`Bundle::builder`] takes different ones. A `TensorMut` is frozen or shared first.
    ///
    /// # Errors
    /// As [`BundleBuilder::build`].
    pub fn new<N, M>(tensors: impl IntoIterator<Item = (N, M)>) -> Result<Self, BundleError>
    where
        N: Into<String>,
        M: Into<BundleTensor>,
    {
        let add = |builder: BundleBuilder, (name, tensor)| builder.add(name, tensor);
        tensors.into_iter().fold(Self::builder(), add).build()
    }

    /// Makes a bundle of these storages, about which the manifest speaks.
    pub(crate) fn pack(
        heap: &Heap,
        manifest: Arc<Manifest>,
        handles: OutgoingHandles,
    ) -> Result<Self, BundleError> {
        let raw = RawBundle::pack(heap, &manifest.to_payload()?, handles)?;
        manifest.remember();
        Ok(Self { raw, manifest })
    }

    pub(crate) fn raw(&self) -> &RawBundle {
        &self.raw
    }

    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// How many tensors it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.manifest.tensors().len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tensors with their names, in the order in which they were added.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter::over(self)
    }

    /// The names, in the order in which the tensors were added.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.manifest.tensors().iter().map(|tensor| &*tensor.name)
    }

    /// Whether it has a tensor of this name.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.manifest.find(name).is_some()
    }

    /// The tensor of this name, borrowed.
    ///
    /// # Errors
    /// [`BundleError::NoSuchTensor`].
    pub fn entry(&self, name: &str) -> Result<Entry<'_>, BundleError> {
        let missing = || BundleError::NoSuchTensor { name: name.to_owned(), n_tensors: self.len() };
        self.manifest.find(name).map(|tensor| Entry::new(self, tensor)).ok_or_else(missing)
    }

    /// The frozen tensor of this name, which lives without the bundle.
    ///
    /// # Errors
    /// [`BundleError::NoSuchTensor`], and those of [`Entry::tensor`].
    pub fn tensor<T: Element>(&self, name: &str) -> Result<Tensor<T>, BundleError> {
        self.entry(name)?.tensor()
    }

    /// As [`Bundle::tensor`], of any type.
    ///
    /// # Errors
    /// [`BundleError::NoSuchTensor`], and those of [`Entry::any_tensor`].
    pub fn any_tensor(&self, name: &str) -> Result<AnyTensor, BundleError> {
        self.entry(name)?.any_tensor()
    }

    /// The shared tensor of this name, which lives without the bundle.
    ///
    /// # Errors
    /// [`BundleError::NoSuchTensor`], and those of [`Entry::shared_tensor`].
    pub fn shared_tensor<T: AtomicElement>(&self, name: &str) -> Result<SharedTensor<T>, BundleError> {
        self.entry(name)?.shared_tensor()
    }

    /// Which block of shared memory the bundle itself lies in.
    #[must_use]
    pub fn id(&self) -> BlockId {
        self.raw.id()
    }
}

impl<'a> IntoIterator for &'a Bundle {
    type Item = Entry<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Puts one handle into the message that is being built. Outside a message this is an error.
impl Serialize for Bundle {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        tensorferry_reduce::give_bundle(&self.raw).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Bundle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let index = tensorferry_reduce::HandleIndex::deserialize(deserializer)?;
        let raw = tensorferry_reduce::take_bundle(index).map_err(serde::de::Error::custom)?;
        let manifest = Manifest::of(&raw).map_err(|error| {
            tensorferry_reduce::refuse(&error);
            serde::de::Error::custom(error)
        })?;
        Ok(Self { raw, manifest })
    }
}

/// Prints names, types and shapes.
impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|entry| (entry.name(), entry.described()))).finish()
    }
}
