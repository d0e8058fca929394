//! Views: layouts that are made from a layout, over the same storage.

use smallvec::SmallVec;

use super::{DimSlice, Layout, LayoutError};
use crate::dims::Dims;
use crate::shape::Shape;

impl Layout {
    /// Indexes `start .. start + len` of one dimension.
    ///
    /// # Errors
    /// [`LayoutError::DimOutOfRange`], [`LayoutError::RangeOutOfBounds`].
    pub fn narrow(&self, dim: usize, start: usize, len: usize) -> Result<Self, LayoutError> {
        self.check_dim(dim)?;
        let mut slices: SmallVec<[DimSlice; 8]> = SmallVec::from_elem(DimSlice::ALL, dim);
        slices.push(DimSlice::from(start..start.saturating_add(len)));
        self.slice(&slices)
    }

    /// A range with a step in each dimension. Dimensions beyond the last slice stay whole.
    ///
    /// # Errors
    /// [`LayoutError::TooManySlices`], [`LayoutError::RangeOutOfBounds`], [`LayoutError::ZeroStep`]. Ranges
    /// are not clamped.
    pub fn slice(&self, slices: &[DimSlice]) -> Result<Self, LayoutError> {
        if slices.len() > self.rank() {
            return Err(LayoutError::TooManySlices { given: slices.len(), rank: self.rank() });
        }
        let mut shape = self.shape.clone();
        for (dim, (len, slice)) in shape.dims_mut().iter_mut().zip(slices).enumerate() {
            let end = slice.end.unwrap_or(*len);
            if slice.step == 0 {
                return Err(LayoutError::ZeroStep { dim });
            }
            if slice.start > end || end > *len {
                return Err(LayoutError::RangeOutOfBounds { dim, start: slice.start, end, len: *len });
            }
            *len = (end - slice.start).div_ceil(slice.step);
        }
        if shape.contains(&0) {
            return Self::contiguous(shape);
        }
        // The view has elements, so each `start` is an index and each step stays inside its dimension.
        let mut strides = self.strides.clone();
        let mut offset = self.offset;
        for ((stride, len), slice) in strides.iter_mut().zip(shape.iter()).zip(slices) {
            offset += slice.start * *stride;
            if *len > 1 {
                *stride *= slice.step;
            }
        }
        Self::new(shape, &strides, offset)
    }

    /// One index of a dimension, without that dimension.
    ///
    /// # Errors
    /// [`LayoutError::DimOutOfRange`], [`LayoutError::IndexOutOfRange`].
    pub fn select(&self, dim: usize, index: usize) -> Result<Self, LayoutError> {
        self.check_dim(dim)?;
        let len = self.shape[dim];
        if index >= len {
            return Err(LayoutError::IndexOutOfRange { dim, index, len });
        }
        let mut shape = self.shape.clone();
        shape.dims_mut().remove(dim);
        let mut strides = self.strides.clone();
        let stride = strides.remove(dim).unwrap_or(0);
        let offset = if self.n_elements == 0 { 0 } else { self.offset + index * stride };
        Self::new(shape, &strides, offset)
    }

    /// Swaps two dimensions.
    ///
    /// # Errors
    /// [`LayoutError::DimOutOfRange`].
    pub fn transpose(&self, dim_a: usize, dim_b: usize) -> Result<Self, LayoutError> {
        self.check_dim(dim_a)?;
        self.check_dim(dim_b)?;
        let mut shape = self.shape.clone();
        shape.dims_mut().swap(dim_a, dim_b);
        let mut strides = self.strides.clone();
        strides.swap(dim_a, dim_b);
        Self::new(shape, &strides, self.offset)
    }

    /// Dimension `dims[i]` becomes dimension `i`.
    ///
    /// # Errors
    /// [`LayoutError::NotAPermutation`].
    pub fn permute(&self, dims: &[usize]) -> Result<Self, LayoutError> {
        let each_once = (0..self.rank()).all(|dim| dims.contains(&dim));
        if dims.len() != self.rank() || !each_once {
            return Err(LayoutError::NotAPermutation { dims: Box::from(dims), rank: self.rank() });
        }
        let shape: Dims = dims.iter().map(|dim| self.shape[*dim]).collect();
        let strides: Dims = dims.iter().map(|dim| self.strides[*dim]).collect();
        Self::new(shape, &strides, self.offset)
    }

    /// Repeats dimensions of length 1, and adds dimensions in front, to get the shape `shape`. Nothing is
    /// copied: a repeated dimension has stride 0.
    ///
    /// # Errors
    /// [`LayoutError::Expand`] when the shapes do not match; [`LayoutError::TooManyElements`] and
    /// [`LayoutError::RankTooLarge`] for a shape that cannot be addressed.
    pub fn expand(&self, shape: impl Into<Shape>) -> Result<Self, LayoutError> {
        let shape = shape.into();
        let refused =
            || LayoutError::Expand { from: Box::new(self.shape.clone()), to: Box::new(shape.clone()) };
        let added = shape.rank().checked_sub(self.rank()).ok_or_else(refused)?;
        let mut strides = Dims::from_elem(0, added);
        for ((len, stride), wanted) in self.shape.iter().zip(&self.strides).zip(&shape[added..]) {
            strides.push(match len {
                _ if len == wanted => *stride,
                1 => 0,
                _ => return Err(refused()),
            });
        }
        Self::new(shape, &strides, self.offset)
    }

    /// Removes dimension `dim` if its length is 1. Changes nothing otherwise.
    ///
    /// # Errors
    /// [`LayoutError::DimOutOfRange`].
    pub fn squeeze(&self, dim: usize) -> Result<Self, LayoutError> {
        self.check_dim(dim)?;
        if self.shape[dim] == 1 { self.select(dim, 0) } else { Ok(self.clone()) }
    }

    /// Adds a dimension of length 1, which becomes dimension `dim`. `dim` may be the rank.
    ///
    /// # Errors
    /// [`LayoutError::DimOutOfRange`], [`LayoutError::RankTooLarge`].
    pub fn unsqueeze(&self, dim: usize) -> Result<Self, LayoutError> {
        if dim > self.rank() {
            return Err(LayoutError::DimOutOfRange { dim, rank: self.rank() });
        }
        let mut shape = self.shape.clone();
        shape.dims_mut().insert(dim, 1);
        let mut strides = self.strides.clone();
        strides.insert(dim, 1);
        Self::new(shape, &strides, self.offset)
    }
}
