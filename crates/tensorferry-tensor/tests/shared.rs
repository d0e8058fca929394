//! Shared tensors: every holder reads and writes.

use std::thread;

use tensorferry_storage::Heap;
use tensorferry_tensor::{
    AtomicNumber, Bool, Complex, DimSlice, LayoutError, SharedTensor, TensorMut, TryIntoMutErrorKind, bf16,
    f16,
};

use crate::send;

#[test]
fn single_elements() {
    let tensor = SharedTensor::<i16>::zeros([2, 3]).unwrap();
    tensor.store([1, 2], 5).unwrap();
    assert_eq!(tensor.swap([1, 2], 6), Ok(5));
    assert_eq!(tensor.fetch_add([1, 2], i16::MAX), Ok(6));
    assert_eq!(tensor.load([1, 2]), Ok(i16::MIN + 5));
    assert_eq!(tensor.to_vec(), [0, 0, 0, 0, 0, i16::MIN + 5]);
    assert_eq!(tensor.load([2, 0]), Err(LayoutError::IndexOutOfRange { dim: 0, index: 2, len: 2 }));
    assert_eq!(tensor.store([0], 1), Err(LayoutError::IndexRank { given: 1, rank: 2 }));
    let flags = SharedTensor::<Bool>::zeros_in(Heap::current().unwrap(), [9]).unwrap();
    flags.store([8], Bool::TRUE).unwrap();
    assert!(flags.load([8]).unwrap().get() && !flags.load([7]).unwrap().get());
}

#[test]
fn made_from_a_slice_or_of_one_value_in_the_memory_that_is_named() {
    let heap = Heap::current().unwrap();
    for tensor in [SharedTensor::full([2], 7_u32), SharedTensor::full_in(heap, [2], 7)] {
        assert_eq!(tensor.unwrap().to_vec(), [7, 7]);
    }
    for tensor in [SharedTensor::from_slice(&[1, 2], [2]), SharedTensor::from_slice_in(heap, &[1, 2], [2])] {
        assert_eq!(tensor.unwrap().to_vec(), [1, 2]);
    }
}

#[test]
fn rank_zero_and_size_zero() {
    let scalar = SharedTensor::from_slice(&[1.0_f64], []).unwrap();
    scalar.add_from(&[2.0]).unwrap();
    assert_eq!(send::<_, SharedTensor<f64>>(&scalar).to_vec(), [3.0]);
    let none = SharedTensor::<f64>::zeros([0, 2]).unwrap();
    none.write_from(&[]).unwrap();
    none.add_from(&[]).unwrap();
    none.fill(1.0);
    assert!(send::<_, SharedTensor<f64>>(&none).to_vec().is_empty());
    assert!(!none.shares_storage_with(&none));
    assert!(none.try_into_mut().is_ok());
}

fn bulk<T: AtomicNumber>(values: &[T; 5], factor: T) {
    let tensor = SharedTensor::<T>::zeros([7]).unwrap();
    let middle = tensor.narrow(0, 1, 5).unwrap();
    middle.write_from(values).unwrap();
    middle.add_scaled_from(values, factor).unwrap();
    middle.add_from(values).unwrap();
    let expected: Vec<T> = values.iter().map(|v| v.plus(v.times(factor)).plus(*v)).collect();
    assert_eq!(middle.to_vec(), expected);
    let mut all = [T::zeroed(); 7];
    tensor.read_into(&mut all).unwrap();
    assert_eq!((all[0], &all[1..6], all[6]), (T::zeroed(), &expected[..], T::zeroed()));
    tensor.fill(factor);
    assert_eq!(tensor.to_vec(), [factor; 7]);
}

#[test]
fn zeros_change_nothing_wherever_they_lie_in_a_word() {
    let values = [-0.0_f32, 1.0, -0.0, f32::INFINITY, -0.0, 2.0, -0.0];
    let data = [0.0_f32, 1.0, -0.0, 0.0, 1.0, 0.0];
    for (start, alpha) in (0..2).flat_map(|start| [f32::NAN, f32::INFINITY, 1.0].map(|alpha| (start, alpha)))
    {
        let tensor = SharedTensor::from_slice(&values, [7]).unwrap();
        tensor.narrow(0, start, 6).unwrap().add_scaled_from(&data, alpha).unwrap();
        let mut expected = values;
        for (old, value) in expected[start..].iter_mut().zip(data).filter(|(_, value)| *value != 0.0) {
            *old += value * alpha;
        }
        let bits = |all: &[f32]| all.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&tensor.to_vec()), bits(&expected), "from {start}, times {alpha}");
    }
}

