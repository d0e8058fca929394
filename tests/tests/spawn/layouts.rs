//! What a tensor is, seen from another process: its type, its shape, its strides and what it shares.

use tensorferry::storage::Heap;
use tensorferry::tensor::Layout;
use tensorferry::{AnyTensor, DType, SharedTensor, func};

use crate::support::for_every_method;

/// Type, shape, strides, bytes in row-major order.
type Seen = (String, Vec<usize>, Vec<usize>, Vec<u8>);

fn seen(tensor: &AnyTensor) -> Seen {
    let layout = tensor.layout();
    (tensor.dtype().to_string(), layout.shape().to_vec(), layout.strides().to_vec(), tensor.to_bytes())
}

/// Tensors of every type over blocks of their own: contiguous, transposed, expanded, of no dimension, of no
/// elements.
fn tensors() -> Vec<AnyTensor> {
    let heap = Heap::current().unwrap();
    let layouts = [
        Layout::new([3, 4], &[4, 1], 0),
        Layout::new([4, 3], &[1, 4], 0),
        Layout::new([5, 3], &[0, 2], 1),
        Layout::new([], &[], 11),
        Layout::new([2, 0], &[1, 1], 0),
    ];
    let layouts = layouts.map(Result::unwrap);
    let of = |dtype: DType| {
        let mut block = heap.allocate(12 * dtype.size_bytes()).unwrap();
        // Zeros and ones, so that it is a boolean too, in an order that no stride repeats.
        for (at, byte) in block.bytes_mut().iter_mut().enumerate() {
            *byte = u8::from(at.count_ones().is_multiple_of(2));
        }
        let block = block.freeze();
        layouts.clone().map(|layout| AnyTensor::from_block(dtype, block.clone(), layout).unwrap())
    };
    DType::all().flat_map(of).collect()
}

#[func]
fn look(_rank: usize, tensors: Vec<AnyTensor>) -> Result<(Vec<Seen>, Vec<AnyTensor>), String> {
    Ok((tensors.iter().map(seen).collect(), tensors))
}

/// What one of two handles on one storage shows after the other one was filled, and the storage, twice.
type Filled = (Vec<f32>, [SharedTensor<f32>; 2]);

#[func]
fn fill(_rank: usize, whole: SharedTensor<f32>, again: SharedTensor<f32>) -> Result<Filled, String> {
    whole.fill(4.0);
    Ok((again.to_vec(), [whole.clone(), whole]))
}

for_every_method! {
    fn a_tensor_of_every_type_and_layout_is_in_another_process_what_it_was(method: Context) {
        let tensors = tensors();
        assert_eq!(tensors.len(), 5 * DType::all().count());
        let (there, back) = method.spawn(look, (tensors.clone(),), 1).unwrap().remove(0);
        assert_eq!(there, tensors.iter().map(seen).collect::<Vec<_>>());
        for (sent, came) in tensors.iter().zip(&back) {
            assert_eq!(seen(came), seen(sent));
            // One without elements takes no memory along.
            let is_same = came.n_elements() == 0 || came.storage_id() == sent.storage_id();
            assert!(is_same, "{:?}", seen(came));
        }
    }

    fn what_a_process_fills_is_filled_for_all_and_what_it_returns_twice_is_one(method: Context) {
        let tensor = SharedTensor::<f32>::zeros([5, 5]).unwrap();
        let (there, [one, two]) =
            method.spawn(fill, (tensor.clone(), tensor.clone()), 1).unwrap().remove(0);
        assert_eq!((there, tensor.to_vec()), (vec![4.0; 25], vec![4.0; 25]));
        assert!(one.shares_storage_with(&two) && two.shares_storage_with(&tensor));
        one.store([4, 4], 7.0).unwrap();
        assert_eq!([two.load([4, 4]).unwrap(), tensor.load([4, 4]).unwrap()], [7.0; 2]);
    }
}
