//! Bytes as elements, and gathering the elements of a view.

use crate::element::Element;
use crate::error::TensorError;
use crate::layout::{Layout, LayoutError};

/// Refuses data whose length is not that of the layout.
pub(crate) fn check_len(layout: &Layout, given: usize) -> Result<(), LayoutError> {
    if layout.n_elements() == given {
        return Ok(());
    }
    let shape = Box::new(layout.shape().clone());
    Err(LayoutError::LengthMismatch { shape, n_elements: layout.n_elements(), given })
}

/// All whole elements of a storage.
///
/// Storage of this crate and of `tensorferry-storage` is always aligned. Other storage is checked here, on
/// receipt.
pub(crate) fn elements<T: Element>(bytes: &[u8]) -> Result<&[T], TensorError> {
    let whole = bytes.len() - bytes.len() % size_of::<T>();
    if whole == 0 {
        return Ok(&[]);
    }
    bytemuck::try_cast_slice(&bytes[..whole]).map_err(|_| TensorError::Misaligned { dtype: T::DTYPE })
}

/// As [`elements`], for writing.
pub(crate) fn elements_mut<T: Element>(bytes: &mut [u8]) -> Result<&mut [T], TensorError> {
    let whole = bytes.len() - bytes.len() % size_of::<T>();
    if whole == 0 {
        return Ok(&mut []);
    }
    bytemuck::try_cast_slice_mut(&mut bytes[..whole]).map_err(|_| TensorError::Misaligned { dtype: T::DTYPE })
}

/// Copies the elements of a view from `storage` to `out`, in row-major order. An element has `size` array
/// items.
///
/// Precondition: the layout fits the storage, and `out` has room for exactly its elements.
pub(crate) fn gather<U: Copy>(storage: &[U], layout: &Layout, size: usize, out: &mut [U]) {
    let runs = layout.runs();
    let run_len = runs.run_len() * size;
    for (start, out) in runs.zip(out.chunks_exact_mut(run_len)) {
        out.copy_from_slice(&storage[start * size..start * size + run_len]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn a_tail_that_is_no_whole_element_is_left_out() {
        let words = [1_u64, 2];
        let bytes: &[u8] = bytemuck::cast_slice(&words);
        assert_eq!(elements::<u64>(&bytes[..15]).unwrap(), [1]);
        assert_eq!(elements::<u64>(&[]).unwrap(), [0_u64; 0]);
    }

    #[test]
    fn an_address_that_is_not_aligned_is_an_error() {
        let words = [1_u64, 2];
        let bytes: &[u8] = bytemuck::cast_slice(&words);
        assert!(matches!(elements::<u64>(&bytes[1..9]), Err(TensorError::Misaligned { dtype: DType::U64 })));
    }

    #[test]
    fn gather_counts_in_items() {
        let layout = Layout::contiguous([2, 2]).unwrap().transpose(0, 1).unwrap();
        let mut out = [0_u8; 8];
        gather(&[1, 2, 3, 4, 5, 6, 7, 8], &layout, 2, &mut out);
        assert_eq!(out, [1, 2, 5, 6, 3, 4, 7, 8]);
    }
}
