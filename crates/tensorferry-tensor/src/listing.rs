//! What `Debug` prints of a tensor: its type, its shape, and the elements nested by dimension.

use std::fmt::{self, Debug, Formatter};

use crate::dtype::DType;
use crate::element::Element;
use crate::layout::Layout;
use crate::shape::Shape;

/// Tensors with at most this many elements are printed whole.
const WHOLE: usize = 100;
/// The items of a dimension that are printed at each of its two ends, in a larger tensor.
const EDGE: usize = 3;
/// The elements that are printed at most. Without this limit, each further dimension would print six times as
/// many.
const MOST: usize = 1000;

/// The beginning of what `Debug` prints, such as `Tensor<f32>[2, 3]`.
pub(crate) fn head(f: &mut Formatter<'_>, kind: &str, dtype: DType, shape: &Shape) -> fmt::Result {
    write!(f, "{kind}<{}>{shape}", dtype.rust_name())
}

/// A whole tensor. `read` gives the element at a position of the storage. A process that has no access to the
/// storage gives no `read`.
pub(crate) fn write<E: Debug>(
    f: &mut Formatter<'_>,
    kind: &str,
    dtype: DType,
    layout: &Layout,
    read: Option<impl Fn(usize) -> Option<E>>,
) -> fmt::Result {
    head(f, kind, dtype, layout.shape())?;
    let Some(read) = read else { return f.write_str(" (not readable in this process)") };
    f.write_str(" ")?;
    if layout.n_elements() == 0 {
        return f.write_str("[]");
    }
    let edge = if layout.n_elements() > WHOLE { EDGE } else { WHOLE };
    let mut listing = Listing { f, read, edge, remaining: MOST };
    listing.dims(layout.shape(), layout.strides(), layout.offset())
}

/// As [`write`], for a storage that is a slice of elements.
pub(crate) fn write_slice<T: Element>(
    f: &mut Formatter<'_>,
    kind: &str,
    layout: &Layout,
    storage: &[T],
) -> fmt::Result {
    let is_readable = layout.check_fits(storage.len()).is_ok();
    write(f, kind, T::DTYPE, layout, is_readable.then_some(|position| storage.get(position)))
}

struct Listing<'a, 'f, R> {
    f: &'a mut Formatter<'f>,
    read: R,
    edge: usize,
    /// The elements that may still be printed.
    remaining: usize,
}

impl<E: Debug, R: Fn(usize) -> Option<E>> Listing<'_, '_, R> {
    /// The elements of these dimensions, the first of which is at `position`.
    fn dims(&mut self, shape: &[usize], strides: &[usize], position: usize) -> fmt::Result {
        let (Some((&len, shape)), Some((stride, strides))) = (shape.split_first(), strides.split_first())
        else {
            self.remaining = self.remaining.saturating_sub(1);
            // The formatter has the caller's precision.
            return match (self.read)(position) {
                Some(element) => element.fmt(self.f),
                None => self.f.write_str("?"),
            };
        };
        self.f.write_str("[")?;
        let mut index = 0;
        while index < len {
            if index > 0 {
                self.f.write_str(", ")?;
            }
            if self.remaining == 0 {
                self.f.write_str("..")?;
                break;
            }
            if index == self.edge && len > 2 * self.edge {
                self.f.write_str(".., ")?;
                index = len - self.edge;
            }
            self.dims(shape, strides, position + index * stride)?;
            index += 1;
        }
        self.f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prints a layout over a storage whose elements are their positions.
    struct Positions(Layout);

    impl Debug for Positions {
        fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
            write(f, "Tensor", DType::U64, &self.0, Some(Some::<usize>))
        }
    }

    fn listed(shape: impl Into<Shape>) -> String {
        format!("{:?}", Positions(Layout::contiguous(shape).unwrap()))
    }

    #[test]
    fn elements_are_nested_by_dimension() {
        assert_eq!(listed([2, 3]), "Tensor<u64>[2, 3] [[0, 1, 2], [3, 4, 5]]");
        assert_eq!(listed([2, 1, 2]), "Tensor<u64>[2, 1, 2] [[[0, 1]], [[2, 3]]]");
        assert_eq!(listed(Shape::scalar()), "Tensor<u64>[] 0");
        let view = Layout::contiguous([2, 3]).unwrap().transpose(0, 1).unwrap().narrow(0, 1, 2).unwrap();
        assert_eq!(format!("{:?}", Positions(view)), "Tensor<u64>[2, 2] [[1, 4], [2, 5]]");
    }

    #[test]
    fn a_tensor_without_elements_prints_none() {
        assert_eq!(listed([0]), "Tensor<u64>[0] []");
        assert_eq!(listed([1 << 30, 0, 2]), "Tensor<u64>[1073741824, 0, 2] []");
    }

    #[test]
    fn a_large_tensor_is_cut_in_each_dimension() {
        assert!(listed([100]).contains("48, 49, 50, 51"));
        assert_eq!(listed([1 << 40]), {
            let last = (1_u64 << 40) - 1;
            format!("Tensor<u64>[{}] [0, 1, 2, .., {}, {}, {last}]", last + 1, last - 2, last - 1)
        });
        assert_eq!(
            listed([101, 2]),
            "Tensor<u64>[101, 2] [[0, 1], [2, 3], [4, 5], .., [196, 197], [198, 199], [200, 201]]"
        );
    }

    #[test]
    fn many_dimensions_print_no_more() {
        for shape in [vec![9; 12], vec![2; 40], vec![1 << 20, 1, 1 << 20]] {
            let text = listed(shape);
            assert!(text.len() < 40 * MOST, "{}", text.len());
        }
        assert!(listed([9; 12]).ends_with(", ..], ..], ..]"), "{}", listed([9; 12]));
    }

    #[test]
    fn memory_without_access_is_no_panic() {
        struct Lost;
        impl Debug for Lost {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                let layout = Layout::contiguous([2]).unwrap();
                write(f, "Tensor", DType::F32, &layout, None::<fn(usize) -> Option<f32>>)
            }
        }
        assert_eq!(format!("{Lost:?}"), "Tensor<f32>[2] (not readable in this process)");
    }
}
