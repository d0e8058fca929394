//! Tensors of any element type, through a message and back.

use tensorferry_tensor::{
    AnySharedTensor, AnyTensor, AnyTensorMut, Bool, Complex, DType, DynTensor, Element, F4E2M1FnX2, F6E2M3Fn,
    F6E3M2Fn, F8E3M4, F8E4M3, F8E4M3B11Fnuz, F8E4M3Fn, F8E4M3Fnuz, F8E5M2, F8E5M2Fnuz, F8E8M0Fnu,
    SharedTensor, Tensor, TensorError, TensorMut, bf16, f16, is_description,
};

use crate::{send, try_send};

/// Sends a tensor whose bytes count up; returns its dtype.
fn round_trip<T: Element>() -> DType {
    let mut tensor = TensorMut::<T>::empty([3, 2]).unwrap();
    // No byte above 95, so that no element of any type is NaN, which equals nothing.
    let bytes = bytemuck::cast_slice_mut::<T, u8>(tensor.as_mut_slice());
    for (value, byte) in (1_u8..).zip(bytes) {
        *byte = value;
    }
    let tensor = tensor.freeze().transpose(0, 1).unwrap();
    let any: AnyTensor = send(&tensor);
    assert_eq!(format!("{any:?}"), format!("Any{tensor:?}"));
    assert_eq!((any.dtype(), any.shape(), any.strides()), (T::DTYPE, tensor.shape(), tensor.strides()));
    assert_eq!(any.dtype().size_bytes(), size_of::<T>());
    assert_eq!(any.to_bytes().len(), 6 * size_of::<T>());
    let contiguous = any.contiguous().unwrap();
    assert_eq!(contiguous.to_bytes(), any.to_bytes());
    assert_eq!(contiguous.downcast::<T>().unwrap(), tensor);
    let typed: Tensor<T> = send(&any);
    assert_eq!(typed, tensor);
    assert_eq!(typed.dtype(), any.dtype());
    any.dtype()
}

#[test]
fn every_dtype_travels() {
    let mut seen = vec![
        round_trip::<Bool>(),
        round_trip::<u8>(),
        round_trip::<u16>(),
        round_trip::<u32>(),
        round_trip::<u64>(),
        round_trip::<i8>(),
        round_trip::<i16>(),
        round_trip::<i32>(),
        round_trip::<i64>(),
        round_trip::<f16>(),
        round_trip::<bf16>(),
        round_trip::<f32>(),
        round_trip::<f64>(),
        round_trip::<Complex<f16>>(),
        round_trip::<Complex<f32>>(),
        round_trip::<Complex<f64>>(),
        round_trip::<F8E3M4>(),
        round_trip::<F8E4M3>(),
        round_trip::<F8E4M3B11Fnuz>(),
        round_trip::<F8E4M3Fn>(),
        round_trip::<F8E4M3Fnuz>(),
        round_trip::<F8E5M2>(),
        round_trip::<F8E5M2Fnuz>(),
        round_trip::<F8E8M0Fnu>(),
        round_trip::<F6E2M3Fn>(),
        round_trip::<F6E3M2Fn>(),
        round_trip::<F4E2M1FnX2>(),
    ];
    seen.sort();
    assert_eq!(seen, DType::all().collect::<Vec<_>>());
}

#[test]
fn the_wrong_type_gives_the_tensor_back() {
    let any = AnyTensor::from(Tensor::from(vec![1_i32, 2]));
    let refused = any.downcast::<f32>().unwrap_err();
    assert_eq!(refused.to_string(), "the tensor holds int32, not float32");
    assert_eq!(Tensor::<i32>::try_from(refused.into_tensor()).unwrap().to_vec(), [1, 2]);
    let refused = AnyTensor::from(Tensor::from(vec![1_i32])).downcast::<u8>().unwrap_err();
    assert!(matches!(TensorError::from(refused), TensorError::DTypeMismatch { expected: DType::U8, .. }));
}

#[test]
fn receiving_another_dtype_is_an_error() {
    let tensor = TensorMut::<i32>::zeros([2]).unwrap().freeze();
    assert!(try_send::<_, Tensor<u32>>(&tensor).is_err());
    assert_eq!(try_send::<_, Tensor<i32>>(&tensor).unwrap(), tensor);
}

