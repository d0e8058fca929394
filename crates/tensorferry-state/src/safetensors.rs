//! Bundles from files in the format of safetensors, and as such files.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use ::safetensors::tensor::{Metadata, TensorInfo};
use ::safetensors::{Dtype, SafeTensorError, SafeTensors, View};
use tensorferry_storage::{FrozenBlock, Heap, StorageError};
use tensorferry_tensor::{AnyTensor, DType, Layout, TensorError};

use crate::{Bundle, BundleBuilder, BundleError, Entry};

/// What stands in a file beside its tensors: names and texts.
pub type SafetensorsMetadata = HashMap<String, String>;

/// The name of [`SafetensorsMetadata`] in a file.
const METADATA: &str = "__metadata__";

/// Why a file could not be read or written.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SafetensorsError {
    /// The file system refused.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file is not in the format, or cannot be written in it.
    #[error("{}: {error}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Why.
        error: SafeTensorError,
    },
    /// A tensor with the name under which the format keeps something else.
    #[error("`{METADATA}` is no name for a tensor in a file of safetensors: metadata has it there")]
    Name,
    /// Elements of a type that the other side does not know, or that are not whole bytes.
    #[error("`{name}`: {}", if *.is_read {
        format!("there is no {dtype} here")
    } else {
        format!("{dtype} cannot be written to a file of safetensors")
    })]
    DType {
        /// The tensor.
        name: String,
        /// The type.
        dtype: String,
        /// Whether it stands in a file that was read.
        is_read: bool,
    },
    /// The bundle cannot be made or read.
    #[error(transparent)]
    Bundle(#[from] BundleError),
}

tensorferry_storage::debug_as_display!(SafetensorsError);

impl From<StorageError> for SafetensorsError {
    fn from(error: StorageError) -> Self {
        Self::Bundle(error.into())
    }
}

impl Bundle {
    /// Reads a file in the format of safetensors into shared memory of the default domain. The bytes go from
    /// the file to where every process sees them, and are not copied again. The tensors are views of one
    /// storage, in the order in which they lie in the file.
    /// [`Bundle::load_safetensors_with_metadata`] also returns what else the file says.
    ///
    /// # Errors
    /// [`SafetensorsError`]. Every number in the file is checked.
    pub fn load_safetensors(path: impl AsRef<Path>) -> Result<Self, SafetensorsError> {
        Self::load_safetensors_in(Heap::current()?, path)
    }

    /// As [`Bundle::load_safetensors`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`Bundle::load_safetensors`].
    pub fn load_safetensors_in(heap: &Heap, path: impl AsRef<Path>) -> Result<Self, SafetensorsError> {
        Ok(load(heap, path.as_ref())?.0)
    }

    /// As [`Bundle::load_safetensors`], with the file's `__metadata__`, which is empty where it has none.
    ///
    /// # Errors
    /// As [`Bundle::load_safetensors`].
    pub fn load_safetensors_with_metadata(
        path: impl AsRef<Path>,
    ) -> Result<(Self, SafetensorsMetadata), SafetensorsError> {
        load(Heap::current()?, path.as_ref())
    }

    /// Writes the tensors to a file in the format of safetensors, in row-major order. A file of that name is
    /// replaced. Of a shared tensor that others write meanwhile, each word is that of some moment.
    ///
    /// # Errors
    /// [`SafetensorsError`]. After [`SafetensorsError::File`] and [`SafetensorsError::Format`] the file may
    /// have been written in part; otherwise it was not touched.
    pub fn save_safetensors(&self, path: impl AsRef<Path>) -> Result<(), SafetensorsError> {
        self.save(path.as_ref(), None)
    }

    /// As [`Bundle::save_safetensors`], with metadata beside the tensors. The libraries of Hugging Face want
    /// to find `("format", "pt")` there.
    ///
    /// # Errors
    /// As [`Bundle::save_safetensors`].
    pub fn save_safetensors_with_metadata(
        &self,
        path: impl AsRef<Path>,
        metadata: SafetensorsMetadata,
    ) -> Result<(), SafetensorsError> {
        self.save(path.as_ref(), Some(metadata))
    }

