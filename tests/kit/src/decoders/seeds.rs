//! What the corpora start with: what the library itself writes, and a few bytes for those who make choices of
//! bytes.
//!
//! Frames of processes are written here once more, as docs/WIRE.md has them, because the library does not
//! lend its own.

use std::time::Duration;

use serde::Serialize;
use tensorferry::Bundle;
use tensorferry::queue::{Queue, spsc_in};
use tensorferry::reduce::Parcel;
use tensorferry::storage::Heap;
use tensorferry::sync::{RawArray, RawValue};
use tensorferry::tensor::{AnyTensor, SharedTensor, Tensor, TensorMut};
use tensorferry_reduce::with_encoded;

use super::{Blocks, MANIFEST_HEAD_BYTES, Mixture, small_heap};
use crate::{Item, Random};

fn postcard(value: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(value).unwrap()
}

pub(super) fn hello() -> Vec<Vec<u8>> {
    // nonce, parent's number and name, entry, name, rank, daemon, may fork, descriptors.
    let nonce = "0123456789abcdef0123456789abcdef";
    let fields =
        (nonce, 7_u32, "MainProcess", "tensorferry.spawn", "rank 0", Some(0_u64), false, true, 3_u32);
    vec![[b"TFCH\x05\0".to_vec(), postcard(&fields)].concat(), b"TFCH\x04\0".to_vec()]
}

/// A report's fields in order.
fn report(kind: u32) -> impl Serialize {
    let location = Some(("src/main.rs", 3_u32, 9_u32));
    (
        kind,
        "boom",
        location,
        "main",
        ["cause", "root"].map(String::from).to_vec(),
        Some("0: f"),
        Duration::new(5, 6),
    )
}

pub(super) fn frames() -> Vec<Vec<u8>> {
    let bodies = [postcard(&0_u32), postcard(&1_u32), postcard(&(2_u32, report(0))), postcard(&6_u32)];
    let last = [postcard(&(3_u32, report(1))), postcard(&(4_u32, "0: main")), postcard(&5_u32)];
    let framed = |bodies: &[Vec<u8>]| -> Vec<u8> {
        bodies
            .iter()
            .flat_map(|body| {
                [u32::try_from(body.len()).unwrap().to_le_bytes().to_vec(), body.clone()].concat()
            })
            .collect()
    };
    vec![
        [vec![255], framed(&bodies)].concat(),
        [vec![2], framed(&last)].concat(),
        [vec![0], u32::MAX.to_le_bytes().to_vec()].concat(),
    ]
}

pub(super) fn request() -> Vec<Vec<u8>> {
    // nonce, environment, nice value, processors.
    let environment = vec![(b"PATH".to_vec(), b"/bin".to_vec()), (b"RANK".to_vec(), b"1".to_vec())];
    let nonce = "0123456789abcdef0123456789abcdef";
    vec![
        postcard(&(nonce, environment, Some(5_i32), Some(vec![0_u64, 1]))),
        vec![0, 0xff, 0xff, 0xff, 0xff, 0xf],
    ]
}

pub(super) fn word() -> Vec<Vec<u8>> {
    let started = postcard(&(0_u32, 1234_u32));
    let (refused, ended) = (postcard(&(1_u32, "no memory")), postcard(&(2_u32, (1_u32, 9_i32, true))));
    vec![started, refused, ended]
}

pub(super) fn greeting() -> Vec<Vec<u8>> {
    let message = |body: Vec<u8>| {
        let len_bytes = u32::try_from(body.len()).unwrap();
        [b"TFLI\x01\0\0\0", &len_bytes.to_le_bytes()[..], &body].concat()
    };
    let hello = postcard(&[7_u64, u64::MAX].as_slice());
    // Which domain, the admission (domain, slot, epoch), the parcel.
    let welcome = postcard(&(0_u32, 7_u64, Some((7_u64, (3_u8, 1_u32))), 99_u64));
    let (known, refused) = (postcard(&(0_u32, 7_u64, false, 99_u64)), postcard(&(1_u32, "another user")));
    [hello, welcome, known, refused].map(message).to_vec()
}

pub(super) fn fd_store() -> Vec<Vec<u8>> {
    let question = |with_fd: u8, kind: u64, name: u64| {
        [&[with_fd], &kind.to_le_bytes()[..], &name.to_le_bytes()].concat()
    };
    vec![
        [question(1, 1, 77), question(1, 2, 77), question(1, 2, 78)].concat(),
        [question(0, 1, 77), question(0, 2, 77), question(1, 3, 77), vec![1, 2, 3]].concat(),
    ]
}

pub(super) fn order() -> Vec<Vec<u8>> {
    let key = (0_u32, "tensorferry_kit::decoders::ordered", "(bool,)", "()");
    let admission = (99_u64, (1_u8, 1_u32));
    let (parcel, strategy, identity, default_method) = (1234_u64, "file_descriptor", vec![1_u32, 2], 0_u32);
    vec![postcard(&(1_u32, key, admission, parcel, strategy, identity, default_method))]
}

pub(super) fn errors() -> Vec<Vec<u8>> {
    // rank, name, pid, cause, at, kills, exit code, whether it has a rank, ended, ended in full; causes by
    // number.
    let cause = (1_u32, 3_i32);
    let exited = (
        1_u64,
        "train 1",
        100_u32,
        cause,
        Duration::new(1, 2),
        0_u64,
        Some(3_i32),
        true,
        "exited",
        "in full",
    );
    let told = (vec![exited], vec![0_u64]);
    vec![postcard(&told), rmp_serde::to_vec(&told).unwrap(), vec![0, 0]]
}

