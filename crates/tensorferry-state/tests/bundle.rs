//! Bundles of tensors, in one process. What needs several is in the package `tests`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use tensorferry_domain::Domain;
use tensorferry_reduce::{DecodeError, Parcel, bytes_copied};
use tensorferry_state::{Bundle, BundleError};
use tensorferry_storage::{Heap, StorageError};
use tensorferry_tensor::{Complex, DType, LayoutError, SharedTensor, Tensor, TensorError, TensorMut};

/// One test at a time: the bytes that were copied are counted for the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn heap() -> Heap {
    Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap()
}

fn frozen(heap: &Heap, values: &[f32]) -> Tensor<f32> {
    let mut tensor = TensorMut::empty_in(heap, [values.len()]).unwrap();
    tensor.as_mut_slice().copy_from_slice(values);
    tensor.freeze()
}

/// Three tensors in two storages, one shared, one without elements.
fn bundle(heap: &Heap) -> Bundle {
    let whole = frozen(heap, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]).reshape([2, 3]).unwrap();
    let shared = SharedTensor::from_slice_in(heap, &[7_i64, 8], [2]).unwrap();
    Bundle::builder()
        .add("whole", &whole)
        .add("column", whole.select(1, 1).unwrap())
        .add("shared", shared)
        .add("none", Tensor::<u8>::from_vec(Vec::new(), [0, 4]).unwrap())
        .build_in(heap)
        .unwrap()
}

/// What arrives when this is sent.
fn sent<T: Serialize, U: DeserializeOwned>(heap: &Heap, value: &T) -> Result<U, DecodeError> {
    let parcel = Parcel::pack(heap, value).unwrap();
    let arrived = Parcel::open(heap, parcel.id());
    parcel.take_back();
    arrived
}

fn live_blocks(heap: &Heap) -> u64 {
    heap.collect();
    heap.stats().own.live_blocks
}

