//! Everything of this library that reads what another process may have written, each as a function of bytes.
//!
//! A fuzz target in `tests/fuzz` calls one of them; the tests call each with every file of its corpus. What
//! comes out does not matter, as long as it is a value or an error: a panic, a crash, or a call that does not
//! return is a finding.

mod seeds;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::de::{self, DeserializeOwned};
use serde::ser::{self, Serializer};
use serde::{Deserialize, Deserializer, Serialize};
use tensorferry::Bundle;
use tensorferry::domain::{Admission, Domain, PidFd};
use tensorferry::queue::{
    AnyConnection, AnyEnd, GetError, Queue, Receiver, Sender, SoleReceiver, SoleSender,
};
use tensorferry::reduce::Parcel;
use tensorferry::spawn::ProcessErrors;
use tensorferry::sync::{RawArray, RawValue};
use tensorferry::tensor::{AnyTensor, DType, DynTensor, SharedTensor, Tensor, TensorMut};
use tensorferry::{SharingStrategy, func};
use tensorferry_cuda_ipc::{CudaTensor, IpcEvent};
use tensorferry_os::{memfd, socket};
use tensorferry_reduce::{HandleIndex, decode, give_bundle, take_bundle};
use tensorferry_sharing::FdStore;
use tensorferry_storage::{
    Consumers, Deadline, Heap, IncomingMessage, OutgoingHandle, OutgoingHandles, Ring,
};

use crate::tasks::round_of_gauntlet;
use crate::{Choices, Item, Scribbler, until};

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct Decoder {
    /// What it is called: the name of its fuzz target and of the folder of its corpus.
    pub name: &'static str,
    /// What it reads.
    pub reads: &'static str,
    /// Reads bytes. Whether they were what they should be.
    pub run: fn(&[u8]) -> bool,
    /// What its corpus starts with; the first one is what it should be.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const ALL: &[Decoder] = &[
    Decoder { name: "hello", reads: "what a parent tells its child first", run: hello, seeds: seeds::hello },
    Decoder { name: "frames", reads: "what a child tells its parent", run: frames, seeds: seeds::frames },
    Decoder { name: "request", reads: "what a fork server is to start", run: request, seeds: seeds::request },
    Decoder { name: "word", reads: "what a fork server tells of a child", run: word, seeds: seeds::word },
    Decoder {
        name: "greeting",
        reads: "what two processes that meet say",
        run: greeting,
        seeds: seeds::greeting,
    },
    Decoder {
        name: "fd_store",
        reads: "questions to the descriptor store",
        run: fd_store,
        seeds: seeds::fd_store,
    },
    Decoder { name: "order", reads: "which function a child is to call", run: order, seeds: seeds::order },
    Decoder { name: "errors", reads: "errors of other processes", run: errors, seeds: seeds::errors },
    Decoder { name: "names", reads: "dtypes and strategies by name", run: names, seeds: seeds::names },
    Decoder { name: "payload", reads: "a message beside its handles", run: payload, seeds: seeds::payload },
    Decoder { name: "parcel", reads: "a parcel and its number", run: parcel, seeds: seeds::parcel },
    Decoder {
        name: "manifest",
        reads: "what a bundle says of itself",
        run: manifest,
        seeds: seeds::manifest,
    },
    Decoder { name: "join", reads: "a domain's tables, by a newcomer", run: join, seeds: seeds::choices },
    Decoder { name: "memory", reads: "a domain's memory, by a member", run: memory, seeds: seeds::choices },
];

/// The one with this name.
///
/// # Panics
/// There is none.
#[must_use]
pub fn named(name: &str) -> &'static Decoder {
    ALL.iter().find(|decoder| decoder.name == name).unwrap_or_else(|| panic!("no decoder is called {name}"))
}

fn hello(bytes: &[u8]) -> bool {
    let Ok(read) = tensorferry_process::read_hello(bytes) else { return false };
    assert_eq!(tensorferry_process::read_hello(&read).unwrap(), read);
    true
}

fn frames(bytes: &[u8]) -> bool {
    let Some((&cut, bytes)) = bytes.split_first() else { return false };
    let whole = tensorferry_process::read_frames([bytes]);
    let pieces = tensorferry_process::read_frames(bytes.chunks(usize::from(cut) + 1));
    let is_whole = whole.is_ok();
    assert_eq!(whole.ok(), pieces.ok(), "however the socket has cut it");
    is_whole
}

