//! Layout operations one by one, and against a naive model that keeps a list of positions.

use proptest::prelude::*;

use super::*;

fn layout(shape: &[usize]) -> Layout {
    Layout::contiguous(shape).unwrap()
}

fn places(layout: &Layout) -> Vec<usize> {
    layout.offsets().collect()
}

#[test]
fn contiguous_layouts_count_up() {
    let layout = layout(&[2, 3]);
    assert_eq!(layout.strides(), [3, 1]);
    assert_eq!(places(&layout), [0, 1, 2, 3, 4, 5]);
    assert_eq!((layout.n_elements(), layout.end(), layout.rank()), (6, 6, 2));
    assert!(layout.is_contiguous());
}

#[test]
fn rank_zero_has_one_element() {
    let scalar = layout(&[]);
    assert_eq!(places(&scalar), [0]);
    assert_eq!((scalar.n_elements(), scalar.end()), (1, 1));
    assert_eq!(scalar.offset_of(&[]), Ok(0));
    assert_eq!(scalar.reshape([1, 1]).unwrap().shape(), &[1, 1]);
    assert_eq!(places(&scalar.expand([3]).unwrap()), [0, 0, 0]);
    assert_eq!(scalar.unsqueeze(0).unwrap().shape(), &[1]);
}

#[test]
fn zero_size_addresses_nothing() {
    let hostile = Layout::new([0, 5], &[usize::MAX, usize::MAX], usize::MAX).unwrap();
    assert_eq!((hostile.offset(), hostile.end(), hostile.strides()), (0, 0, &[5, 1][..]));
    assert!(hostile.is_contiguous());
    assert!(hostile.check_fits(0).is_ok());
    assert_eq!(places(&hostile), Vec::<usize>::new());
    assert_eq!(hostile.narrow(1, 2, 3).unwrap().shape(), &[0, 3]);
    assert_eq!(hostile.select(1, 4).unwrap().shape(), &[0]);
    assert_eq!(hostile.reshape([3, 0, 7]).unwrap().shape(), &[3, 0, 7]);
    assert_eq!(layout(&[4]).narrow(0, 4, 0).unwrap(), layout(&[0]));
    assert_eq!(layout(&[0, 1]).expand([0, 9]).unwrap().n_elements(), 0);
    assert_eq!(Layout::empty(), layout(&[0]));
}

#[test]
fn numbers_that_overflow_are_refused() {
    let big = usize::MAX;
    assert!(matches!(Layout::contiguous([big, 2]), Err(LayoutError::TooManyElements { .. })));
    assert!(matches!(Layout::contiguous([big, 0, 2]), Err(LayoutError::TooManyElements { .. })));
    assert!(matches!(Layout::contiguous([1_usize; 65]), Err(LayoutError::RankTooLarge { rank: 65 })));
    assert!(matches!(Layout::new([2], &[big], 0), Err(LayoutError::OutOfAddressRange { .. })));
    assert!(matches!(Layout::new([1], &[big], 0), Err(LayoutError::OutOfAddressRange { .. })));
    assert!(matches!(Layout::new([2], &[1], big), Err(LayoutError::OutOfAddressRange { .. })));
    assert!(matches!(
        Layout::new([2, 2], &[1], 0),
        Err(LayoutError::RanksDiffer { shape_rank: 2, strides_rank: 1 })
    ));
    assert!(matches!(layout(&[1]).expand([big]), Err(LayoutError::TooManyElements { .. })));
    assert!(matches!(layout(&[4]).narrow(0, 2, big), Err(LayoutError::RangeOutOfBounds { .. })));
    let far = Layout::new([1, 2], &[MAX_ELEMENTS, 1], 5).unwrap();
    assert_eq!(places(&far), [5, 6]);
    assert_eq!(far.flatten().unwrap().shape(), &[2]);
    assert_eq!(far.narrow(0, 1, 0).unwrap().n_elements(), 0);
    assert_eq!(
        far.check_fits(6),
        Err(LayoutError::StorageTooSmall { needed_elements: 7, storage_elements: 6 })
    );
}