pub(super) fn names() -> Vec<Vec<u8>> {
    ["float32", "torch.bfloat16", "f64", "file_descriptor", "file_system"].map(Into::into).to_vec()
}

/// The payload of a value, behind the number of the type that it is read as.
fn payload_of<T: Serialize>(heap: &Heap, read_as: u8, value: &T) -> Vec<u8> {
    let mut bytes = vec![read_as];
    let sent = with_encoded(heap, value, |payload, _handles| {
        bytes.extend_from_slice(payload);
        Ok::<(), tensorferry::reduce::EncodeError>(())
    });
    sent.map(|()| bytes).unwrap()
}

pub(super) fn payload() -> Vec<Vec<u8>> {
    let heap = &small_heap();
    let frozen = |n: usize| TensorMut::<f32>::zeros_in(heap, [n]).unwrap().freeze();
    let shared = |n: usize| SharedTensor::<i64>::zeros_in(heap, [n]).unwrap();
    let bytes: Tensor<u8> = TensorMut::zeros_in(heap, [4, 5]).unwrap().freeze();
    let queue: Queue<u8> = Queue::new_in(heap, 2).unwrap();
    let (sole_sender, sole_receiver) = spsc_in(heap, 2).unwrap();
    let words: Queue<String> = Queue::new_in(heap, 2).unwrap();
    let ends = Mixture::Ends(queue.sender().unwrap(), words.receiver().unwrap(), sole_receiver, sole_sender);
    let sync =
        Mixture::Sync(RawValue::new_in(heap, 3).unwrap(), RawArray::new_in(heap, &[1.0, 2.0]).unwrap());
    let item = |heap: &Heap| Item::new(heap, 3, 4, &[5, 6]).with_note(20);
    vec![
        payload_of(heap, 0, &Mixture::Nothing),
        payload_of(heap, 0, &Mixture::Frozen(frozen(3), Some(bytes.transpose(0, 1).unwrap()))),
        payload_of(heap, 0, &Mixture::Any(vec![AnyTensor::from(frozen(7)), AnyTensor::from(bytes.clone())])),
        payload_of(heap, 0, &Mixture::Shared { by_name: [(String::from("weights"), shared(8))].into() }),
        payload_of(heap, 0, &Mixture::Exclusive(Box::new(TensorMut::zeros_in(heap, [2, 3]).unwrap()))),
        payload_of(heap, 0, &ends),
        payload_of(heap, 0, &sync),
        payload_of(heap, 1, &vec![Mixture::Nothing, Mixture::Item(item(heap))]),
        payload_of(heap, 3, &AnyTensor::from(bytes.narrow(0, 1, 2).unwrap())),
        // Of a device: a tensor and an event, whose handles are none of theirs.
        [
            vec![10],
            rmp_serde::to_vec(&(
                12_u8,
                ([3_u64], None::<[u64; 1]>, 0_u64),
                Some((1_u32, 1_u32, Some((1_u32, 5_u64)))),
            ))
            .unwrap(),
        ]
        .concat(),
        [vec![11], rmp_serde::to_vec(&1_u32).unwrap()].concat(),
        [vec![12], rmp_serde::to_vec(&4_u32).unwrap()].concat(),
        payload_of(heap, 6, &queue),
        payload_of(heap, 7, &item(heap)),
        payload_of(
            heap,
            8,
            &("text", [(1_u8, vec![-1_i64])].into_iter().collect::<std::collections::BTreeMap<_, _>>(), 'x'),
        ),
    ]
}

pub(super) fn parcel() -> Vec<Vec<u8>> {
    [vec![0, 1], vec![1, 0, 1, 1, 1, 1], vec![2, 3, 0, 255, 0, 0, 0, 0, 0, 0, 0, 4, 1, 2, 0, 9]]
        .into_iter()
        .chain(choices())
        .collect()
}

pub(super) fn manifest() -> Vec<Vec<u8>> {
    let heap = &small_heap();
    let frozen = TensorMut::<f32>::zeros_in(heap, [5, 8]).unwrap().freeze();
    let shared = SharedTensor::<i64>::zeros_in(heap, [8]).unwrap();
    let of_all = Bundle::builder()
        .add("layer.weight", &frozen)
        .add("steps", shared)
        .add("layer.transposed", frozen.transpose(0, 1).unwrap())
        .add("layer.row", frozen.select(0, 3).unwrap())
        .add("none", TensorMut::<u8>::zeros_in(heap, [0, 3]).unwrap().freeze());
    [of_all, Bundle::builder()]
        .map(|builder| {
            let parcel = Parcel::pack(heap, &builder.build_in(heap).unwrap()).unwrap();
            let Blocks(blocks) = Parcel::open(heap, parcel.id()).unwrap();
            parcel.take_back();
            blocks.payload()[MANIFEST_HEAD_BYTES..].to_vec()
        })
        .into()
}

/// Bytes that stand for choices.
pub(super) fn choices() -> Vec<Vec<u8>> {
    let mut random = Random::from_seed(1);
    (1..=6).map(|n| (0..8 * n).map(|_| random.draw().to_le_bytes()[0]).collect()).collect()
}