fn request(bytes: &[u8]) -> bool {
    tensorferry_process::read_request(bytes).is_ok()
}

fn word(bytes: &[u8]) -> bool {
    tensorferry_process::read_word(bytes).is_ok()
}

/// Both messages, by both sides.
fn greeting(bytes: &[u8]) -> bool {
    let Some(read) = tensorferry::listen::hidden::read_greeting(bytes) else { return false };
    assert_eq!(tensorferry::listen::hidden::read_greeting(&read).as_deref(), Some(&read[..]));
    true
}

/// Questions of 16 bytes, each behind a byte that says whether a descriptor comes along; a descriptor store
/// that has one of its own goes on having it.
fn fd_store(bytes: &[u8]) -> bool {
    const OWN: u64 = 0x6f77_6e00;
    let fd_store = FdStore::new().unwrap();
    fd_store.store(OWN, memfd::create_sealed("tensorferry-kept", 4096).unwrap());
    let (ours, _theirs) = socket::pair().unwrap();
    for question in bytes.chunks(17) {
        let [with_fd, question @ ..] = question else { continue };
        // No descriptor goes with nothing.
        let fds = (with_fd % 2 == 1 && !question.is_empty()).then_some(ours.as_fd());
        let _ = socket::try_send(fd_store.members_end(), question, fds.as_slice()).unwrap();
        fd_store.serve();
    }
    assert!(fd_store.fetch(OWN).is_ok());
    fd_store.n_kept() > 1
}

/// The function that the seed of `order` names.
#[func]
fn ordered(_rank: usize, _argument: bool) {}

fn order(bytes: &[u8]) -> bool {
    tensorferry::spawn::hidden::read_order(bytes).is_ok()
}

fn errors(bytes: &[u8]) -> bool {
    let read = [postcard::from_bytes::<ProcessErrors>(bytes).ok(), rmp_serde::from_slice(bytes).ok()];
    for errors in read.iter().flatten() {
        let _ = (format!("{errors:?}"), errors.root_cause().rank);
        let again: ProcessErrors = postcard::from_bytes(&postcard::to_stdvec(&errors).unwrap()).unwrap();
        assert_eq!(&again, errors);
    }
    read.iter().any(Option::is_some)
}

fn names(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let (dtype, strategy) = (text.parse::<DType>(), text.parse::<SharingStrategy>());
    let is_name = dtype.is_ok() || strategy.is_ok();
    if let Ok(dtype) = dtype {
        assert_eq!(dtype.name().parse::<DType>().unwrap(), dtype);
    }
    if let Ok(strategy) = strategy {
        assert_eq!(strategy.to_string().parse::<SharingStrategy>().unwrap(), strategy);
    }
    is_name
}

/// Everything that travels by handle, and shapes that serde has names for.
#[derive(Debug, Serialize, Deserialize)]
pub enum Mixture {
    /// A unit variant.
    Nothing,
    /// A tuple variant.
    Frozen(Tensor<f32>, Option<Tensor<u8>>),
    /// Elements of any type.
    Any(Vec<AnyTensor>),
    /// A struct variant.
    Shared {
        /// A map.
        by_name: BTreeMap<String, SharedTensor<i64>>,
    },
    /// A newtype variant.
    Exclusive(Box<TensorMut<u16>>),
    /// Ends of queues.
    Ends(Sender<u8>, Receiver<String>, SoleReceiver<u8>, SoleSender<u8>),
    /// A struct.
    Item(Item),
    /// Values of `sync`.
    Sync(RawValue<u32>, RawArray<f64>),
}

/// A small domain.
fn small_heap() -> Heap {
    Heap::create(Domain::builder().address_space_bytes(16 << 20).limit_bytes(12 << 20)).unwrap()
}

