//! Frozen tensors in shared memory: reading, views, copies, and the way back to writing.

use serde::{Deserialize, Serialize};
use tensorferry_reduce::with_encoded;
use tensorferry_storage::Heap;
use tensorferry_tensor::{DimSlice, LayoutError, Tensor, TensorMut, TryIntoMutErrorKind};

use crate::send;

fn counting(shape: &[usize]) -> Tensor<i32> {
    let mut tensor = TensorMut::zeros(shape).unwrap();
    for (value, element) in (0..).zip(tensor.as_mut_slice()) {
        *element = value;
    }
    tensor.freeze()
}

#[test]
fn reading() {
    let tensor = counting(&[2, 3]);
    assert_eq!(tensor.as_slice().unwrap(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(tensor.get([1, 2]), Ok(5));
    assert_eq!(tensor.get([2, 0]), Err(LayoutError::IndexOutOfRange { dim: 0, index: 2, len: 2 }));
    let columns = tensor.transpose(0, 1).unwrap();
    assert!(matches!(columns.as_slice(), Err(LayoutError::NotContiguous { .. })));
    assert_eq!(columns.to_vec(), [0, 3, 1, 4, 2, 5]);
    assert_eq!(columns.iter().len(), 6);
    assert_eq!((&columns).into_iter().sum::<i32>(), 15);
    assert_eq!(columns.into_vec(), [0, 3, 1, 4, 2, 5]);
    assert_eq!(tensor.select(0, 1).unwrap().narrow(0, 1, 1).unwrap().item(), Ok(4));
    assert!(matches!(tensor.item(), Err(LayoutError::NotOneElement { n_elements: 6, .. })));
}

#[test]
fn views_share_the_storage() {
    let tensor = counting(&[2, 3, 4]);
    let view = tensor.slice(&[(1..).into(), DimSlice::from(..).step(2), (1..3).into()]).unwrap();
    assert!(view.shares_storage_with(&tensor));
    assert_eq!(view.storage_id(), tensor.storage_id());
    assert_eq!(view.to_vec(), [13, 14, 21, 22]);
    let view = view.squeeze(0).unwrap().unsqueeze(2).unwrap().permute(&[1, 0, 2]).unwrap();
    assert_eq!((view.to_vec(), view.rank()), (vec![13, 21, 14, 22], 3));
    assert_eq!(tensor.reshape([4, 6]).unwrap().flatten().unwrap(), tensor.flatten().unwrap());
    assert_ne!(tensor, tensor.flatten().unwrap());
    assert_eq!(tensor.narrow(0, 2, 0).unwrap().to_vec(), [0_i32; 0]);
}

#[test]
fn copies_happen_only_where_asked_for() {
    let tensor = counting(&[4, 6]);
    assert!(tensor.contiguous().unwrap().shares_storage_with(&tensor));
    assert!(tensor.compact().unwrap().shares_storage_with(&tensor));
    let columns = tensor.transpose(0, 1).unwrap();
    let copy = columns.contiguous().unwrap();
    assert!(copy.is_contiguous() && copy.is_shared() && !copy.shares_storage_with(&tensor));
    assert_eq!(copy, columns);

    let part = tensor.narrow(0, 1, 2).unwrap().narrow(1, 2, 2).unwrap();
    let compact = part.compact().unwrap();
    assert_eq!((compact.offset(), compact.strides()), (0, part.strides()));
    assert_eq!(compact, part);
    assert!(!compact.shares_storage_with(&tensor));
    assert!(compact.compact().unwrap().shares_storage_with(&compact), "there is nothing left to leave out");
    assert!(counting(&[3]).narrow(0, 1, 0).unwrap().compact().unwrap().to_vec().is_empty());
}

#[test]
fn an_exclusive_tensor_converts_into_a_frozen_one() {
    let tensor = Tensor::from(TensorMut::from_slice(&[1_u8, 2, 3, 4], [2, 2]).unwrap());
    assert_eq!((tensor.shape().to_vec(), tensor.to_vec()), (vec![2, 2], vec![1, 2, 3, 4]));
}

#[test]
fn an_iterator_knows_its_length_and_stays_at_its_end() {
    fn check(mut values: impl ExactSizeIterator<Item = i32> + std::iter::FusedIterator, expected: &[i32]) {
        for (at, value) in expected.iter().enumerate() {
            assert_eq!((values.len(), values.next()), (expected.len() - at, Some(*value)));
        }
        assert_eq!((values.len(), values.next(), values.next()), (0, None, None));
    }
    let tensor = counting(&[2, 3]);
    check(tensor.iter().copied(), &[0, 1, 2, 3, 4, 5]);
    check(tensor.transpose(0, 1).unwrap().iter().copied(), &[0, 3, 1, 4, 2, 5]);
}

#[test]
fn back_to_writing_when_nobody_else_holds_it() {
    let tensor = counting(&[3]);
    let id = tensor.storage_id().unwrap();
    let clone = tensor.clone();
    let refused = tensor.try_into_mut().unwrap_err();
    assert_eq!(refused.kind(), TryIntoMutErrorKind::InUse);
    assert!(refused.to_string().contains("somebody else holds it too: a clone"), "{refused}");
    let tensor = refused.into_tensor();
    drop(clone);
    let mut writable = tensor.try_into_mut().unwrap();
    assert_eq!((writable.storage_id(), writable.as_mut_slice()), (id, &mut [0, 1, 2][..]));

    let tensor = writable.freeze();
    let view = tensor.narrow(0, 0, 2).unwrap();
    drop(tensor);
    let refused = view.try_into_mut().unwrap_err();
    assert_eq!(refused.kind(), TryIntoMutErrorKind::PartialView);
    assert!(refused.to_string().contains("part of its storage"));
    assert_eq!(refused.into_tensor().into_mut().unwrap().as_slice(), [0, 1]);
    let tensor = counting(&[3]);
    let id = tensor.storage_id().unwrap();
    assert_ne!(tensor.to_mut().unwrap().storage_id(), id);
    assert_eq!(tensor.into_mut().unwrap().storage_id(), id);
}

#[test]
fn a_received_tensor_is_the_same_memory_and_counts_as_a_holder() {
    let tensor = counting(&[2, 3]);
    let received: Tensor<i32> = send(&tensor);
    assert_eq!(received, tensor);
    assert!(received.shares_storage_with(&tensor) && received.is_shared());
    assert!(tensor.try_into_mut().is_err());
    let forwarded: Tensor<i32> = send(&received);
    assert_eq!(forwarded.to_vec(), [0, 1, 2, 3, 4, 5]);
}

#[derive(Serialize, Deserialize)]
struct Sample {
    name: String,
    views: Vec<Tensor<i32>>,
    label: Option<Tensor<i32>>,
}

#[test]
fn tensors_travel_anywhere_inside_a_value() {
    let tensor = counting(&[4, 5]);
    let views = vec![
        tensor.clone(),
        tensor.transpose(0, 1).unwrap(),
        tensor.narrow(1, 2, 3).unwrap(),
        tensor.select(0, 1).unwrap().expand([3, 5]).unwrap(),
        tensor.narrow(0, 4, 0).unwrap(),
        tensor.select(0, 1).unwrap().select(0, 3).unwrap(),
    ];
    let sample = Sample { name: "views".into(), views, label: Some(counting(&[])) };
    let received: Sample = send(&sample);
    assert_eq!(received.name, "views");
    assert_eq!(received.views, sample.views);
    assert_eq!(received.label, sample.label);
    for (one, two) in received.views.iter().zip(&sample.views) {
        assert_eq!((one.strides(), one.offset()), (two.strides(), two.offset()));
        assert_eq!(one.shares_storage_with(&received.views[0]), two.n_elements() > 0);
    }
    assert!(!received.label.unwrap().shares_storage_with(&received.views[0]));
}

fn cost<T: Serialize>(value: &T) -> (usize, usize) {
    let heap = Heap::current().unwrap();
    with_encoded::<_, _, tensorferry_reduce::EncodeError>(heap, value, |payload, handles| {
        Ok((payload.len(), handles.len()))
    })
    .unwrap()
}

#[test]
fn a_view_costs_the_same_whatever_its_storage() {
    let row = |tensor: &Tensor<i32>| tensor.select(0, 1).unwrap();
    let (small, large) = (counting(&[2, 16]), counting(&[2000, 16]));
    assert_eq!(cost(&row(&small)), cost(&row(&large)));
    // The length of the bytes (two), mark, dtype, rank and length, no strides, offset, index (two).
    assert_eq!(cost(&row(&small)), (10, 1));
    assert_eq!(cost(&vec![row(&small), row(&small), small.clone()]).1, 1, "one storage is one handle");
    assert_eq!(cost(&small.narrow(0, 0, 0).unwrap()).1, 0);
}

#[test]
fn debug_prints_the_elements() {
    let tensor = Tensor::from_vec(vec![1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]).unwrap();
    assert_eq!(format!("{tensor:?}"), "Tensor<f32>[2, 3] [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]");
    let column = tensor.select(1, 2).unwrap();
    assert_eq!(format!("{column:.2?}"), "Tensor<f32>[2] [3.00, 6.00]");
    let shared = tensor.share_memory().unwrap();
    assert_eq!(format!("{shared:?}"), format!("{tensor:?}"));
}
