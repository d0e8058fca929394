//! What can be in a message.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use tensorferry::{AnyTensor, Queue, SharedTensor, Tensor, TensorMut};
use tensorferry_kit::tasks::{Forward, Worker};
use tensorferry_kit::{Item, with_family};

use crate::channel;

#[test]
fn values_larger_than_a_slot_and_many_tensors() {
    with_family(|family| {
        let (down, down_there) = channel(family, 2);
        let (up_there, up) = channel(family, 2);
        let child = family.start(Forward { from: down_there.clone(), to: up_there.clone() });
        drop((down_there, up_there));
        // A slot has room for 240 bytes: below, around, and far above; then more handles than fit.
        for (sequence, note_len) in
            [0, 1, 200, 230, 231, 232, 240, 241, 4096, 1 << 20].into_iter().enumerate()
        {
            down.put(Item::new(family.heap(), 1, sequence as u64, &[8]).with_note(note_len)).unwrap();
            let came = up.get().unwrap();
            came.check();
            assert_eq!(came.note.len(), note_len);
        }
        for (sequence, n_tensors) in [1, 2, 10, 29, 30, 31, 64, 65, 1000].into_iter().enumerate() {
            let lengths = vec![9; n_tensors];
            down.put(Item::new(family.heap(), 2, sequence as u64, &lengths)).unwrap();
            let came = up.get().unwrap();
            came.check();
            assert_eq!(came.tensors.len(), n_tensors);
        }
        drop(down);
        assert_eq!(child.hear_number(), 19);
        child.finish();
    });
}

#[test]
fn one_sentinel_for_each_worker_ends_them_all() {
    with_family(|family| {
        let jobs = Queue::new_in(family.heap(), 4).unwrap();
        let workers: Vec<_> = (0..4).map(|_| family.start(Worker { jobs: jobs.clone() })).collect();
        // Each job says where its answer goes: a queue in a queue's message.
        let answers = Queue::new_in(family.heap(), 64).unwrap();
        let mut expected = 0_u64;
        for sequence in 0..40 {
            let item = Item::new(family.heap(), 5, sequence, &[10]);
            expected = expected.wrapping_add(item.sum());
            jobs.put(Some((item, answers.clone()))).unwrap();
        }
        for _ in &workers {
            jobs.put(None).unwrap();
        }
        let done: u64 = workers.iter().map(tensorferry_kit::Child::hear_number).sum();
        assert_eq!(done, 40);
        let sum = (0..40).map(|_| answers.get_nowait().unwrap()).fold(0, u64::wrapping_add);
        assert_eq!(sum, expected);
        workers.into_iter().for_each(tensorferry_kit::Child::finish);
        assert!(jobs.is_empty());
    });
}

/// A tensor wherever serde's attributes make it be read before its type is known.
#[derive(Debug, Serialize, Deserialize)]
struct Envelope {
    tagged: Tagged,
    untagged: Vec<Untagged>,
    #[serde(flatten)]
    flattened: Flattened,
    #[serde(flatten)]
    more: BTreeMap<String, serde_json::Value>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind")]
enum Tagged {
    Frozen { tensor: Tensor<f32>, from: IpAddr },
    Exclusive { tensor: TensorMut<u8> },
    Shared { tensor: SharedTensor<i64>, back: Queue<u8> },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Any(AnyTensor),
    Number(i32),
    Text(String),
}

#[derive(Debug, Serialize, Deserialize)]
struct Flattened {
    image: Tensor<u16>,
    address: IpAddr,
    mask: Option<Tensor<u8>>,
}

#[test]
fn tensors_travel_wherever_serdes_attributes_put_them() {
    with_family(|family| {
        let heap = family.heap();
        let queue: Queue<Envelope> = Queue::new_in(heap, 2).unwrap();
        let back = Queue::new_in(heap, 2).unwrap();
        let frozen = |n: usize| TensorMut::<f32>::zeros_in(heap, [n]).unwrap().freeze();
        let shared = TensorMut::<i64>::zeros_in(heap, [3]).unwrap().share();
        let mut exclusive = TensorMut::<u8>::zeros_in(heap, [100]).unwrap();
        exclusive.as_mut_slice().fill(5);
        let address: IpAddr = "2001:db8::7".parse().unwrap();
        for tagged in [
            Tagged::Frozen { tensor: frozen(9), from: address },
            Tagged::Exclusive { tensor: exclusive },
            Tagged::Shared { tensor: shared.clone(), back: back.clone() },
        ] {
            let any: AnyTensor = frozen(4).into();
            let image = TensorMut::<u16>::zeros_in(heap, [7, 2]).unwrap().freeze();
            let mask = Some(TensorMut::<u8>::zeros_in(heap, [7]).unwrap().freeze());
            let more = [("a".to_owned(), serde_json::json!([1, { "b": null }]))].into();
            let untagged = vec![Untagged::Any(any), Untagged::Number(-3), Untagged::Text("x".to_owned())];
            queue
                .put(Envelope { tagged, untagged, flattened: Flattened { image, address, mask }, more })
                .unwrap();
            let came = queue.get().unwrap();
            match came.tagged {
                Tagged::Frozen { tensor, from } => assert_eq!((tensor.n_elements(), from), (9, address)),
                Tagged::Exclusive { mut tensor } => assert_eq!(tensor.as_mut_slice(), [5; 100]),
                Tagged::Shared { tensor, back } => {
                    tensor.store([1], 8).unwrap();
                    back.put(1).unwrap();
                }
            }
            assert!(matches!(&came.untagged[0], Untagged::Any(any) if any.n_elements() == 4));
            assert!(matches!(came.untagged[1], Untagged::Number(-3)));
            assert_eq!(came.flattened.image.shape(), &[7, 2]);
            assert_eq!(came.flattened.address, address);
            assert_eq!(came.flattened.mask.unwrap().n_elements(), 7);
            assert_eq!(came.more["a"], serde_json::json!([1, { "b": null }]));
        }
        assert_eq!((shared.load([1]).unwrap(), back.get().unwrap()), (8, 1));
    });
}
