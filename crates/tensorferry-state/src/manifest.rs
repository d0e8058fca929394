//! What a bundle says about its tensors: their names, types and layouts, and which storage each lies in.
//!
//! The manifest is the payload of the bundle: a head of two words, which no other manifest has, then an rkyv
//! archive of [`Written`]. A receiver checks all of it once and keeps what it has read. The head tells it
//! when the same bundle comes again. A head that somebody forges costs only whoever believes it: names and
//! layouts of one bundle are then looked for in the storages of another, and checked there.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use rkyv::rancor;
use tensorferry_storage::{Bundle, Heap};
use tensorferry_tensor::{DType, Layout};

use crate::ManifestError;

/// The words of the head.
pub(crate) const HEAD_WORDS: usize = 2;
const HEAD_BYTES: usize = HEAD_WORDS * 8;
/// The number of manifests that a thread remembers. A process has few bundles that come again and again.
const MAX_KNOWN: usize = 8;

/// A tensor in the archive.
#[derive(Debug, rkyv::Archive, rkyv::Serialize)]
struct WrittenTensor {
    name: String,
    /// [`DType::code`].
    dtype: u8,
    is_shared: bool,
    /// The number of the storage in the bundle's table; absent for a tensor without elements.
    storage: Option<u32>,
    shape: Vec<u64>,
    /// Absent for row-major order.
    strides: Option<Vec<u64>>,
    /// In elements.
    offset: u64,
}

/// The archive.
#[derive(Debug, Default, rkyv::Archive, rkyv::Serialize)]
struct Written {
    tensors: Vec<WrittenTensor>,
}

/// One tensor of a bundle.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    pub(crate) name: Box<str>,
    pub(crate) dtype: DType,
    pub(crate) is_shared: bool,
    /// The number of the storage in the bundle's table; `None` for a tensor without elements.
    pub(crate) storage: Option<usize>,
    pub(crate) layout: Layout,
}

/// A manifest that was checked.
#[derive(Debug)]
pub(crate) struct Manifest {
    head: [u64; HEAD_WORDS],
    /// How many storages the bundle has.
    n_blocks: usize,
    tensors: Vec<Described>,
    by_name: HashMap<Box<str>, usize>,
}

impl Manifest {
    /// A manifest that this process makes of these tensors, whose names differ.
    pub(crate) fn new(heap: &Heap, tensors: Vec<Described>, n_blocks: usize) -> Self {
        let me = heap.domain().me();
        Self::made_by((me.slot, me.epoch), tensors, n_blocks)
    }

    /// As [`Manifest::new`], by the member with this slot and epoch.
    fn made_by(maker: (u8, u32), tensors: Vec<Described>, n_blocks: usize) -> Self {
        let by_name = tensors.iter().enumerate().map(|(at, tensor)| (tensor.name.clone(), at)).collect();
        Self { head: new_head(maker), n_blocks, tensors, by_name }
    }