    fn save(&self, path: &Path, metadata: Option<SafetensorsMetadata>) -> Result<(), SafetensorsError> {
        if self.iter().any(|entry| entry.name() == METADATA) {
            return Err(SafetensorsError::Name);
        }
        let views = self.iter().map(|entry| Ok((entry.name(), Written::of(entry)?)));
        let views: Vec<_> = views.collect::<Result<_, SafetensorsError>>()?;
        ::safetensors::serialize_to_file(views, metadata, path)
            .map_err(|error| SafetensorsError::Format { path: path.to_owned(), error })
    }
}

/// Reads a file.
fn load(heap: &Heap, path: &Path) -> Result<(Bundle, SafetensorsMetadata), SafetensorsError> {
    let file = |error| SafetensorsError::File { path: path.to_owned(), error };
    let whole = read_into(heap, path).map_err(|error| match error {
        ReadError::File(error) => file(error),
        ReadError::Storage(error) => error.into(),
    })?;
    let (header_len_bytes, metadata) = SafeTensors::read_metadata(whole.bytes())
        .map_err(|error| SafetensorsError::Format { path: path.to_owned(), error })?;
    // The length of the header, the header, the data.
    let data_at = size_of::<u64>() + header_len_bytes;
    let mut builder = Bundle::builder();
    for (name, info) in in_order(&metadata) {
        let tensor = tensor_of(heap, &whole, data_at, &name, info)?;
        builder = builder.add(name, tensor);
    }
    let bundle = BundleBuilder::build_in(builder, heap)?;
    Ok((bundle, metadata.metadata().clone().unwrap_or_default()))
}

enum ReadError {
    File(std::io::Error),
    Storage(StorageError),
}

/// Reads a whole file into a block.
fn read_into(heap: &Heap, path: &Path) -> Result<FrozenBlock, ReadError> {
    // To open a pipe that nobody writes would wait for a writer.
    if !std::fs::metadata(path).map_err(ReadError::File)?.is_file() {
        return Err(ReadError::File(std::io::Error::new(ErrorKind::InvalidInput, "this is no regular file")));
    }
    let mut file = File::open(path).map_err(ReadError::File)?;
    let len_bytes = file.metadata().map_err(ReadError::File)?.len();
    let mut block =
        heap.allocate(usize::try_from(len_bytes).unwrap_or(usize::MAX)).map_err(ReadError::Storage)?;
    file.read_exact(block.bytes_mut()).map_err(ReadError::File)?;
    Ok(block.freeze())
}

/// The tensors of a file, in the order in which they lie there.
fn in_order(metadata: &Metadata) -> Vec<(String, &TensorInfo)> {
    let mut tensors: Vec<_> = metadata.tensors().into_iter().collect();
    tensors.sort_by(|(a_name, a), (b_name, b)| (a.data_offsets, a_name).cmp(&(b.data_offsets, b_name)));
    tensors
}

/// A view of the file, or a copy where the file has not aligned the elements.
fn tensor_of(
    heap: &Heap,
    whole: &FrozenBlock,
    data_at: usize,
    name: &str,
    info: &TensorInfo,
) -> Result<AnyTensor, SafetensorsError> {
    let fails = |error: TensorError| SafetensorsError::from(BundleError::of(name, error));
    let unknown =
        |_| SafetensorsError::DType { name: name.to_owned(), dtype: info.dtype.to_string(), is_read: true };
    let dtype: DType = info.dtype.to_string().parse().map_err(unknown)?;
    let layout = Layout::contiguous(info.shape.as_slice()).map_err(|error| fails(error.into()))?;
    let (begin, end) = (data_at + info.data_offsets.0, data_at + info.data_offsets.1);
    if begin.is_multiple_of(dtype.size_bytes()) {
        let view = Layout::new(layout.shape(), layout.strides(), begin / dtype.size_bytes());
        let view = view.map_err(|error| fails(error.into()))?;
        return AnyTensor::from_block(dtype, whole.clone(), view).map_err(fails);
    }
    let bytes = whole.bytes().get(begin..end).unwrap_or_default();
    let mut copy = heap.allocate(bytes.len())?;
    copy.bytes_mut().copy_from_slice(bytes);
    tensorferry_reduce::count_copied(bytes.len());
    AnyTensor::from_block(dtype, copy.freeze(), layout).map_err(fails)
}

