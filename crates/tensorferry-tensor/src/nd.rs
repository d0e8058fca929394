//! Tensors as ndarray views, and arrays as tensors.

use ndarray::{ArrayD, ArrayView, ArrayViewD, ArrayViewMutD, Dimension, IxDyn, ShapeBuilder};

use tensorferry_storage::Heap;

use crate::element::Element;
use crate::error::TensorError;
use crate::exclusive::TensorMut;
use crate::frozen::Tensor;
use crate::layout::{Layout, LayoutError};
use crate::storage::FrozenStorage;

/// The error for a layout that ndarray refuses. ndarray counts in `isize`, and every layout fits that
/// already.
fn refused(layout: &Layout) -> LayoutError {
    LayoutError::OutOfAddressRange {
        shape: Box::new(layout.shape().clone()),
        strides: Box::from(layout.strides()),
        offset: layout.offset(),
    }
}

impl<T: Element> Tensor<T> {
    /// The tensor as an array over the same memory, with the same shape and strides.
    ///
    /// # Errors
    /// [`LayoutError::OutOfAddressRange`] for a shape that ndarray cannot express.
    pub fn as_array(&self) -> Result<ArrayViewD<'_, T>, LayoutError> {
        let layout = self.layout();
        if layout.n_elements() == 0 {
            // ndarray has rules of its own for the strides of an empty array.
            return ArrayViewD::from_shape(IxDyn(layout.shape()), &[]).map_err(|_| refused(layout));
        }
        let elements = self.whole().get(layout.offset()..).unwrap_or_default();
        let shape = IxDyn(layout.shape()).strides(IxDyn(layout.strides()));
        ArrayViewD::from_shape(shape, elements).map_err(|_| refused(layout))
    }
}

impl<T: Element> TensorMut<T> {
    /// The tensor as a writable array over the same memory.
    ///
    /// # Errors
    /// [`LayoutError::OutOfAddressRange`] for a shape that ndarray cannot express.
    pub fn as_array_mut(&mut self) -> Result<ArrayViewMutD<'_, T>, LayoutError> {
        let layout = Layout::contiguous(self.shape())?;
        ArrayViewMutD::from_shape(IxDyn(layout.shape()), self.as_mut_slice()).map_err(|_| refused(&layout))
    }

    /// Copies an array into a tensor in shared memory, in row-major order: `from_array(array.view())`.
    ///
    /// # Errors
    /// As [`TensorMut::zeros`].
    pub fn from_array<D: Dimension>(array: ArrayView<'_, T, D>) -> Result<Self, TensorError> {
        Self::from_array_in(Heap::current()?, array)
    }

    /// As [`TensorMut::from_array`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`TensorMut::zeros`].
    pub fn from_array_in<D: Dimension>(heap: &Heap, array: ArrayView<'_, T, D>) -> Result<Self, TensorError> {
        let mut tensor = Self::empty_in(heap, array.shape())?;
        tensor.as_array_mut()?.assign(&array);
        Ok(tensor)
    }
}

/// Makes a private tensor. An array in row-major order is not copied; an array in another order is copied
/// once.
impl<T: Element, D: Dimension> From<ndarray::Array<T, D>> for Tensor<T> {
    fn from(array: ndarray::Array<T, D>) -> Self {
        // The shape of an array is always a valid layout, so the fallback is never used.
        let layout = Layout::contiguous(array.shape()).unwrap_or_else(|_| Layout::empty());
        let standard =
            if array.is_standard_layout() { array } else { array.as_standard_layout().into_owned() };
        match standard.into_raw_vec_and_offset() {
            (data, None | Some(0)) => Self::from_checked(FrozenStorage::private(data), layout),
            (data, Some(start)) => {
                let end = (start + layout.n_elements()).min(data.len());
                Self::from_checked(FrozenStorage::private(data[start..end].to_vec()), layout)
            }
        }
    }
}