#[test]
fn tensors_are_found_by_name_and_in_their_order() {
    let _alone = alone();
    let heap = heap();
    let bundle = bundle(&heap);
    assert_eq!((bundle.len(), bundle.is_empty()), (4, false));
    assert_eq!(bundle.names().collect::<Vec<_>>(), ["whole", "column", "shared", "none"]);
    let kinds: Vec<_> = bundle.iter().map(|entry| (entry.dtype(), entry.is_shared())).collect();
    let float = (DType::F32, false);
    assert_eq!(kinds, [float, float, (DType::I64, true), (DType::U8, false)]);
    assert_eq!(bundle.entry("whole").unwrap().as_slice::<f32>().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(bundle.tensor::<f32>("column").unwrap().to_vec(), [1.0, 4.0]);
    assert_eq!(bundle.shared_tensor::<i64>("shared").unwrap().to_vec(), [7, 8]);
    assert_eq!(bundle.entry("none").unwrap().as_slice::<u8>().unwrap(), [0; 0]);
    assert_eq!(bundle.tensor::<u8>("none").unwrap().shape(), &[0, 4]);
    let [whole, column] = ["whole", "column"].map(|name| bundle.tensor::<f32>(name).unwrap());
    assert!(whole.shares_storage_with(&column));
    assert_eq!(
        format!("{bundle:?}"),
        r#"{"whole": Tensor<float32>[2, 3], "column": Tensor<float32>[2], "shared": SharedTensor<int64>[2], "none": Tensor<uint8>[0, 4]}"#
    );
    assert_eq!(live_blocks(&heap), 3, "two storages and the bundle");
}

#[test]
fn what_was_taken_out_lives_without_the_bundle_and_nothing_else_does() {
    let _alone = alone();
    let heap = heap();
    let bundle = bundle(&heap);
    let column = bundle.tensor::<f32>("column").unwrap();
    let clone = bundle.clone();
    drop(bundle);
    assert_eq!(live_blocks(&heap), 3);
    drop(clone);
    assert_eq!(live_blocks(&heap), 1);
    assert_eq!(column.to_vec(), [1.0, 4.0]);
    drop(column);
    assert_eq!(live_blocks(&heap), 0);
}

#[test]
fn a_bundle_travels_in_any_value_and_comes_as_the_same_tensors() {
    let _alone = alone();
    let heap = heap();
    let bundle = bundle(&heap);
    let before = bytes_copied();
    for _ in 0..3 {
        let value = ("two of one".to_owned(), vec![bundle.clone(), bundle.clone()]);
        let (_, got): (String, Vec<Bundle>) = sent(&heap, &value).unwrap();
        assert!(got.iter().all(|got| got.id() == bundle.id()));
        assert_eq!(format!("{got:?}"), format!("[{bundle:?}, {bundle:?}]"));
        got[1].shared_tensor("shared").unwrap().store([0], 9_i64).unwrap();
    }
    assert_eq!(bundle.shared_tensor::<i64>("shared").unwrap().load([0]).unwrap(), 9);
    assert_eq!(bytes_copied(), before);
    // A thread that has not seen it yet reads what it says about itself.
    let got: Bundle =
        std::thread::scope(|scope| scope.spawn(|| sent(&heap, &bundle).unwrap()).join().unwrap());
    assert_eq!(format!("{got:?}"), format!("{bundle:?}"));
    drop((got, bundle));
    assert_eq!(live_blocks(&heap), 0);
}

#[test]
fn a_private_tensor_is_copied_once() {
    let _alone = alone();
    let heap = heap();
    let private = Tensor::from_vec(vec![1_u16; 100], [100]).unwrap();
    let before = bytes_copied();
    let views = [("all", private.clone()), ("half", private.narrow(0, 0, 50).unwrap())];
    let add = |builder: tensorferry_state::BundleBuilder, (name, tensor)| builder.add(name, tensor);
    let bundle = views.into_iter().fold(Bundle::builder(), add).build_in(&heap).unwrap();
    assert_eq!(bytes_copied() - before, 200);
    assert_eq!(bundle.entry("half").unwrap().as_slice::<u16>().unwrap().len(), 50);
    assert_eq!(live_blocks(&heap), 2);
}

#[test]
fn what_cannot_be_had_is_an_error_that_says_which_and_why() {
    let _alone = alone();
    let heap = heap();
    let bundle = bundle(&heap);
    let missing = bundle.entry("wohle").unwrap_err();
    assert!(
        matches!(&missing, BundleError::NoSuchTensor { name, n_tensors: 4 } if name == "wohle"),
        "{missing}"
    );
    let wrong = bundle.tensor::<f64>("whole").unwrap_err();
    assert_eq!(wrong.to_string(), "`whole`: the tensor holds float32, not float64");
    for error in [
        bundle.entry("shared").unwrap().as_slice::<i64>().unwrap_err(),
        bundle.any_tensor("shared").unwrap_err(),
        bundle.shared_tensor::<f32>("whole").unwrap_err(),
    ] {
        assert!(matches!(error, BundleError::WrongKind { .. }), "{error}");
    }
    let strided = bundle.entry("column").unwrap().as_slice::<f32>().unwrap_err();
    let is_layout = |error: &BundleError| {
        matches!(
            error,
            BundleError::Tensor { error: TensorError::Layout(LayoutError::NotContiguous { .. }), .. }
        )
    };
    assert!(is_layout(&strided), "{strided}");
}

#[test]
fn a_private_tensor_can_be_bundled_wherever_it_was_sent_before() {
    let _alone = alone();
    let (one, other) = (heap(), heap());
    let tensor = Tensor::from_vec(vec![1.0_f32, 2.0], [2]).unwrap();
    drop(Bundle::builder().add("a", &tensor).build_in(&one).unwrap());
    let bundle = Bundle::builder().add("a", &tensor).build_in(&other).unwrap();
    assert_eq!(bundle.entry("a").unwrap().as_slice::<f32>().unwrap(), [1.0, 2.0]);
}

#[test]
fn what_cannot_be_bundled_is_an_error() {
    let _alone = alone();
    let (one, other) = (heap(), heap());
    let tensor = frozen(&one, &[1.0]);
    let twice = Bundle::builder().add("a", &tensor).add("a", &tensor).build_in(&one).unwrap_err();
    assert!(matches!(&twice, BundleError::DuplicateName { name } if name == "a"), "{twice}");
    let long = Bundle::builder().add("x".repeat(4097), &tensor).build_in(&one).unwrap_err();
    assert!(matches!(long, BundleError::LongName { len_bytes: 4097, limit_bytes: 4096 }), "{long}");
    let foreign = Bundle::builder().add("a", &tensor).build_in(&other).unwrap_err();
    assert!(matches!(&foreign, BundleError::ForeignDomain { name } if name == "a"), "{foreign}");
    // The first blocks of two domains have one number.
    let same = frozen(&other, &[2.0]);
    let both = Bundle::builder().add("a", &tensor).add("b", &same);
    let foreign = both.build_in(&one).unwrap_err();
    assert!(matches!(&foreign, BundleError::ForeignDomain { name } if name == "b"), "{foreign}");
    drop(same);
    assert_eq!(live_blocks(&other), 0, "nothing is left of it");
    let empty = Bundle::builder().build_in(&one).unwrap();
    assert!(empty.is_empty() && empty.iter().next().is_none());
    assert!(serde_json::to_string(&empty).is_err(), "outside of a message");
}

#[test]
fn more_storages_than_a_bundle_can_have_are_refused_and_given_back() {
    let _alone = alone();
    let heap = heap();
    let add = |builder: tensorferry_state::BundleBuilder, index: u32| {
        builder.add(index.to_string(), frozen(&heap, &[index as f32]))
    };
    let builder = (0..65_536).fold(Bundle::builder(), add);
    let error = builder.build_in(&heap).unwrap_err();
    assert!(matches!(error, BundleError::Storage(StorageError::TooManyBlocks { .. })), "{error}");
    assert_eq!(live_blocks(&heap), 0);
}

#[test]
fn a_copy_is_shared_or_frozen_and_keeps_views_of_one_storage_together() {
    let _alone = alone();
    let heap = heap();
    let bundle = bundle(&heap);
    let n_live = live_blocks(&heap);
    let shared = bundle.to_shared().unwrap();
    assert!(shared.names().eq(bundle.names()));
    assert_eq!(shared.iter().filter(|entry| entry.is_shared()).count(), bundle.len());
    let (whole, column) =
        (shared.shared_tensor::<f32>("whole").unwrap(), shared.shared_tensor::<f32>("column").unwrap());
    assert_eq!(whole.to_vec(), bundle.tensor::<f32>("whole").unwrap().to_vec());
    column.store([1], 77.0).unwrap();
    assert!(whole.to_vec().contains(&77.0), "one storage");
    assert!(!bundle.tensor::<f32>("whole").unwrap().to_vec().contains(&77.0), "of its own");
    let before = live_blocks(&heap);
    let again = shared.to_shared().unwrap();
    assert_eq!(live_blocks(&heap), before + 1, "the bundle alone: its storages are shared already");
    let frozen = again.to_frozen().unwrap();
    column.store([0], 78.0).unwrap();
    let snapshot = frozen.tensor::<f32>("whole").unwrap();
    assert!(snapshot.to_vec().contains(&77.0) && !snapshot.to_vec().contains(&78.0));
    assert!(frozen.iter().all(|entry| !entry.is_shared()));
    drop((whole, column, shared, again, frozen, snapshot));
    assert_eq!(live_blocks(&heap), n_live);
}

#[test]
fn elements_that_are_not_written_in_one_step_cannot_be_shared() {
    let _alone = alone();
    let heap = heap();
    let tensor = TensorMut::<Complex<f64>>::zeros_in(&heap, [2]).unwrap().freeze();
    let bundle = Bundle::builder().add("z", tensor).build_in(&heap).unwrap();
    let error = bundle.to_shared().unwrap_err();
    assert!(error.to_string().contains("`z` is of complex128"), "{error}");
    assert_eq!(
        bundle.to_frozen().unwrap().tensor::<Complex<f64>>("z").unwrap().to_vec(),
        [Complex::new(0.0, 0.0); 2]
    );
}

#[test]
fn many_clones_of_a_bundle_are_one_handle_of_a_message() {
    let _alone = alone();
    let heap = heap();
    let bundle = Bundle::builder().add("a", frozen(&heap, &[1.0])).build_in(&heap).unwrap();
    // More than one message can have.
    let arrived: Vec<Bundle> = sent(&heap, &vec![bundle; 70_000]).unwrap();
    assert_eq!(arrived.len(), 70_000);
    assert_eq!(arrived[69_999].tensor::<f32>("a").unwrap().to_vec(), [1.0]);
}

#[test]
fn what_is_no_bundle_is_an_error_of_the_receiver() {
    let _alone = alone();
    let heap = heap();
    let forged = tensorferry_storage::Bundle::pack(&heap, b"no manifest at all", Default::default()).unwrap();
    let error = sent::<_, Bundle>(&heap, &Raw(forged)).unwrap_err();
    assert!(error.to_string().contains("manifest of a bundle"), "{error}");
    assert_eq!(live_blocks(&heap), 0);
}

/// Sends any bundle of blocks as one of tensors.
struct Raw(tensorferry_storage::Bundle);

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        tensorferry_reduce::give_bundle(&self.0).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

#[cfg(feature = "safetensors")]
mod files {
    use std::path::PathBuf;

    use tensorferry_state::{SafetensorsError, SafetensorsMetadata};

    use super::*;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("tensorferry-{name}-{}.safetensors", std::process::id()))
    }

    #[test]
    fn a_bundle_is_written_and_read_as_views_of_one_storage() {
        let _alone = alone();
        let heap = heap();
        let path = path("round");
        let written = bundle(&heap);
        written.save_safetensors(&path).unwrap();
        let (before, blocks) = (bytes_copied(), live_blocks(&heap));
        let read = Bundle::load_safetensors_in(&heap, &path).unwrap();
        assert_eq!(bytes_copied(), before, "read into place");
        assert_eq!(live_blocks(&heap), blocks + 2, "the file and the bundle");
        assert_eq!(read.len(), 4);
        for name in ["whole", "column"] {
            assert_eq!(read.tensor::<f32>(name).unwrap(), written.tensor::<f32>(name).unwrap());
        }
        assert_eq!(read.entry("shared").unwrap().as_slice::<i64>().unwrap(), [7, 8]);
        assert_eq!(read.entry("none").unwrap().shape(), &[0, 4]);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn files_that_are_none_are_errors() {
        let _alone = alone();
        let heap = heap();
        let missing = Bundle::load_safetensors_in(&heap, "/no/such/file").unwrap_err();
        assert!(matches!(&missing, SafetensorsError::File { .. }), "{missing}");
        // A device here; a pipe that nobody writes would keep whoever opens it waiting.
        let device = Bundle::load_safetensors_in(&heap, "/dev/zero").unwrap_err();
        assert!(device.to_string().ends_with("this is no regular file"), "{device}");
        let path = path("none");
        for bytes in [&b""[..], b"short", b"\x10\0\0\0\0\0\0\0{\"a\":1}         ", &[0xff; 64]] {
            std::fs::write(&path, bytes).unwrap();
            let error = Bundle::load_safetensors_in(&heap, &path).unwrap_err();
            assert!(matches!(&error, SafetensorsError::Format { .. }), "{error}");
        }
        // Two elements of half a byte, which are no elements here.
        let header = br#"{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}   "#;
        let file = [&(header.len() as u64).to_le_bytes()[..], header, &[0]].concat();
        std::fs::write(&path, file).unwrap();
        let error = Bundle::load_safetensors_in(&heap, &path).unwrap_err();
        assert!(
            matches!(&error, SafetensorsError::DType { name, is_read: true, .. } if name == "a"),
            "{error}"
        );
        std::fs::remove_file(path).unwrap();
        assert_eq!(live_blocks(&heap), 0);
        let complex = Tensor::from_vec(vec![tensorferry_tensor::Complex::new(1.0_f64, 2.0)], [1]).unwrap();
        let bundle = Bundle::builder().add("c", complex).build_in(&heap).unwrap();
        let error = bundle.save_safetensors("/no/such/folder/file").unwrap_err();
        assert_eq!(error.to_string(), "`c`: complex128 cannot be written to a file of safetensors");
    }

    #[test]
    fn metadata_stands_beside_the_tensors_and_is_no_tensor() {
        let _alone = alone();
        let heap = heap();
        let path = path("metadata");
        let bundle = Bundle::builder().add("a", frozen(&heap, &[1.0])).build_in(&heap).unwrap();
        let metadata = SafetensorsMetadata::from([("format".to_owned(), "pt".to_owned())]);
        bundle.save_safetensors_with_metadata(&path, metadata.clone()).unwrap();
        let (read, found) = Bundle::load_safetensors_with_metadata(&path).unwrap();
        assert_eq!((read.len(), found), (1, metadata));
        bundle.save_safetensors(&path).unwrap();
        assert!(Bundle::load_safetensors_with_metadata(&path).unwrap().1.is_empty());

        let misnamed = Bundle::builder().add("__metadata__", frozen(&heap, &[1.0])).build_in(&heap).unwrap();
        let error = misnamed.save_safetensors(&path).unwrap_err();
        assert!(matches!(error, SafetensorsError::Name), "{error}");
        assert_eq!(Bundle::load_safetensors_in(&heap, &path).unwrap().len(), 1, "the file is as it was");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn elements_that_the_file_has_not_aligned_are_copied() {
        let _alone = alone();
        let heap = heap();
        let path = path("unaligned");
        let header = br#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U16","shape":[2],"data_offsets":[1,5]}}"#;
        let file = [&(header.len() as u64).to_le_bytes()[..], header, &[1, 2, 0, 3, 0]].concat();
        assert!(header.len().is_multiple_of(2));
        std::fs::write(&path, file).unwrap();
        let before = bytes_copied();
        let bundle = Bundle::load_safetensors_in(&heap, &path).unwrap();
        assert_eq!(bytes_copied() - before, 4);
        assert_eq!(bundle.entry("b").unwrap().as_slice::<u16>().unwrap(), [2, 3]);
        std::fs::remove_file(path).unwrap();
    }
}
