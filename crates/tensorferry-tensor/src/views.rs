//! The view methods that all kinds of tensor with views have in common.

/// Implements the view methods for a type with `fn layout(&self) -> &Layout` and
/// `fn with_layout(&self, Layout) -> Self`.
///
/// The macro is hidden, because only the other crates of this workspace use it. The caller must have
/// [`Layout`](crate::Layout) in scope, for the links in the docs.
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

            /// The position of the first element in the storage, in elements.
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

            /// Whether the elements are adjacent, in row-major order.
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

            /// A view of a range, with a step, in each dimension; the dimensions beyond the last slice stay
            /// whole.
            ///
            /// # Errors
            /// As [`Layout::slice`].
            pub fn slice(&self, slices: &[$crate::DimSlice]) -> Result<Self, $crate::LayoutError> {
                Ok(self.with_layout(self.layout().slice(slices)?))
            }

            /// A view of one index of a dimension, without that dimension.
            ///
            /// # Errors
            /// As [`Layout::select`].
            pub fn select(&self, dim: usize, index: usize) -> Result<Self, $crate::LayoutError> {
                Ok(self.with_layout(self.layout().select(dim, index)?))
            }

            /// A view in which two dimensions are swapped.
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

            /// A view of the same elements under another shape. It never copies: if the strides do not allow
            /// such a view, it is an error.
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

            /// A view of shape `shape`, which repeats dimensions of length 1 and adds dimensions in front.
            /// Nothing is copied.
            ///
            /// # Errors
            /// As [`Layout::expand`].
            pub fn expand(&self, shape: impl Into<$crate::Shape>) -> Result<Self, $crate::LayoutError> {
                Ok(self.with_layout(self.layout().expand(shape)?))
            }

            /// A view without dimension `dim` if its length is 1, and the same view otherwise.
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