/// A tensor on its way into a file.
struct Written<'a> {
    dtype: Dtype,
    shape: &'a [usize],
    data: Cow<'a, [u8]>,
}

impl<'a> Written<'a> {
    fn of(entry: Entry<'a>) -> Result<Self, SafetensorsError> {
        let dtype =
            KNOWN.iter().find(|known| known.to_string().parse() == Ok(entry.dtype())).copied().ok_or_else(
                || SafetensorsError::DType {
                    name: entry.name().to_owned(),
                    dtype: entry.dtype().to_string(),
                    is_read: false,
                },
            )?;
        Ok(Self { dtype, shape: entry.shape(), data: entry.to_bytes()? })
    }
}

impl View for Written<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.data)
    }

    fn data_len(&self) -> usize {
        self.data.len()
    }
}

/// The types of safetensors that are whole bytes.
const KNOWN: &[Dtype] = &[
    Dtype::BOOL,
    Dtype::U8,
    Dtype::I8,
    Dtype::F8_E5M2,
    Dtype::F8_E4M3,
    Dtype::F8_E8M0,
    Dtype::F8_E4M3FNUZ,
    Dtype::F8_E5M2FNUZ,
    Dtype::I16,
    Dtype::U16,
    Dtype::F16,
    Dtype::BF16,
    Dtype::I32,
    Dtype::U32,
    Dtype::F32,
    Dtype::C64,
    Dtype::F64,
    Dtype::I64,
    Dtype::U64,
];

impl<'a> Entry<'a> {
    /// The bytes of the elements in row-major order: where they lie, if that is how they lie.
    fn to_bytes(self) -> Result<Cow<'a, [u8]>, BundleError> {
        let (layout, size_bytes) = (self.layout(), self.dtype().size_bytes());
        let Some(index) = self.storage() else { return Ok(Cow::Borrowed(&[])) };
        if self.is_shared() {
            return Ok(Cow::Owned(self.snapshot(index)?.to_bytes()));
        }
        if !layout.is_contiguous() {
            return Ok(Cow::Owned(self.any_tensor()?.to_bytes()));
        }
        let bytes = self.raw().bytes(index).map_err(|error| BundleError::of(self.name(), error))?;
        layout.check_fits(bytes.len() / size_bytes).map_err(|error| BundleError::of(self.name(), error))?;
        let begin = layout.offset() * size_bytes;
        Ok(Cow::Borrowed(&bytes[begin..begin + layout.n_elements() * size_bytes]))
    }

    /// A copy of a shared tensor, as a frozen one.
    fn snapshot(self, index: usize) -> Result<AnyTensor, BundleError> {
        let fails = |error: TensorError| BundleError::of(self.name(), error);
        let shared = self.raw().shared(index).map_err(|error| fails(error.into()))?;
        let Some(heap) = shared.heap() else { return self.any_tensor() };
        let mut copy = heap.allocate(shared.len_bytes()).map_err(|error| fails(error.into()))?;
        for (bytes, word) in copy.bytes_mut().chunks_mut(8).zip(shared.words()) {
            let word = word.load(Ordering::Relaxed).to_le_bytes();
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
        AnyTensor::from_block(self.dtype(), copy.freeze(), self.layout().clone()).map_err(fails)
    }
}
