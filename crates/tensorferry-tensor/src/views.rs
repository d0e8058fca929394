//! The view methods that all tensors over a shared storage have in common.

/// Writes the view methods for a type that has `fn layout(&self) -> &Layout` and `fn with_layout(&self, Layout) -> Self`.
///
/// Hidden, because it is for the crates beside this one. The caller has [`Layout`](crate::Layout) in scope, for the docs.
#[doc(hidden)]
#[macro_export]
macro_rules! __view_methods {
    ($type:ident $(<$element:ident: $bound:ident>)?) => {
        impl $(<$element: $bound>)? $type $(<$element>)? {
            /// The length of each dimension.
            #[must_use]
            pub fn shape(&self) -> &$crate::Shape {
                self.layout().shape()
            }

            /// The distance between neighbours along each dimension, in elements.
            #[must_use]
            pub fn strides(&self) -> &[usize] {
                self.layout().strides()
            }

            /// Where the first element lies in the storage, in elements.
            #[must_use]
            pub fn offset(&self) -> usize {
                self.layout().offset()
            }

            /// The number of dimensions; 0 for a scalar.
            #[must_use]
            pub fn rank(&self) -> usize {
                self.layout().rank()
            }

            /// The number of elements; 1 for a scalar.
            #[must_use]
            pub fn n_elements(&self) -> usize {
                self.layout().n_elements()
            }

            /// True when the elements lie one after the other in row-major order.
            #[must_use]
            pub fn is_contiguous(&self) -> bool {
                self.layout().is_contiguous()
            }

            /// A view of the indexes `start .. start + len` of one dimension.
            ///
            /// # Errors
            /// As [`Layout::narrow`].
            pub fn narrow(&self, dim: usize, start: usize, len: usize) -> Result<Self, $crate::LayoutError> {
                Ok(self.with_layout(self.layout().narrow(dim, start, len)?))
            }

            /// A view of a range, with a step, in each dimension; the dimensions beyond the last slice stay whole.
            ///
            /// # Errors
            /// As [`Layout::slice`].
            pub fn slice(&self, slices: &[$crate::DimSlice]) -> Result<Self, $crate::LayoutError> {
                Ok(self.with_layout(self.layout().slice(slices)?))
            }

            /// A view of one index of a dimension, which disappears.
            ///
            /// # Errors
            /// As [`Layout::select`].
            pub fn select(&self, dim: usize, index: usize) -> Result<Self, $crate::LayoutError> {
                Ok(self.with_layout(self.layout().select(dim, index)?))
            }

            /// A view in which two dimensions have changed places.
            ///
            /// # Errors
            /// As [`Layout::transpose`].
            pub fn transpose(&self, dim_a: usize, dim_b: usize) -> Result<Self, $crate::LayoutError> {
                Ok(self.with_layout(self.layout().transpose(dim_a, dim_b)?))
            }

            /// A view whose dimension `i` is this tensor's dimension `dims[i]`.
            ///
            /// # Errors
            /// As [`Layout::permute`].
            pub fn permute(&self, dims: &[usize]) -> Result<Self, $crate::LayoutError> {
                Ok(self.with_layout(self.layout().permute(dims)?))
            }

            /// A view of the same elements under another shape. Never copies: when the strides do not allow it, the
            /// error says so.
            ///
            /// # Errors
            /// As [`Layout::reshape`].
            pub fn reshape(&self, shape: impl Into<$crate::Shape>) -> Result<Self, $crate::LayoutError> {
                Ok(self.with_layout(self.layout().reshape(shape)?))
            }

            /// A view of all elements in one dimension.
            ///
            /// # Errors
            /// As [`Layout::flatten`].
            pub fn flatten(&self) -> Result<Self, $crate::LayoutError> {
                Ok(self.with_layout(self.layout().flatten()?))
            }

            /// A view that repeats lengths of 1, and adds dimensions in front, up to `shape`; nothing is copied.
            ///
            /// # Errors
            /// As [`Layout::expand`].
            pub fn expand(&self, shape: impl Into<$crate::Shape>) -> Result<Self, $crate::LayoutError> {
                Ok(self.with_layout(self.layout().expand(shape)?))
            }

            /// A view without dimension `dim` if its length is 1, and of everything otherwise.
            ///
            /// # Errors
            /// As [`Layout::squeeze`].
            pub fn squeeze(&self, dim: usize) -> Result<Self, $crate::LayoutError> {
                Ok(self.with_layout(self.layout().squeeze(dim)?))
            }

            /// A view with a new dimension `dim` of length 1.
            ///
            /// # Errors
            /// As [`Layout::unsqueeze`].
            pub fn unsqueeze(&self, dim: usize) -> Result<Self, $crate::LayoutError> {
                Ok(self.with_layout(self.layout().unsqueeze(dim)?))
            }
        }
    };
}

pub(crate) use __view_methods as view_methods;