/// One handle of each kind.
fn one_of_each(heap: &Heap, ring: &Ring) -> OutgoingHandles {
    let frozen = heap.allocate_zeroed(200).unwrap().freeze();
    let shared = heap.allocate_zeroed(64).unwrap().share();
    let exclusive = heap.allocate_zeroed(128).unwrap();
    let bundle = tensorferry_storage::Bundle::pack(heap, b"no manifest", OutgoingHandles::new());
    let handles = [
        OutgoingHandle::frozen(&frozen),
        OutgoingHandle::shared(&shared),
        OutgoingHandle::exclusive(&exclusive),
        Some(OutgoingHandle::ring(ring.attachment())),
        bundle.ok().map(|bundle| OutgoingHandle::bundle(&bundle)),
    ];
    handles.into_iter().flatten().collect()
}

/// What comes out is shown, so that all of it is looked at.
fn look_at<T: DeserializeOwned + Debug>(message: &mut IncomingMessage) -> bool {
    let decoded = decode::<T>(message);
    let is_read = decoded.is_ok();
    match decoded {
        Ok(value) => drop(format!("{value:?}")),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    is_read
}

/// The first byte says as what the rest is read.
fn payload(bytes: &[u8]) -> bool {
    thread_local! {
        static HOME: RefCell<Option<(Heap, Ring)>> = const { RefCell::new(None) };
    }
    const READ_AS: [fn(&mut IncomingMessage) -> bool; 16] = [
        look_at::<Mixture>,
        look_at::<Vec<Mixture>>,
        look_at::<Tensor<u64>>,
        look_at::<AnyTensor>,
        look_at::<SharedTensor<i32>>,
        look_at::<TensorMut<u8>>,
        look_at::<Queue<u8>>,
        look_at::<Item>,
        look_at::<(String, BTreeMap<u8, Vec<i64>>, Option<char>)>,
        look_at::<(RawValue<bool>, RawArray<u16>)>,
        look_at::<CudaTensor<f32>>,
        look_at::<IpcEvent>,
        look_at::<Bundle>,
        look_at::<Vec<DynTensor>>,
        look_at::<AnyEnd>,
        look_at::<AnyConnection>,
    ];
    let Some((&which, bytes)) = bytes.split_first() else { return false };
    HOME.with_borrow_mut(|home| {
        let (heap, ring) = home.get_or_insert_with(|| {
            let heap = small_heap();
            let ring = Ring::create(&heap, 2, 0).unwrap();
            (heap, ring)
        });
        ring.put(bytes, one_of_each(heap, ring), Deadline::Now).unwrap();
        let mut message = ring.take(Consumers::Multi, Deadline::Now).unwrap();
        let is_read = READ_AS[usize::from(which) % READ_AS.len()](&mut message);
        drop(message);
        // Whatever came of it. The service thread may be letting go of a message at this moment.
        until("the ring alone is left", || {
            heap.collect();
            heap.stats().own.live_blocks == 1
        });
        is_read
    })
}

/// A parcel with each word changed that the bytes say, opened by the number that they say.
fn parcel(bytes: &[u8]) -> bool {
    let mut choices = bytes;
    let heap = small_heap();
    let queue: Queue<u8> = Queue::new_in(&heap, 2).unwrap();
    let item = Item::new(&heap, 1, 2, &[3]).with_note(20);
    let parcel = Parcel::pack(&heap, &(item, queue.clone())).unwrap();
    let audit = crate::Audit::of(heap.domain());
    let block = audit.live().iter().find(|block| block.kind == 3).unwrap();
    let file = Scribbler::of(heap.domain());
    for _ in 0..choices.one_of(8) {
        let at = block.data_file_offset_bytes + choices.one_of(block.len_bytes / 8) * 8;
        let change = if choices.one_of(2) == 0 { choices.any() } else { choices.one_of(256) };
        file.set_word(at, file.word(at) ^ change);
    }
    let id = if choices.one_of(4) == 0 { parcel.id() ^ choices.any() } else { parcel.id() };
    let opened = Parcel::open::<(Item, Queue<u8>)>(&heap, id);
    let is_read = opened.is_ok();
    match opened {
        Ok(value) => drop(format!("{value:?}")),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let _ = Parcel::open::<Mixture>(&heap, id).map(|value| format!("{value:?}"));
    is_read
}

/// A bundle of blocks with any payload, as what receives it. Comes back as the bundle of blocks.
#[derive(Debug)]
struct Blocks(tensorferry_storage::Bundle);

impl Serialize for Blocks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        give_bundle(&self.0).map_err(ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Blocks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        take_bundle(HandleIndex::deserialize(deserializer)?).map(Self).map_err(de::Error::custom)
    }
}

/// The length of what no two manifests have in common.
const MANIFEST_HEAD_BYTES: usize = 16;

/// The bytes behind the head of a manifest. Each tensor that it names is read in every way.
fn manifest(bytes: &[u8]) -> bool {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let heap = small_heap();
    // A thread knows again by its head what it has read.
    let mut payload = [COUNT.fetch_add(1, Ordering::Relaxed).to_le_bytes(), *b"manifest"].concat();
    payload.extend_from_slice(bytes);
    let frozen = heap.allocate_zeroed(200).unwrap().freeze();
    let shared = heap.allocate_zeroed(64).unwrap().share();
    let handles = [OutgoingHandle::frozen(&frozen), OutgoingHandle::shared(&shared)];
    let blocks = tensorferry_storage::Bundle::pack(&heap, &payload, handles.into_iter().flatten().collect());
    let parcel = Parcel::pack(&heap, &Blocks(blocks.unwrap())).unwrap();
    let opened = Parcel::open::<Bundle>(&heap, parcel.id());
    parcel.take_back();
    let is_read = opened.is_ok();
    match opened {
        Ok(bundle) => {
            assert_eq!(bundle.len(), bundle.names().len());
            for entry in &bundle {
                let _ = entry.as_slice::<f32>().map(|elements| elements.iter().sum::<f32>());
                let _ = entry.any_tensor().map(|tensor| format!("{tensor:?}"));
                let _ = entry.shared_tensor::<i64>().map(|tensor| tensor.to_vec());
                let _ = bundle.tensor::<u8>(entry.name()).map(|tensor| tensor.to_vec());
            }
            drop(format!("{bundle:?}"));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    is_read
}

/// A copy of a domain's tables in which words were changed, and an admission likewise; who gets in uses the
/// domain.
fn join(bytes: &[u8]) -> bool {
    let mut choices = bytes;
    let original = Domain::builder().address_space_bytes(16 << 20).limit_bytes(12 << 20).create().unwrap();
    let admission = original.admit(&PidFd::of_self().unwrap()).unwrap();
    let tables = Scribbler::of(&original).bytes(0, 16 << 10);
    drop(original);
    let file_len = u64::from_le_bytes(tables[16..24].try_into().unwrap());
    let len_bytes = if choices.one_of(8) == 1 { choices.one_of(1 << 26) } else { file_len };
    let Ok(fd) = memfd::create_sealed("tensorferry-copy", len_bytes) else { return false };
    let copy = Scribbler::over(fd.try_clone().unwrap());
    let copied = tables.len().min(usize::try_from(len_bytes).unwrap());
    copy.set_bytes(0, &tables[..copied]);
    for _ in 0..choices.one_of(8) {
        // Header, process table, or the entries of extents.
        let page = choices.one_of(3) * 4096;
        let at = page + choices.one_of(32) * 8;
        let change = if choices.one_of(2) == 0 { choices.any() } else { choices.one_of(256) };
        if at + 8 <= len_bytes {
            copy.set_word(at, copy.word(at) ^ change);
        }
    }
    let mut admission = postcard::to_stdvec(&admission).unwrap();
    if choices.one_of(4) == 1 {
        let at = choices.one_of(admission.len() as u64);
        admission[usize::try_from(at).unwrap()] ^= choices.any().to_le_bytes()[0];
    }
    let Ok(admission) = postcard::from_bytes::<Admission>(&admission) else { return false };
    let Ok(heap) = Heap::attach(fd, admission) else { return false };
    let Ok(queue) = Queue::<Tensor<u8>>::new_in(&heap, 2) else { return false };
    if let Ok(tensor) = TensorMut::zeros_in(&heap, [1_000]) {
        let _ = queue.put_nowait(tensor.freeze());
        match queue.get_nowait() {
            Ok(tensor) => drop(format!("{tensor:?}")),
            Err(GetError::Decode(error)) => assert!(!error.to_string().is_empty()),
            Err(_) => {}
        }
    }
    let _ = (heap.stats(), heap.trim());
    true
}

fn memory(mut bytes: &[u8]) -> bool {
    round_of_gauntlet(None, &mut bytes, Duration::ZERO);
    true
}
