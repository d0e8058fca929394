//! The payload of a tensor: its bytes, round trips, and numbers that no honest sender writes.

use proptest::prelude::*;

use super::*;

fn wire(shape: &[usize], strides: Option<&[usize]>, offset: usize, storage: Option<u32>) -> WireTensor {
    WireTensor {
        dtype: DType::F32,
        shape: WireDims(Dims::from_slice(shape)),
        strides: strides.map(|strides| WireDims(Dims::from_slice(strides))),
        offset,
        storage,
    }
}

fn error(wire: WireTensor) -> String {
    wire.layout().unwrap_err().to_string()
}

#[test]
fn the_bytes_are_those_of_the_table() {
    // dtype code; rank, lengths; 0 or 1, rank, strides; offset; 0 or 1, index.
    let contiguous = wire(&[2, 300], None, 0, Some(5));
    assert_eq!(postcard::to_stdvec(&contiguous).unwrap(), [12, 2, 2, 0xac, 2, 0, 0, 1, 5]);
    let view = wire(&[2], Some(&[3]), 7, Some(0));
    assert_eq!(postcard::to_stdvec(&view).unwrap(), [12, 1, 2, 1, 1, 3, 7, 1, 0]);
    let empty = wire(&[0], None, 0, None);
    assert_eq!(postcard::to_stdvec(&empty).unwrap(), [12, 1, 0, 0, 0, 0]);
}

#[test]
fn contradictions_are_errors() {
    assert_eq!(error(wire(&[2], None, 0, None)), "the message has no storage for a tensor of 2 elements");
    assert_eq!(error(wire(&[0], None, 0, Some(1))), "the message has a storage for a tensor of 0 elements");
    assert_eq!(
        error(wire(&[2], Some(&[1, 1]), 0, Some(1))),
        "a shape of rank 1 needs as many strides, not 2"
    );
    assert!(error(wire(&[usize::MAX, 2], None, 0, Some(1))).contains("more elements than memory can hold"));
    assert!(error(wire(&[2], None, usize::MAX, Some(1))).contains("reaches beyond"));
    assert!(matches!(
        wire(&[2], None, 0, Some(1)).expect::<u8>(),
        Err(TensorError::DTypeMismatch { expected: DType::U8, found: DType::F32 })
    ));
    assert!(matches!(
        wire(&[2], None, 1, Some(1)).into_exclusive::<f32>(),
        Err(TensorError::NotWhole { offset: 1 })
    ));
    assert!(matches!(
        wire(&[2], Some(&[2]), 0, Some(1)).into_exclusive::<f32>(),
        Err(TensorError::NotWhole { offset: 0 })
    ));
}

#[test]
fn a_rank_beyond_the_limit_is_refused_before_it_is_stored() {
    let mut bytes = vec![12, 65];
    bytes.extend([1; 65]);
    bytes.extend([0, 0, 1, 0]);
    assert!(postcard::from_bytes::<WireTensor>(&bytes).is_err());
    let huge = [12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1];
    assert!(postcard::from_bytes::<WireTensor>(&huge).is_err());
}

#[test]
fn an_empty_tensor_needs_no_message() {
    let tensor = Tensor::from_vec(Vec::<f64>::new(), [3, 0]).unwrap();
    let bytes = postcard::to_stdvec(&tensor).unwrap();
    assert_eq!(postcard::from_bytes::<Tensor<f64>>(&bytes).unwrap().shape(), &[3, 0]);
    let any: AnyTensor = postcard::from_bytes(&bytes).unwrap();
    assert_eq!((any.dtype(), any.n_elements()), (DType::F64, 0));
    assert_eq!(postcard::from_bytes::<SharedTensor<f64>>(&bytes).unwrap().shape(), &[3, 0]);
    let wrong = postcard::from_bytes::<Tensor<f32>>(&bytes);
    assert!(wrong.is_err(), "{wrong:?}");
}

proptest! {
    #[test]
    fn layouts_come_back(
        dims in prop::collection::vec((0_usize..4, 0_usize..9), 0..5),
        offset in 0_usize..9,
    ) {
        let (shape, strides): (Vec<usize>, Vec<usize>) = dims.into_iter().unzip();
        let layout = Layout::new(shape, &strides, offset).unwrap();
        let sent = WireTensor::describe(DType::F32, &layout, || Ok(3)).unwrap();
        let bytes = postcard::to_stdvec(&sent).unwrap();
        let (received, storage) = postcard::from_bytes::<WireTensor>(&bytes).unwrap().layout().unwrap();
        prop_assert_eq!(received.offsets().collect::<Vec<_>>(), layout.offsets().collect::<Vec<_>>());
        prop_assert_eq!(received.shape(), layout.shape());
        prop_assert_eq!(storage.is_some(), layout.n_elements() > 0);
    }

    #[test]
    fn hostile_bytes_are_an_error_or_a_layout_that_knows_its_end(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok((layout, _)) = postcard::from_bytes::<WireTensor>(&bytes).map_err(drop).and_then(|w| w.layout().map_err(drop)) {
            let end = layout.end();
            prop_assert!(layout.offsets().take(64).all(|place| place < end));
        }
    }

    #[test]
    fn hostile_numbers_are_an_error_or_a_layout_that_knows_its_end(
        dims in prop::collection::vec((number(), number()), 0..5),
        with_strides in any::<bool>(),
        offset in number(),
    ) {
        let (shape, strides): (Vec<usize>, Vec<usize>) = dims.into_iter().unzip();
        let storage = (!shape.contains(&0)).then_some(0);
        if let Ok((layout, _)) = wire(&shape, with_strides.then_some(&strides[..]), offset, storage).layout() {
            let end = layout.end();
            prop_assert!(layout.offsets().take(64).all(|place| place < end));
            prop_assert!(layout.check_fits(end).is_ok());
            prop_assert!(end == 0 || layout.check_fits(end - 1).is_err());
        }
    }
}

fn number() -> impl Strategy<Value = usize> {
    prop_oneof![0_usize..5, Just(usize::MAX), Just(usize::MAX / 16), Just(1 << 33), any::<usize>()]
}