    pub(crate) fn tensors(&self) -> &[Described] {
        &self.tensors
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Described> {
        self.tensors.get(*self.by_name.get(name)?)
    }

    /// The payload of a bundle.
    pub(crate) fn to_payload(&self) -> Result<Vec<u8>, ManifestError> {
        let numbers = |dims: &[usize]| dims.iter().map(|dim| *dim as u64).collect();
        let tensors = self.tensors.iter().map(|tensor| WrittenTensor {
            name: tensor.name.clone().into(),
            dtype: tensor.dtype.code(),
            is_shared: tensor.is_shared,
            storage: tensor.storage.and_then(|index| u32::try_from(index).ok()),
            shape: numbers(tensor.layout.shape()),
            strides: (!tensor.layout.is_contiguous()).then(|| numbers(tensor.layout.strides())),
            offset: tensor.layout.offset() as u64,
        });
        let written = Written { tensors: tensors.collect() };
        let archive = rkyv::to_bytes::<rancor::Error>(&written)
            .map_err(|error| ManifestError::Unreadable(error.to_string()))?;
        let head = self.head.map(u64::to_le_bytes);
        Ok([head.as_flattened(), &archive].concat())
    }

    /// Reads the manifest of a bundle, unless this thread has read it before.
    pub(crate) fn of(bundle: &Bundle) -> Result<Arc<Self>, ManifestError> {
        let head = bundle.payload_head();
        // A thread that is ending remembers nothing any more.
        let is_it = |other: &&Arc<Self>| other.head == head && other.n_blocks == bundle.n_blocks();
        let known = KNOWN.try_with(|known| known.borrow().iter().find(is_it).cloned());
        if let Ok(Some(manifest)) = known {
            return Ok(manifest);
        }
        let manifest = Arc::new(Self::read(&bundle.payload(), bundle.n_blocks())?);
        manifest.remember();
        Ok(manifest)
    }

    /// Has this thread know the manifest when its bundle comes back.
    pub(crate) fn remember(self: &Arc<Self>) {
        let _ = KNOWN.try_with(|known| {
            let mut known = known.borrow_mut();
            known.truncate(MAX_KNOWN - 1);
            known.insert(0, Arc::clone(self));
        });
    }

    /// Checks everything: the archive, types, layouts, storages, names.
    pub(crate) fn read(payload: &[u8], n_blocks: usize) -> Result<Self, ManifestError> {
        let unreadable = |error: rancor::Error| ManifestError::Unreadable(error.to_string());
        let Some((head, archive)) = payload.split_first_chunk::<HEAD_BYTES>() else {
            return Err(ManifestError::Unreadable(format!("{} bytes are too few", payload.len())));
        };
        let archive = rkyv::access::<ArchivedWritten, rancor::Error>(archive).map_err(unreadable)?;
        let (head, _) = head.as_chunks::<8>();
        let head = std::array::from_fn(|at| head.get(at).map_or(0, |word| u64::from_le_bytes(*word)));
        // The checks have found room for each of them in the payload.
        let mut tensors = Vec::with_capacity(archive.tensors.len());
        let mut by_name = HashMap::with_capacity(archive.tensors.len());
        for written in archive.tensors.iter() {
            let tensor = written.check(n_blocks)?;
            if by_name.insert(tensor.name.clone(), tensors.len()).is_some() {
                return Err(ManifestError::DuplicateName(tensor.name.into()));
            }
            tensors.push(tensor);
        }
        Ok(Self { head, n_blocks, tensors, by_name })
    }
}

impl ArchivedWrittenTensor {
    fn check(&self, n_blocks: usize) -> Result<Described, ManifestError> {
        let code = self.dtype;
        let dtype = DType::from_code(code).ok_or(ManifestError::DType { code })?;
        let contiguous = Layout::contiguous(lengths(&self.shape)?)?;
        let offset = length(self.offset.to_native())?;
        let layout = match self.strides.as_ref() {
            None if offset == 0 => contiguous,
            None => Layout::new(contiguous.shape(), contiguous.strides(), offset)?,
            Some(strides) => Layout::new(contiguous.shape(), &lengths(strides)?, offset)?,
        };
        let storage = self.storage.as_ref().map(|index| index.to_native());
        let index = match storage {
            Some(index) => {
                let found = usize::try_from(index).ok().filter(|index| *index < n_blocks);
                Some(found.ok_or(ManifestError::Storage { index, n_blocks })?)
            }
            None if layout.n_elements() > 0 => {
                return Err(ManifestError::Storage { index: u32::MAX, n_blocks });
            }
            None => None,
        };
        let name = Box::from(self.name.as_str());
        Ok(Described { name, dtype, is_shared: self.is_shared, storage: index, layout })
    }
}

fn length(number: u64) -> Result<usize, ManifestError> {
    usize::try_from(number).map_err(|_| ManifestError::Length(number))
}

fn lengths(numbers: &[rkyv::rend::unaligned::u64_ule]) -> Result<Vec<usize>, ManifestError> {
    numbers.iter().map(|number| length(number.to_native())).collect()
}

/// Two words that no other manifest begins with: this member's own random number, and a count.
fn new_head(maker: (u8, u32)) -> [u64; HEAD_WORDS] {
    static RANDOM: OnceLock<RandomState> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // A forked process has a copy of both, and may have the process ID of another one that has ended. But no
    // earlier member had its slot and epoch.
    let process = RANDOM.get_or_init(RandomState::new).hash_one((std::process::id(), maker));
    [process, COUNT.fetch_add(1, Ordering::Relaxed)]
}

thread_local! {
    /// The manifests that this thread has read last, the last one first.
    static KNOWN: RefCell<Vec<Arc<Manifest>>> = const { RefCell::new(Vec::new()) };
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use proptest::prelude::*;

    use super::*;

    fn described(name: &str, storage: Option<usize>, layout: Layout) -> Described {
        Described { name: name.into(), dtype: DType::F32, is_shared: storage == Some(1), storage, layout }
    }

    const MAKER: (u8, u32) = (1, 1);

    fn manifest() -> Manifest {
        let view = Layout::contiguous([4, 6]).unwrap().narrow(1, 2, 3).unwrap();
        let tensors = vec![
            described("one", Some(0), Layout::contiguous([2, 3]).unwrap()),
            described("two", Some(1), view),
            described("none", None, Layout::contiguous([0, 3]).unwrap()),
        ];
        Manifest::made_by(MAKER, tensors, 2)
    }

    #[test]
    fn what_is_written_is_read() {
        let written = manifest();
        let read = Manifest::read(&written.to_payload().unwrap(), 2).unwrap();
        assert_eq!(read.head, written.head);
        assert_eq!(format!("{:?}", read.tensors), format!("{:?}", written.tensors));
        assert_eq!(read.find("two").unwrap().layout.offset(), 2);
        assert!(read.find("three").is_none());
        assert_ne!(manifest().head, written.head);
    }

    #[test]
    fn members_that_were_forked_from_one_have_other_heads() {
        let of = |epoch| new_head((1, epoch))[0];
        assert_eq!(of(1), of(1));
        // Both may have the number of a process that has ended, and have counted as far.
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let payload = manifest().to_payload().unwrap();
        let refused = |payload: &[u8], n_blocks| Manifest::read(payload, n_blocks).unwrap_err();
        assert!(matches!(refused(&payload, 1), ManifestError::Storage { index: 1, n_blocks: 1 }));
        assert!(matches!(refused(&[1; 15], 1), ManifestError::Unreadable(_)));
        assert!(matches!(refused(&[], 1), ManifestError::Unreadable(_)));
        let without =
            Manifest::made_by(MAKER, vec![described("one", None, Layout::contiguous([1]).unwrap())], 0);
        assert!(matches!(refused(&without.to_payload().unwrap(), 9), ManifestError::Storage { .. }));
        let twice = ["a", "a"].map(|name| described(name, Some(0), Layout::contiguous([1]).unwrap()));
        let twice = Manifest::made_by(MAKER, twice.into(), 1).to_payload().unwrap();
        assert!(matches!(refused(&twice, 1), ManifestError::DuplicateName(name) if name == "a"));
    }

    #[test]
    fn the_archive_is_that_of_the_document() {
        const WIRE: &str = include_str!("../../../docs/WIRE.md");
        let table = WIRE.split("### Manifest\n").nth(1).unwrap().split("\n### ").next().unwrap();
        let mut end = 0;
        for (field, offset) in [
            ("name", offset_of!(ArchivedWrittenTensor, name)),
            ("dtype", offset_of!(ArchivedWrittenTensor, dtype)),
            ("is_shared", offset_of!(ArchivedWrittenTensor, is_shared)),
            ("storage", offset_of!(ArchivedWrittenTensor, storage)),
            ("shape", offset_of!(ArchivedWrittenTensor, shape)),
            ("strides", offset_of!(ArchivedWrittenTensor, strides)),
            ("offset", offset_of!(ArchivedWrittenTensor, offset)),
        ] {
            let row = table.lines().find(|line| line.contains(&format!(" | `{field}` | "))).unwrap();
            let numbers: Vec<usize> = row.split('|').filter_map(|cell| cell.trim().parse().ok()).collect();
            assert_eq!((numbers[0], numbers[0]), (offset, end), "{row}");
            end += numbers[1];
        }
        assert_eq!(end, size_of::<ArchivedWrittenTensor>());
        let one =
            Manifest::made_by(MAKER, vec![described("w", Some(1), Layout::contiguous([3]).unwrap())], 2);
        let payload = one.to_payload().unwrap();
        let f32_code = DType::F32.code();
        let expected = [
            &[3, 0, 0, 0, 0, 0, 0, 0][..],              // what the shape points to
            &[b'w', 255, 255, 255, 255, 255, 255, 255], // the name, in its place
            &[f32_code, 1, 1, 1, 0, 0, 0],              // type, shared, some storage
            &[233, 255, 255, 255, 1, 0, 0, 0],          // one length, 23 bytes before this
            &[0; 17],                                   // no strides; offset 0
            &[216, 255, 255, 255, 1, 0, 0, 0],          // the root: one tensor, 40 bytes before this
        ];
        assert_eq!(payload[HEAD_BYTES..], expected.concat());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_manifest_or_an_error(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            at in any::<prop::sample::Index>(),
            value: u8,
        ) {
            let _ = Manifest::read(&bytes, 2);
            let mut payload = manifest().to_payload().unwrap();
            let at = at.index(payload.len());
            payload[at] = value;
            if let Ok(read) = Manifest::read(&payload, 2) {
                for tensor in read.tensors() {
                    prop_assert!(tensor.storage.is_none_or(|index| index < 2));
                }
            }
        }
    }
}