#[test]
fn mistakes_name_the_numbers() {
    let layout = layout(&[2, 3]);
    let text = |result: Result<Layout, LayoutError>| result.unwrap_err().to_string();
    assert_eq!(text(layout.narrow(1, 2, 2)), "range 2..4 is outside dimension 1 of length 3");
    assert_eq!(text(layout.narrow(2, 0, 1)), "dimension 2 does not exist in rank 2");
    assert_eq!(text(layout.select(0, 2)), "index 2 is outside dimension 0 of length 2");
    assert_eq!(text(layout.permute(&[0, 0])), "[0, 0] is not a permutation of the dimensions of rank 2");
    assert_eq!(text(layout.reshape([5])), "shape [2, 3] of 6 elements cannot become [5]");
    assert_eq!(text(layout.expand([2, 4])), "shape [2, 3] cannot be expanded to [2, 4]");
    assert_eq!(text(layout.slice(&[DimSlice::from(..).step(0)])), "the slice of dimension 0 has step 0");
    assert_eq!(text(layout.slice(&[DimSlice::ALL; 3])), "3 slices were given for rank 2");
    assert_eq!(
        text(layout.transpose(0, 1).unwrap().flatten()),
        "shape [3, 2] with strides [1, 3] cannot become [6] without a copy; call contiguous() first"
    );
    assert_eq!(layout.offset_of(&[0]), Err(LayoutError::IndexRank { given: 1, rank: 2 }));
    assert_eq!(layout.offset_of(&[0, 3]), Err(LayoutError::IndexOutOfRange { dim: 1, index: 3, len: 3 }));
}

#[test]
fn views_pick_the_elements_that_their_name_says() {
    let layout = layout(&[2, 3, 4]);
    assert_eq!(places(&layout.select(0, 1).unwrap().select(0, 2).unwrap()), [20, 21, 22, 23]);
    assert_eq!(
        places(&layout.slice(&[(1..).into(), DimSlice::from(..).step(2), (1..=2).into()]).unwrap()),
        [13, 14, 21, 22]
    );
    assert_eq!(layout.permute(&[2, 0, 1]).unwrap().strides(), [1, 12, 4]);
    assert_eq!(layout.transpose(0, 2).unwrap().shape(), &[4, 3, 2]);
    assert_eq!(layout.unsqueeze(3).unwrap().shape(), &[2, 3, 4, 1]);
    assert_eq!(layout.squeeze(0).unwrap(), layout);
    assert_eq!(layout.unsqueeze(1).unwrap().squeeze(1).unwrap(), layout);
    assert_eq!(layout.slice(&[(..1).into()]).unwrap().shape(), &[1, 3, 4]);
}

#[test]
fn reshape_keeps_a_view_where_the_strides_allow_it() {
    let rows = layout(&[4, 6]).slice(&[DimSlice::from(..).step(2)]).unwrap();
    assert_eq!(rows.reshape([2, 3, 2]).unwrap().strides(), [12, 2, 1]);
    assert!(matches!(rows.flatten(), Err(LayoutError::ReshapeNeedsCopy { .. })));
    let columns = layout(&[4, 6]).narrow(1, 0, 3).unwrap();
    assert_eq!(columns.reshape([2, 2, 1, 3]).unwrap().shape(), &[2, 2, 1, 3]);
    assert!(columns.reshape([6, 2]).is_err());
    let repeated = layout(&[1]).expand([6]).unwrap();
    assert_eq!(repeated.reshape([2, 3]).unwrap().strides(), [0, 0]);
}

#[test]
fn runs_are_as_long_as_the_memory_allows() {
    let count = |layout: &Layout| (layout.runs().len(), layout.runs().run_len());
    let whole = layout(&[4, 6]);
    assert_eq!(count(&whole), (1, 24));
    assert_eq!(count(&whole.narrow(1, 1, 3).unwrap()), (4, 3));
    assert_eq!(count(&whole.transpose(0, 1).unwrap()), (24, 1));
    assert_eq!(count(&layout(&[3, 0])), (0, 1));
    assert_eq!(count(&layout(&[])), (1, 1));
}

/// One operation with raw numbers. Each is reduced into range, or both the layout and the model refuse it.
#[derive(Clone, Debug)]
enum Op {
    Narrow(usize, usize, usize),
    Step(usize, usize, usize),
    Select(usize, usize),
    Transpose(usize, usize),
    Rotate,
    Unsqueeze(usize),
    Squeeze(usize),
    Expand(usize),
    Split(usize),
    Flatten,
}