#[test]
fn views_and_copies_without_a_type() {
    let tensor = TensorMut::from_slice(&[1_u16, 2, 3, 4, 5, 6], [2, 3]).unwrap().freeze();
    let any = AnyTensor::from(tensor.clone());
    let view = any.narrow(1, 1, 2).unwrap().transpose(0, 1).unwrap();
    assert!(view.shares_storage_with(&any) && view.is_shared());
    assert_eq!(view.storage_id(), tensor.storage_id());
    let compact = view.compact().unwrap();
    assert!(!compact.shares_storage_with(&any));
    assert_eq!(compact.downcast::<u16>().unwrap().to_vec(), [2, 5, 3, 6]);
    assert!(any.compact().unwrap().shares_storage_with(&any));
    assert!(any.contiguous().unwrap().shares_storage_with(&any));
    assert!(any.share_memory().unwrap().shares_storage_with(&any));
    assert_eq!(any.select(0, 1).unwrap().to_bytes(), [4_u16, 5, 6].map(u16::to_ne_bytes).concat());
}

#[test]
fn an_exclusive_tensor_of_any_type_travels_as_what_it_is() {
    let mut tensor = AnyTensorMut::zeros(DType::I16, [2, 3]).unwrap();
    tensor.as_mut_bytes()[2] = 7;
    assert_eq!(
        (tensor.dtype(), tensor.shape().as_slice(), tensor.n_elements()),
        (DType::I16, &[2, 3][..], 6)
    );
    let mut typed: TensorMut<i16> = send(&tensor);
    assert!(tensor.is_moved() && !tensor.is_accessible() && tensor.as_bytes().is_empty());
    assert_eq!(tensor.rank(), 1);
    assert_eq!((tensor.shape().as_slice(), tensor.n_elements()), (&[0][..], 0));
    assert_eq!(typed.as_slice(), [0, 7, 0, 0, 0, 0]);
    let again: AnyTensorMut = send(&typed);
    let other = again.downcast::<u16>().unwrap_err();
    assert_eq!(other.to_string(), "the tensor holds int16, not uint16");
    let back = TensorMut::<i16>::try_from(other.into_tensor()).unwrap();
    let frozen = AnyTensorMut::from(back).freeze().downcast::<i16>().unwrap();
    assert_eq!(frozen.to_vec(), [0, 7, 0, 0, 0, 0]);
    // Frozen memory is no exclusive memory, and the error says so.
    let refused = try_send::<_, AnyTensorMut>(&frozen).unwrap_err();
    assert!(
        refused.to_string().contains("frozen memory arrived where exclusive memory is wanted"),
        "{refused}"
    );
}

#[test]
fn a_shared_tensor_of_any_type_is_the_same_memory() {
    let shared = AnyTensorMut::zeros(DType::F32, [4]).unwrap().share().unwrap();
    let view: SharedTensor<f32> = send(&shared.narrow(0, 2, 2).unwrap());
    view.store([1], 2.5).unwrap();
    let typed = shared.clone().downcast::<f32>().unwrap();
    assert_eq!((typed.to_vec(), typed.storage_id()), (vec![0.0, 0.0, 0.0, 2.5], shared.storage_id()));
    assert!(shared.clone().downcast::<i32>().is_err());
    let wide = AnyTensorMut::zeros(DType::Complex128, [1]).unwrap().share().unwrap_err();
    assert_eq!((wide.dtype(), wide.is_moved()), (DType::Complex128, false));
    let refused = try_send::<_, AnySharedTensor>(&TensorMut::<u8>::zeros([1]).unwrap()).unwrap_err();
    assert!(refused.to_string().contains("freeze a `TensorMut`"), "{refused}");
}

#[test]
fn a_tensor_of_any_kind_arrives_as_its_kind() {
    let exclusive = || TensorMut::<u8>::zeros([3]).unwrap();
    assert!(matches!(send(&exclusive()), DynTensor::Exclusive(_)));
    assert!(matches!(send(&exclusive().freeze()), DynTensor::Frozen(_)));
    let shared: DynTensor = send(&exclusive().share());
    assert!(matches!(send(&shared), DynTensor::Shared(_)));
    assert!(matches!(send(&TensorMut::<u8>::zeros([0]).unwrap()), DynTensor::Frozen(_)));
    assert!(try_send::<_, DynTensor>(&7).is_err());
}

#[test]
fn bytes_that_describe_a_tensor_are_told() {
    assert!(is_description(&[0xff, 0, 1, 1, 0, 0, 0]));
    for bytes in
        [&b""[..], b"text", &[0xff], &[0xff, 0, 1, 1, 0, 0], &[0xfe, 0, 0, 0, 0], &[0xff, 0, 99, 1, 0, 0, 0]]
    {
        assert!(!is_description(bytes), "{bytes:?}");
    }
}