impl<T: Element> From<&Tensor<T>> for ArrayD<T> {
    /// A copy of the elements as an array that owns them. As [`Tensor::to_vec`] it is empty in a process that
    /// was forked by something other than this library, where [`Tensor::as_array`] is an error.
    fn from(tensor: &Tensor<T>) -> Self {
        match tensor.as_array() {
            Ok(view) => view.to_owned(),
            Err(_) => Self::from_elem(IxDyn(&[0]), T::zeroed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, arr0, array};

    use super::*;
    use crate::DimSlice;

    #[test]
    fn an_array_becomes_a_tensor_without_a_copy_and_back() {
        let array = array![[1.0_f32, 2.0, 3.0], [4.0, 5.0, 6.0]];
        let address = array.as_ptr();
        let tensor = Tensor::from(array.clone());
        assert_eq!(tensor.to_vec(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(ArrayD::from(&tensor), array.clone().into_dyn());
        let tensor = Tensor::from(array);
        assert_eq!(tensor.as_slice().unwrap().as_ptr(), address);
    }

    #[test]
    fn arrays_in_another_order_or_with_an_offset_keep_their_elements() {
        let columns = array![[1, 2, 3], [4, 5, 6]].reversed_axes();
        assert_eq!(Tensor::from(columns.clone()).to_vec(), [1, 4, 2, 5, 3, 6]);
        let mut backwards = array![1, 2, 3];
        backwards.invert_axis(ndarray::Axis(0));
        assert_eq!(Tensor::from(backwards).to_vec(), [3, 2, 1]);
        let mut later = array![[1, 2], [3, 4], [5, 6]];
        later.slice_axis_inplace(ndarray::Axis(0), ndarray::Slice::from(1..));
        let tensor = Tensor::from(later);
        assert_eq!((tensor.to_vec(), tensor.shape().to_vec()), (vec![3, 4, 5, 6], vec![2, 2]));
        assert_eq!(Tensor::from(arr0(7_u8)).item(), Ok(7));
        let none = Tensor::from(Array2::<u8>::zeros((3, 0)));
        assert_eq!((none.shape().to_vec(), none.n_elements()), (vec![3, 0], 0));
    }

    #[test]
    fn a_tensor_without_elements_is_an_array_of_its_shape() {
        for shape in [&[0, 3][..], &[3, 0], &[2, 0, 3], &[0]] {
            let tensor = Tensor::<f32>::from_vec(Vec::new(), shape).unwrap();
            assert_eq!(tensor.as_array().unwrap().shape(), shape);
            let mut tensor = TensorMut::<f32>::zeros(shape).unwrap();
            assert_eq!(tensor.as_array_mut().unwrap().shape(), shape);
        }
    }

    #[test]
    fn every_view_is_an_array_view() {
        let tensor = Tensor::from_vec((0..24).collect::<Vec<i32>>(), [2, 3, 4]).unwrap();
        let views = [
            tensor.clone(),
            tensor.permute(&[2, 0, 1]).unwrap(),
            tensor.slice(&[(1..).into(), DimSlice::from(..).step(2), (1..3).into()]).unwrap(),
            tensor.select(0, 1).unwrap().unsqueeze(1).unwrap().expand([3, 5, 4]).unwrap(),
            tensor.narrow(2, 4, 0).unwrap(),
            tensor.select(0, 1).unwrap().select(0, 2).unwrap().select(0, 3).unwrap(),
        ];
        for tensor in views {
            let view = tensor.as_array().unwrap();
            assert_eq!(view.shape(), tensor.shape().as_slice());
            assert_eq!(view.iter().copied().collect::<Vec<_>>(), tensor.to_vec());
        }
    }

    #[test]
    fn an_exclusive_tensor_is_written_through_an_array() {
        let array = array![[1.0, 2.0], [3.0, 4.0]];
        assert!(TensorMut::from_array_in(Heap::current().unwrap(), array.view()).unwrap().is_accessible());
        let mut tensor = TensorMut::from_array(array.t()).unwrap();
        assert_eq!(tensor.as_slice(), [1.0, 3.0, 2.0, 4.0]);
        tensor.as_array_mut().unwrap()[[0, 1]] = 9.0;
        assert_eq!(tensor.as_array_mut().unwrap()[[0, 1]], 9.0);
        assert_eq!(tensor.as_slice(), [1.0, 9.0, 2.0, 4.0]);
    }
}