#[test]
fn bulk_access_for_every_size_of_element() {
    bulk(&[1_u8, 2, 250, 0, 9], 3);
    bulk(&[1_i32, -2, 3, 0, i32::MAX], 7);
    bulk(&[1_u64, 2, 3, 0, u64::MAX], 7);
    bulk(&[1.5_f32, -2.0, 0.0, 4.25, 8.0], -0.5);
    bulk(&[1.5_f64, -2.0, 0.0, 4.25, 8.0], -0.5);
    bulk(&[1.5, -2.0, 0.0, 4.25, 8.0].map(f16::from_f32), f16::from_f32(0.5));
    bulk(&[1.5, -2.0, 0.0, 4.25, 8.0].map(bf16::from_f32), bf16::from_f32(0.5));
    bulk(&[1.0, 2.0, 0.0, 4.0, 5.0].map(|re| Complex::new(re, -1.0_f32)), Complex::new(0.0, 1.0));
}

#[test]
fn lengths_have_to_match() {
    let tensor = SharedTensor::<f32>::zeros([2, 2]).unwrap();
    let error = tensor.add_from(&[1.0; 3]).unwrap_err();
    assert_eq!(error.to_string(), "shape [2, 2] has 4 elements, but 3 were given");
    assert!(tensor.read_into(&mut [0.0; 5]).is_err() && tensor.write_from(&[]).is_err());
    assert_eq!(tensor.to_vec(), [0.0; 4]);
}

#[test]
fn views_write_through() {
    let tensor = SharedTensor::<i32>::zeros([3, 4]).unwrap();
    tensor.transpose(0, 1).unwrap().write_from(&[0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]).unwrap();
    assert_eq!(tensor.to_vec(), (0..12).collect::<Vec<_>>());
    let corners = tensor.slice(&[DimSlice::from(..).step(2), DimSlice::from(..).step(3)]).unwrap();
    corners.add_from(&[100; 4]).unwrap();
    assert_eq!(corners.to_vec(), [100, 103, 108, 111]);
    tensor.select(0, 1).unwrap().fill(-1);
    assert_eq!(tensor.to_vec(), [100, 1, 2, 103, -1, -1, -1, -1, 108, 9, 10, 111]);
    assert_eq!(tensor.reshape([2, 6]).unwrap().load([1, 5]), Ok(111));
    assert!(corners.shares_storage_with(&tensor));
}

#[test]
fn what_was_received_is_the_same_memory() {
    let tensor = SharedTensor::<f32>::zeros([4]).unwrap();
    let (whole, tail): (SharedTensor<f32>, SharedTensor<f32>) =
        send(&(&tensor, tensor.narrow(0, 2, 2).unwrap()));
    tail.add_from(&[1.0, 2.0]).unwrap();
    whole.store([0], 9.0).unwrap();
    assert_eq!(tensor.to_vec(), [9.0, 0.0, 1.0, 2.0]);
    assert!(whole.shares_storage_with(&tail) && whole.storage_id() == tensor.storage_id());
}

#[test]
fn back_to_one_owner_when_nobody_else_holds_it() {
    let mut tensor = TensorMut::from_slice(&[1, 2, 3], [3]).unwrap();
    tensor.as_mut_slice()[0] = 7;
    let shared = SharedTensor::from(tensor);
    let view = shared.narrow(0, 0, 2).unwrap();
    let refused = shared.try_into_mut().unwrap_err();
    assert_eq!(refused.kind(), TryIntoMutErrorKind::InUse);
    assert!(refused.to_string().contains("somebody else holds it too: a clone"), "{refused}");
    let shared = refused.into_tensor();
    let refused = view.try_into_mut().unwrap_err();
    assert_eq!(refused.kind(), TryIntoMutErrorKind::PartialView);
    assert!(refused.to_string().contains("part of its storage"));
    drop(refused);
    shared.store([1], 8).unwrap();
    assert_eq!(shared.try_into_mut().unwrap().freeze().to_vec(), [7, 8, 3]);
}

#[test]
fn many_writers_lose_nothing() {
    let tensor = SharedTensor::<f32>::zeros([101]).unwrap();
    let n_rounds = 500_u16;
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let received: SharedTensor<f32> = send(&tensor);
                (0..n_rounds).for_each(|_| received.add_scaled_from(&[2.0; 101], 0.5).unwrap());
            });
        }
        scope.spawn(|| (0..n_rounds).for_each(|_| _ = tensor.fetch_add([50], 1.0).unwrap()));
    });
    let mut expected = vec![f32::from(n_rounds) * 3.0; 101];
    expected[50] += f32::from(n_rounds);
    assert_eq!(tensor.to_vec(), expected);
}

#[test]
fn debug_loads_the_elements() {
    let tensor = SharedTensor::from_slice(&[1_u16, 2, 3, 4], [2, 2]).unwrap();
    assert_eq!(format!("{tensor:?}"), "SharedTensor<u16>[2, 2] [[1, 2], [3, 4]]");
    tensor.store([0, 1], 9).unwrap();
    assert_eq!(format!("{:?}", tensor.select(1, 1).unwrap()), "SharedTensor<u16>[2] [9, 4]");
}