fn op() -> impl Strategy<Value = Op> {
    let small = || 0_usize..5;
    prop_oneof![
        (small(), small(), small()).prop_map(|(a, b, c)| Op::Narrow(a, b, c)),
        (small(), small(), 1_usize..4).prop_map(|(a, b, c)| Op::Step(a, b, c)),
        (small(), small()).prop_map(|(a, b)| Op::Select(a, b)),
        (small(), small()).prop_map(|(a, b)| Op::Transpose(a, b)),
        Just(Op::Rotate),
        small().prop_map(Op::Unsqueeze),
        small().prop_map(Op::Squeeze),
        small().prop_map(Op::Expand),
        small().prop_map(Op::Split),
        Just(Op::Flatten),
    ]
}

/// A tensor as a shape and the position of each element, in row-major order.
#[derive(Clone, Debug, PartialEq)]
struct Model {
    shape: Vec<usize>,
    places: Vec<usize>,
}

impl Model {
    /// The model with this shape whose element at `index` is the element of `self` at `source(index)`.
    fn gather(&self, shape: Vec<usize>, source: impl Fn(&[usize]) -> Vec<usize>) -> Self {
        let n_elements = shape.iter().product();
        let places = (0..n_elements)
            .map(|flat: usize| {
                let mut rest = flat;
                let mut index = vec![0; shape.len()];
                for (slot, len) in index.iter_mut().zip(&shape).rev() {
                    *slot = rest % len;
                    rest /= len;
                }
                let flat = source(&index).iter().zip(&self.shape).fold(0, |flat, (i, len)| flat * len + i);
                self.places[flat]
            })
            .collect();
        Self { shape, places }
    }

    fn apply(&self, op: &Op) -> Option<Self> {
        let rank = self.shape.len();
        let in_rank = |dim: &usize| *dim < rank;
        let with = |dim: usize, value: usize, index: &[usize]| {
            let mut index = index.to_vec();
            index[dim] = value;
            index
        };
        match *op {
            Op::Narrow(dim, start, len) => {
                Some(dim).filter(in_rank).filter(|dim| start + len <= self.shape[*dim])?;
                Some(self.gather(with(dim, len, &self.shape), |i| with(dim, i[dim] + start, i)))
            }
            Op::Step(dim, start, step) => {
                Some(dim).filter(in_rank).filter(|dim| start <= self.shape[*dim])?;
                let len = (start..self.shape[dim]).step_by(step).count();
                Some(self.gather(with(dim, len, &self.shape), |i| with(dim, start + i[dim] * step, i)))
            }
            Op::Select(dim, at) => {
                Some(dim).filter(in_rank).filter(|dim| at < self.shape[*dim])?;
                let mut shape = self.shape.clone();
                shape.remove(dim);
                Some(self.gather(shape, |i| [&i[..dim], &[at], &i[dim..]].concat()))
            }
            Op::Transpose(a, b) => {
                Some(a).filter(in_rank)?;
                Some(b).filter(in_rank)?;
                let swap = |values: &[usize]| {
                    let mut values = values.to_vec();
                    values.swap(a, b);
                    values
                };
                Some(self.gather(swap(&self.shape), swap))
            }
            Op::Rotate => {
                let mut shape = self.shape.clone();
                shape.rotate_left(1.min(rank));
                Some(self.gather(shape, |i| {
                    let mut index = i.to_vec();
                    index.rotate_right(1.min(rank));
                    index
                }))
            }
            Op::Unsqueeze(dim) => {
                Some(dim).filter(|dim| *dim <= rank)?;
                Some(Self { shape: [&self.shape[..dim], &[1], &self.shape[dim..]].concat(), ..self.clone() })
            }
            Op::Squeeze(dim) => {
                Some(dim).filter(in_rank)?;
                let drop = usize::from(self.shape[dim] == 1);
                Some(Self { shape: [&self.shape[..dim], &self.shape[dim + drop..]].concat(), ..self.clone() })
            }
            Op::Expand(len) => {
                let shape = [&[len][..], &self.shape].concat();
                Some(self.gather(shape, |i| i[1..].to_vec()))
            }
            Op::Split(dim) => {
                Some(dim).filter(in_rank).filter(|dim| self.shape[*dim].is_multiple_of(2))?;
                let halves = [2, self.shape[dim] / 2];
                Some(Self {
                    shape: [&self.shape[..dim], &halves, &self.shape[dim + 1..]].concat(),
                    ..self.clone()
                })
            }
            Op::Flatten => Some(Self { shape: vec![self.places.len()], places: self.places.clone() }),
        }
    }
}

