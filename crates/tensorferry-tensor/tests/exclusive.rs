//! Exclusive tensors: making, writing, moving.

use std::sync::Arc;

use tensorferry_reduce::{EncodeError, Parcel, TransitError};
use tensorferry_storage::Heap;
use tensorferry_tensor::{Bool, DType, LayoutError, SharedTensor, Tensor, TensorError, TensorMut};

use crate::{Refuses, send};

#[test]
fn every_way_to_make_one() {
    let heap = Heap::current().unwrap();
    assert_eq!(TensorMut::<u16>::zeros([2, 3]).unwrap().as_slice(), [0; 6]);
    assert_eq!(TensorMut::<u16>::zeros_in(heap, [2]).unwrap().as_slice(), [0; 2]);
    assert_eq!(TensorMut::full([3], 2.5_f64).unwrap().as_slice(), [2.5; 3]);
    assert_eq!(TensorMut::full_in(heap, [3], 2.5_f64).unwrap().as_slice(), [2.5; 3]);
    assert_eq!(TensorMut::from_slice(&[1, 2, 3, 4], [2, 2]).unwrap().as_slice(), [1, 2, 3, 4]);
    assert_eq!(TensorMut::<u8>::empty([5]).unwrap().as_slice().len(), 5);
    assert_eq!(TensorMut::<u8>::empty_in(heap, [5]).unwrap().n_elements(), 5);
}

#[test]
fn rank_zero_and_size_zero() {
    let mut scalar = TensorMut::full([], 7_i64).unwrap();
    assert_eq!((scalar.n_elements(), scalar.as_slice()), (1, &[7][..]));
    assert_eq!(send::<_, TensorMut<i64>>(&scalar).as_slice(), [7]);
    let mut none = TensorMut::<i64>::zeros([3, 0]).unwrap();
    assert_eq!(none.as_slice(), [0_i64; 0]);
    let mut received: TensorMut<i64> = send(&none);
    assert_eq!((received.shape().to_vec(), received.as_mut_slice().len()), (vec![3, 0], 0));
    assert_eq!(none.freeze().try_into_mut().unwrap().shape(), &[3, 0]);
}

#[test]
fn wrong_shapes_are_errors_with_numbers() {
    let error = TensorMut::from_slice(&[1, 2, 3], [2, 2]).unwrap_err();
    assert_eq!(error.to_string(), "shape [2, 2] has 4 elements, but 3 were given");
    assert!(matches!(
        TensorMut::<f32>::zeros([usize::MAX, 2]),
        Err(TensorError::Layout(LayoutError::TooManyElements { .. }))
    ));
    assert!(matches!(TensorMut::<f64>::zeros([1 << 55]), Err(TensorError::Storage(_))));
}

#[test]
fn what_is_written_is_what_is_read_after_freezing() {
    let mut tensor = TensorMut::zeros([2, 2]).unwrap();
    tensor.as_mut_slice().copy_from_slice(&[1, 2, 3, 4]);
    tensor.set_shape([4]).unwrap();
    assert_eq!((tensor.dtype(), tensor.rank()), (DType::I32, 1));
    assert_eq!(tensor.set_shape([3]).unwrap_err().to_string(), "shape [4] of 4 elements cannot become [3]");
    let id = tensor.storage_id();
    let frozen = tensor.freeze();
    assert_eq!((frozen.shape().to_vec(), frozen.to_vec()), (vec![4], vec![1, 2, 3, 4]));
    assert_eq!(frozen.storage_id(), Some(id));
}

#[test]
fn sending_moves_the_memory() {
    let tensor = Arc::new(TensorMut::from_slice(&[1_u8, 2, 3], [3]).unwrap());
    let id = tensor.storage_id();
    let mut received: TensorMut<u8> = send(&*tensor);
    assert_eq!((received.storage_id(), received.as_slice()), (id, &[1, 2, 3][..]));
    received.as_mut_slice()[0] = 9;

    let mut left = Arc::into_inner(tensor).unwrap();
    assert!(left.is_moved());
    assert_eq!((left.shape().to_vec(), left.n_elements()), (vec![0], 0));
    assert!(left.as_slice().is_empty() && left.as_mut_slice().is_empty());
    assert_eq!(left.freeze().shape(), &[0]);
    assert_eq!(received.as_slice(), [9, 2, 3]);
}

#[test]
fn it_is_sent_once() {
    let heap = Heap::current().unwrap();
    let tensor = TensorMut::<u8>::zeros([3]).unwrap();
    let twice = Parcel::pack(heap, &(&tensor, &tensor));
    assert!(matches!(twice, Err(EncodeError::Transit(TransitError::Moved))), "{twice:?}");
    let _gone: TensorMut<u8> = send(&tensor);
    let again = Parcel::pack(heap, &tensor);
    assert!(matches!(again, Err(EncodeError::Transit(TransitError::Moved))), "{again:?}");
}

#[test]
fn a_message_that_fails_gives_it_back() {
    let mut tensor = TensorMut::from_slice(&[1, 2, 3], [3]).unwrap();
    assert!(Parcel::pack(Heap::current().unwrap(), &(&tensor, Refuses)).is_err());
    assert!(!tensor.is_moved());
    assert_eq!(tensor.as_mut_slice(), [1, 2, 3]);
}

#[test]
fn outside_of_a_message_it_cannot_be_serialised() {
    let mut tensor = TensorMut::from_slice(&[1, 2, 3], [3]).unwrap();
    let error = serde_json::to_string(&tensor).unwrap_err().to_string();
    assert!(error.contains("queue"), "{error}");
    assert_eq!(tensor.as_slice(), [1, 2, 3]);
    assert!(serde_json::to_string(&tensor.freeze()).is_err());
    let bytes = format!("[255,1,0,{},1,1,0,0]", DType::U8.code());
    let received = serde_json::from_str::<Tensor<u8>>(&bytes);
    assert!(received.unwrap_err().to_string().contains("queue"));
}

#[test]
fn debug_says_type_and_shape_and_that_it_was_moved() {
    let tensor = TensorMut::<f32>::zeros([2, 3]).unwrap();
    let text = format!("{tensor:?}");
    assert_eq!(text, "TensorMut<f32>[2, 3] (as_slice() has the elements)");
    drop(send::<_, TensorMut<f32>>(&tensor));
    assert_eq!(format!("{tensor:?}"), "TensorMut<f32>[0] (moved away)");
}

#[test]
fn ones_are_one_of_every_type() {
    assert_eq!(TensorMut::<f32>::ones((2, 3)).unwrap().as_slice(), [1.0; 6]);
    assert_eq!(TensorMut::<Bool>::ones([2]).unwrap().as_slice(), [Bool::TRUE; 2]);
    assert_eq!(SharedTensor::<i64>::ones([2]).unwrap().to_vec(), [1; 2]);
}
