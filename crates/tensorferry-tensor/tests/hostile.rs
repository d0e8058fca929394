//! Messages with real storage and forged numbers, which no honest sender writes.

use proptest::prelude::*;
use serde::{Serialize, Serializer, ser};
use tensorferry_storage::{FrozenBlock, Heap};
use tensorferry_tensor::{AnyTensor, DType, SharedTensor, Tensor, TensorMut};

use crate::try_send;

/// The fields of a tensor's payload, with a real block of 16 bytes.
struct Forged {
    dtype: DType,
    shape: Vec<u64>,
    strides: Option<Vec<u64>>,
    offset: u64,
    /// Added to the index of the block.
    wrong_index: Option<u32>,
    block: FrozenBlock,
}

impl Forged {
    fn new(shape: &[u64], strides: Option<&[u64]>, offset: u64) -> Self {
        let block = Heap::current().unwrap().allocate_zeroed(16).unwrap().freeze();
        Self {
            dtype: DType::F32,
            shape: shape.to_vec(),
            strides: strides.map(<[u64]>::to_vec),
            offset,
            wrong_index: Some(0),
            block,
        }
    }
}

impl Serialize for Forged {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let index = tensorferry_reduce::give_frozen(&self.block).map_err(ser::Error::custom)?;
        let index = self.wrong_index.map(|wrong| index.get() + wrong);
        let fields = (index, self.dtype.code(), &self.shape, &self.strides, self.offset);
        let fields = postcard::to_stdvec(&fields).map_err(ser::Error::custom)?;
        serializer.serialize_bytes(&[&[0xff], &fields[..]].concat())
    }
}

#[test]
fn an_honest_forgery_is_accepted() {
    let tensor: Tensor<f32> = try_send(&Forged::new(&[2, 2], Some(&[1, 2]), 0)).unwrap();
    assert_eq!((tensor.shape().to_vec(), tensor.strides().to_vec()), (vec![2, 2], vec![1, 2]));
}

#[test]
fn numbers_beyond_the_storage_are_refused() {
    for (shape, strides, offset) in [
        (&[5][..], None, 0),
        (&[4], None, 1),
        (&[2], Some(&[4][..]), 0),
        (&[2, 2], Some(&[2, 2]), 0),
        (&[1], None, u64::MAX),
        (&[u64::MAX], None, 0),
        (&[u64::MAX, u64::MAX], Some(&[0, 0]), 0),
        (&[2], Some(&[u64::MAX]), 0),
        (&[2], Some(&[1, 1]), 0),
        (&[0], None, 0),
    ] {
        let received = try_send::<_, Tensor<f32>>(&Forged::new(shape, strides, offset));
        assert!(received.is_err(), "{shape:?} {strides:?} {offset}");
        let received = try_send::<_, AnyTensor>(&Forged::new(shape, strides, offset));
        assert!(received.is_err(), "{shape:?} {strides:?} {offset}");
    }
    let no_storage = Forged { wrong_index: None, ..Forged::new(&[2], None, 0) };
    assert!(try_send::<_, Tensor<f32>>(&no_storage).is_err());
    let wrong_index = Forged { wrong_index: Some(1), ..Forged::new(&[2], None, 0) };
    assert!(try_send::<_, Tensor<f32>>(&wrong_index).is_err());
}

#[test]
fn the_size_of_the_element_counts() {
    let wide = |shape: &[u64]| Forged { dtype: DType::Complex128, ..Forged::new(shape, None, 0) };
    assert_eq!(try_send::<_, AnyTensor>(&wide(&[1])).unwrap().dtype(), DType::Complex128);
    assert!(try_send::<_, AnyTensor>(&wide(&[2])).is_err());
}

#[test]
fn a_frozen_block_is_neither_shared_nor_exclusive() {
    assert!(try_send::<_, SharedTensor<f32>>(&Forged::new(&[4], None, 0)).is_err());
    assert!(try_send::<_, TensorMut<f32>>(&Forged::new(&[4], None, 0)).is_err());
    let shared = SharedTensor::<f32>::zeros([4]).unwrap();
    assert!(try_send::<_, Tensor<f32>>(&shared).is_err());
    assert!(try_send::<_, TensorMut<f32>>(&shared).is_err());
    assert!(try_send::<_, Tensor<f32>>(&TensorMut::<f32>::zeros([4]).unwrap()).is_err());
    assert!(try_send::<_, SharedTensor<f32>>(&TensorMut::<f32>::zeros([4]).unwrap()).is_err());
}

#[test]
fn a_value_of_another_type_is_no_tensor() {
    assert!(try_send::<_, Tensor<f32>>("text").is_err());
    assert!(try_send::<_, AnyTensor>(&(200_u8, 1_u8, 1_u8)).is_err());
    assert!(try_send::<_, String>(&TensorMut::<f32>::zeros([4]).unwrap().freeze()).is_err());
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0_u64..5, 1 => Just(u64::MAX), 1 => Just(u64::MAX / 32), 1 => any::<u64>()]
}

proptest! {
    #[test]
    fn whatever_the_numbers_reading_stays_inside(
        dims in prop::collection::vec((number(), number()), 0..4),
        with_strides in any::<bool>(),
        offset in number(),
    ) {
        let (shape, strides): (Vec<u64>, Vec<u64>) = dims.into_iter().unzip();
        let mut forged = Forged::new(&shape, with_strides.then_some(&strides[..]), offset);
        if shape.contains(&0) {
            forged.wrong_index = None;
        }
        if let Ok(tensor) = try_send::<_, Tensor<f32>>(&forged) {
            prop_assert!(tensor.iter().take(100).all(|value| *value == 0.0));
            prop_assert!(tensor.layout().end() <= 4);
            if let Some(first) = tensor.iter().next() {
                prop_assert_eq!(tensor.get(vec![0; tensor.rank()]), Ok(*first));
            }
            let narrow = (0..tensor.rank()).try_fold(tensor, |tensor, dim| tensor.narrow(dim, 0, 1));
            prop_assert!(narrow.is_err() || narrow.is_ok_and(|one| one.item() == Ok(0.0)));
        }
    }
}