fn apply(layout: &Layout, op: &Op) -> Result<Layout, LayoutError> {
    match *op {
        Op::Narrow(dim, start, len) => layout.narrow(dim, start, len),
        Op::Step(dim, start, step) => {
            layout.check_dim(dim)?;
            let mut slices = vec![DimSlice::ALL; dim];
            slices.push(DimSlice::from(start..).step(step));
            layout.slice(&slices)
        }
        Op::Select(dim, at) => layout.select(dim, at),
        Op::Transpose(a, b) => layout.transpose(a, b),
        Op::Rotate => {
            let mut dims: Vec<usize> = (0..layout.rank()).collect();
            dims.rotate_left(1.min(layout.rank()));
            layout.permute(&dims)
        }
        Op::Unsqueeze(dim) => layout.unsqueeze(dim),
        Op::Squeeze(dim) => layout.squeeze(dim),
        Op::Expand(len) => layout.expand([&[len][..], layout.shape()].concat()),
        Op::Split(dim) => {
            layout.check_dim(dim)?;
            let shape = layout.shape();
            if !shape[dim].is_multiple_of(2) {
                return Err(LayoutError::DimOutOfRange { dim, rank: layout.rank() });
            }
            layout.reshape([&shape[..dim], &[2, shape[dim] / 2], &shape[dim + 1..]].concat())
        }
        Op::Flatten => layout.flatten(),
    }
}

proptest! {
    #[test]
    fn layouts_do_what_the_model_does(
        shape in prop::collection::vec(0_usize..5, 0..4),
        ops in prop::collection::vec(op(), 0..8),
    ) {
        let mut layout = layout(&shape);
        let storage_elements = layout.n_elements();
        let mut model = Model { shape, places: (0..storage_elements).collect() };
        for op in ops {
            if model.places.len() > 4096 {
                break;
            }
            match (apply(&layout, &op), model.apply(&op)) {
                (Ok(next), Some(expected)) => {
                    prop_assert_eq!(next.shape().as_slice(), &expected.shape[..], "{:?}", op);
                    prop_assert_eq!(&places(&next), &expected.places, "{:?}", op);
                    prop_assert!(next.check_fits(storage_elements).is_ok());
                    let by_runs: Vec<usize> =
                        next.runs().flat_map(|start| start..start + next.runs().run_len()).collect();
                    prop_assert_eq!(by_runs, places(&next));
                    let in_order: Vec<usize> = (next.offset()..next.offset() + next.n_elements()).collect();
                    prop_assert_eq!(next.is_contiguous(), places(&next) == in_order);
                    let again = Layout::new(next.shape(), next.strides(), next.offset()).unwrap();
                    prop_assert_eq!(&again, &next);
                    layout = next;
                    model = expected;
                }
                (Err(_), None) => {}
                // Flattening is refused for a view that no single stride can express.
                (Err(LayoutError::ReshapeNeedsCopy { .. }), Some(expected)) => {
                    let even = expected.places.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
                    let mut steps: Vec<usize> = even.collect();
                    steps.dedup();
                    prop_assert!(!matches!(op, Op::Flatten) || steps.len() > 1, "{:?} of {:?}", op, layout);
                    prop_assert!(!matches!(op, Op::Split(_)), "one dimension always splits");
                }
                (got, expected) => prop_assert!(false, "{:?} of {:?}: {:?}, expected {:?}", op, layout, got, expected),
            }
        }
    }

    #[test]
    fn hostile_numbers_never_panic(
        dims in prop::collection::vec((hostile(), hostile()), 0..6),
        offset in hostile(),
        storage_elements in hostile(),
        op in op(),
    ) {
        let (shape, strides): (Vec<usize>, Vec<usize>) = dims.into_iter().unzip();
        let fits = |layout: &Layout| layout.check_fits(storage_elements).is_ok();
        if let Some(layout) = Layout::new(shape, &strides, offset).ok().filter(fits) {
            prop_assert!(layout.offsets().take(100).all(|place| place < storage_elements));
            if let Ok(view) = apply(&layout, &op) {
                prop_assert!(fits(&view));
                prop_assert!(view.offsets().take(100).all(|place| place < storage_elements));
            }
        }
    }
}

fn hostile() -> impl Strategy<Value = usize> {
    prop_oneof![
        0_usize..4,
        Just(usize::MAX),
        Just(MAX_ELEMENTS),
        Just(MAX_ELEMENTS / 2),
        Just(1 << 32),
        any::<usize>()
    ]
}
