//! Messages that no honest sender writes. Receiving makes no call of the driver, so these tests need none.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use serde::{Serialize, Serializer};
use tensorferry_cuda_ipc::{AnyCudaTensor, CudaTensor};
use tensorferry_domain::Domain;
use tensorferry_reduce::{Parcel, give_shared};
use tensorferry_storage::{Heap, SharedBlock};
use tensorferry_tensor::{DType, DimSlice, Layout};

/// The parts of an honest message: its blocks, and the fields of the payload.
#[derive(Clone)]
struct Forged {
    mark: &'static [u8],
    storage: SharedBlock,
    slab: SharedBlock,
    timeline: Option<SharedBlock>,
    code: u8,
    layout: Layout,
    has_memory: bool,
}

impl Serialize for Forged {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let give = |block| give_shared(block).map_err(serde::ser::Error::custom);
        let timeline = self.timeline.as_ref().map(|block| Ok((give(block)?, 7_u64))).transpose()?;
        let memory = (give(&self.storage)?, give(&self.slab)?, timeline);
        (Bytes(self.mark), self.code, &self.layout, self.has_memory.then_some(memory)).serialize(serializer)
    }
}

struct Bytes(&'static [u8]);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

fn heap() -> Heap {
    let settings = Domain::builder().address_space_bytes(1 << 30).limit_bytes(64 << 20);
    Heap::create(settings).unwrap()
}

fn block(heap: &Heap, words: &[u64]) -> SharedBlock {
    let block = heap.allocate_zeroed(words.len() * 8).unwrap().share();
    for (word, value) in block.words().iter().zip(words) {
        word.store(*value, std::sync::atomic::Ordering::Relaxed);
    }
    block
}

fn magic(text: [u8; 4]) -> u64 {
    1 << 32 | u64::from(u32::from_le_bytes(text))
}

const LEN_BYTES: u64 = 2 << 20;

/// The words of a slab with this strategy.
fn slab_words(strategy: u64) -> [u64; 16] {
    let mut words = [0; 16];
    words[..4].copy_from_slice(&[magic(*b"SLAB") + (1 << 32), LEN_BYTES, 1, 2]);
    words[6] = strategy;
    words
}

/// A slab of 2 MiB, a storage of 4,096 bytes in it, and a tensor over all of the storage.
fn honest(heap: &Heap) -> Forged {
    let slab = block(heap, &slab_words(0));
    let storage = block(heap, &[magic(*b"DEVS"), slab.name(), 512, 4096, 0]);
    let layout = Layout::contiguous([1024]).unwrap();
    Forged {
        mark: b"\xfdCUDA",
        storage,
        slab,
        timeline: None,
        code: DType::U32.code(),
        layout,
        has_memory: true,
    }
}

#[track_caller]
fn refused(heap: &Heap, forged: &Forged) -> String {
    let parcel = Parcel::pack(heap, forged).unwrap();
    Parcel::open::<CudaTensor<u32>>(heap, parcel.id()).unwrap_err().to_string()
}

#[test]
fn an_honest_message_is_a_tensor_without_a_driver() {
    let heap = heap();
    let parcel = Parcel::pack(&heap, &honest(&heap)).unwrap();
    let tensor = Parcel::open::<CudaTensor<u32>>(&heap, parcel.id()).unwrap();
    assert_eq!((tensor.n_elements(), tensor.device_uuid().is_some()), (1024, true));
    assert!(tensor.shares_storage_with(&tensor.narrow(0, 5, 3).unwrap()));
    let parcel = Parcel::pack(&heap, &tensor).unwrap();
    let passed_on = Parcel::open::<CudaTensor<u32>>(&heap, parcel.id()).unwrap();
    assert!(passed_on.shares_storage_with(&tensor));
}

#[test]
fn numbers_and_blocks_that_contradict_each_other_are_refused() {
    let heap = heap();
    let honest = honest(&heap);
    let (magic_of_storage, slab) = (magic(*b"DEVS"), honest.slab.name());
    let storages: [&[u64]; 7] = [
        &[magic_of_storage, slab ^ 16, 512, 4096, 0],
        &[magic_of_storage, slab, 512, LEN_BYTES, 0],
        &[magic_of_storage, slab, u64::MAX - 255, 4096, 0],
        &[magic_of_storage, slab, 513, 4096, 0],
        &[magic_of_storage, slab, 512, 4095, 0],
        &[magic(*b"SLAB"), slab, 512, 4096, 0],
        &[magic_of_storage, slab, 512],
    ];
    for words in storages {
        let error = refused(&heap, &Forged { storage: block(&heap, words), ..honest.clone() });
        assert!(error.contains("not from an honest sender") || error.contains("1023"), "{words:?}: {error}");
    }
    for mark in [&b""[..], b"\xfdCUD", b"\xfdCUDA.", b"\xfeCUDA"] {
        assert!(refused(&heap, &Forged { mark, ..honest.clone() }).contains("the mark of a device tensor"));
    }
    let far = Layout::new([1024], &[1], 1).unwrap();
    assert!(refused(&heap, &Forged { layout: far, ..honest.clone() }).contains("1025"));
    let nothing = Layout::contiguous([0]).unwrap();
    assert!(refused(&heap, &Forged { layout: nothing, ..honest.clone() }).contains("without elements"));
    assert!(refused(&heap, &Forged { has_memory: false, ..honest.clone() }).contains("has no memory"));
    assert!(refused(&heap, &Forged { code: 200, ..honest.clone() }).contains("no dtype"));
    let exchanged = Forged { storage: honest.slab.clone(), slab: honest.storage.clone(), ..honest.clone() };
    assert!(refused(&heap, &exchanged).contains("no storage"));
    let timeline = Some(block(&heap, &[magic(*b"TIME"), 0, 0, 1]));
    assert!(refused(&heap, &Forged { timeline, ..honest.clone() }).contains("no timeline"));
    let slab = block(&heap, &slab_words(77));
    let storage = block(&heap, &[magic(*b"DEVS"), slab.name(), 512, 4096, 0]);
    let error = refused(&heap, &Forged { slab, storage, ..honest.clone() });
    assert!(error.contains("shared in no way that is known"), "{error}");
    // A float is no integer, even of the same width.
    let code = DType::F32.code();
    assert!(refused(&heap, &Forged { code, ..honest.clone() }).contains("float32"));
}

#[test]
fn a_receiver_that_does_not_know_the_type_has_it_from_the_message() {
    let heap = heap();
    let parcel = Parcel::pack(&heap, &honest(&heap)).unwrap();
    let any = Parcel::open::<AnyCudaTensor>(&heap, parcel.id()).unwrap();
    assert_eq!((any.dtype(), any.shape().as_slice()), (DType::U32, &[1024][..]));
    let part = any.narrow(0, 1000, 24).unwrap().slice(&[DimSlice::ALL.step(5)]).unwrap();
    let typed = part.downcast::<u32>().unwrap();
    assert_eq!((typed.offset(), typed.strides(), typed.n_elements()), (1000, &[5][..], 5));
    assert!(part.downcast::<f32>().unwrap_err().to_string().contains("holds uint32, not float32"));
    // Up to the end of the last element.
    let bytes = part.as_bytes().unwrap();
    assert_eq!((bytes.offset(), bytes.n_elements()), (4000, 84));
    assert!(bytes.shares_storage_with(&typed));
    // As it was, and typed where the receiver knows the type.
    let parcel = Parcel::pack(&heap, &part).unwrap();
    let passed_on = Parcel::open::<CudaTensor<u32>>(&heap, parcel.id()).unwrap();
    assert_eq!(passed_on.layout(), part.layout());
    assert_eq!(AnyCudaTensor::from(passed_on).storage_id(), any.storage_id());
}

#[test]
fn outside_of_a_message_a_tensor_is_no_value() {
    let heap = heap();
    let parcel = Parcel::pack(&heap, &honest(&heap)).unwrap();
    let tensor = Parcel::open::<CudaTensor<u32>>(&heap, parcel.id()).unwrap();
    let error = serde_json::to_string(&tensor).unwrap_err().to_string();
    assert!(error.contains("through a queue"), "{error}");
}
