//! The payload of a tensor: its bytes, round trips, and forged numbers.

use proptest::prelude::*;

use super::description::MARK;
use super::numbers::Numbers;
use super::*;
use crate::dtype::DType;
use crate::layout::LayoutRef;
use crate::shape::Shape;

/// A layout as any format may carry it, and the index of its storage.
#[derive(Debug)]
struct Carried(Layout, Option<u32>);

impl Receive for Carried {
    fn receive(received: &Received<'_>) -> Result<Self, Refusal> {
        let storage = received.storage()?;
        received.form(None).map(|form| Self(Layout::clone(&form.layout), storage.map(HandleIndex::get)))
    }
}

impl<'de> Deserialize<'de> for Carried {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        receive(deserializer)
    }
}

/// A description of these numbers, which need not be valid.
fn bytes(shape: &[usize], strides: Option<&[usize]>, offset: usize, storage: Option<u32>) -> Vec<u8> {
    let mut numbers = Numbers::<MAX_BYTES>::after(MARK);
    numbers.put(storage.is_some().into());
    storage.into_iter().for_each(|index| numbers.put(index.into()));
    numbers.put(DType::F32.code().into());
    numbers.put_list(shape);
    numbers.put(strides.is_some().into());
    strides.into_iter().for_each(|strides| numbers.put_list(strides));
    numbers.put(offset as u64);
    numbers.as_bytes().to_vec()
}

/// The result of reading this description.
fn made<R: Receive>(
    shape: &[usize],
    strides: Option<&[usize]>,
    offset: usize,
    storage: Option<u32>,
) -> Result<R, Refusal> {
    R::receive(&Received::read(&bytes(shape, strides, offset, storage))?)
}

/// The result of reading these bytes.
fn read(bytes: &[u8]) -> Result<Carried, String> {
    Received::read(bytes)
        .map_err(Refusal::from)
        .and_then(|received| Carried::receive(&received))
        .map_err(|refusal| refusal.to_string())
}

/// The bytes of a description.
fn written(layout: &LayoutRef, storage: Option<u32>) -> Vec<u8> {
    let description = Description { dtype: DType::F32, layout, storage };
    let bytes: serde_bytes::ByteBuf =
        rmp_serde::from_slice(&rmp_serde::to_vec(&description).unwrap()).unwrap();
    bytes.into_vec()
}

#[test]
fn the_bytes_are_those_of_the_table() {
    // The mark; 0, or 1 with the index; dtype code; rank and lengths; 0, or 1 with rank and strides; offset.
    let contiguous = |shape: &[usize]| LayoutRef::contiguous(shape).unwrap();
    assert_eq!(written(&contiguous(&[2, 300]), Some(5)), [255, 1, 5, 12, 2, 2, 0xac, 2, 0, 0]);
    assert_eq!(written(&contiguous(&[0]), None), [255, 0, 12, 1, 0, 0, 0]);
    let strided = Layout::new([2], &[3], 7).unwrap().into();
    assert_eq!(written(&strided, Some(0)), [255, 1, 0, 12, 1, 2, 1, 1, 3, 7]);
}

#[test]
fn what_is_kept_as_it_is_written_is_what_would_be_written() {
    let long = [1 << 40, 1, 1, 1];
    for shape in [&[][..], &[7], &[32, 3, 224, 224], &[1; 25], &[1; 26], &[1; 64], &[1 << 20; 2], &long] {
        let layout = LayoutRef::contiguous(shape).unwrap();
        let counted = LayoutRef::Counted(Layout::contiguous(shape).unwrap().into());
        for storage in [Some(0), Some(127), Some(128), Some(u32::MAX)] {
            let described = bytes(shape, None, 0, storage);
            assert_eq!(written(&layout, storage), described, "{shape:?}");
            assert_eq!(written(&counted, storage), described, "{shape:?}");
            assert_eq!(read(&described).unwrap().1, storage);
        }
    }
}

#[test]
fn the_numbers_of_a_short_layout_are_kept_with_room_for_what_stands_before_them() {
    for shape in [&[][..], &[7], &[32, 3, 224, 224], &[1; 25], &[1 << 40, 1, 1, 1]] {
        let written = Written::of(&Layout::contiguous(shape).unwrap()).unwrap();
        for index in [0, 127] {
            assert_eq!(written.bytes(index, DType::F32), bytes(shape, None, 0, Some(index.into())));
        }
    }
    assert!(Written::of(&Layout::contiguous([1; 26]).unwrap()).is_none());
}

#[test]
fn a_form_that_was_read_before_is_known_only_as_a_whole() {
    let known = [MARK, 1, 0, 12, 1, 7, 0, 0];
    for _ in 0..2 {
        assert_eq!(read(&known).unwrap().0.shape(), &[7]);
        assert!(read(&known[..7]).is_err_and(|error| error.contains("cut off")));
        assert!(read(&[&known[..], &[0]].concat()).is_err_and(|error| error.contains("1 bytes too long")));
        assert!(read(&known[..3]).is_err_and(|error| error.contains("cut off")));
    }
}

#[test]
fn a_description_that_is_long_or_went_through_another_format_arrives_too() {
    let shape = [usize::MAX; MAX_RANK];
    let bytes = bytes(&shape, Some(&shape), 1, None);
    assert!(bytes.len() > 1000 && bytes.len() < MAX_BYTES);
    // Read to the end, and refused for its numbers.
    let refused = "more elements than memory can hold";
    assert!(read(&bytes).unwrap_err().contains(refused));
    let text = serde_json::to_string(&bytes).unwrap();
    assert!(serde_json::from_str::<Carried>(&text).unwrap_err().to_string().contains(refused));
    let (shape, strides) = ([1; MAX_RANK], [300; MAX_RANK]);
    let text = serde_json::to_string(&self::bytes(&shape, Some(&strides), 1, Some(0))).unwrap();
    let Carried(layout, _) = serde_json::from_str(&text).unwrap();
    assert_eq!((&layout.shape()[..], layout.strides()), (&shape[..], &strides[..]));
    let endless = format!("[{}0]", "0,".repeat(MAX_BYTES));
    assert!(serde_json::from_str::<Carried>(&endless).is_err());
}

#[test]
fn a_layout_travels_in_any_format_and_is_checked_on_the_way_in() {
    let view = Layout::new([2, 3], &[1, 2], 5).unwrap();
    for layout in [view, Layout::contiguous([4, 0, 7]).unwrap(), Layout::contiguous(Shape::scalar()).unwrap()]
    {
        let text = serde_json::to_string(&layout).unwrap();
        assert_eq!(serde_json::from_str::<Layout>(&text).unwrap(), layout, "{text}");
    }
    assert_eq!(serde_json::to_string(&Layout::contiguous([2, 3]).unwrap()).unwrap(), "[[2,3],null,0]");
    for bad in ["[[2,3],[1],0]", "[[18446744073709551615,2],null,0]", "[[2],[1],18446744073709551615]"] {
        assert!(serde_json::from_str::<Layout>(bad).is_err(), "{bad}");
    }
}

#[test]
fn contradictions_are_errors() {
    let error = |shape: &[usize], strides, offset, storage| {
        made::<Carried>(shape, strides, offset, storage).unwrap_err().to_string()
    };
    assert_eq!(error(&[2], None, 0, None), "the message has no storage for a tensor of 2 elements");
    assert_eq!(error(&[0], None, 0, Some(1)), "the message has a storage for a tensor of 0 elements");
    assert_eq!(error(&[2], Some(&[1, 1]), 0, Some(1)), "a shape of rank 1 needs as many strides, not 2");
    assert!(error(&[usize::MAX, 2], None, 0, Some(1)).contains("more elements than memory can hold"));
    assert!(error(&[2], None, usize::MAX, Some(1)).contains("reaches beyond"));
    assert!(matches!(
        made::<Tensor<u8>>(&[2], None, 0, Some(1)),
        Err(Refusal::Refused(TensorError::DTypeMismatch { expected: DType::U8, found: DType::F32 }))
    ));
    assert!(matches!(
        made::<TensorMut<f32>>(&[2], None, 1, Some(1)),
        Err(Refusal::Unreadable(Unreadable::NotWhole(1)))
    ));
    assert!(matches!(
        made::<TensorMut<f32>>(&[2], Some(&[2]), 0, Some(1)),
        Err(Refusal::Unreadable(Unreadable::NotWhole(0)))
    ));
}

#[test]
fn a_rank_beyond_the_limit_is_refused_before_it_is_stored() {
    let with_rank = |rank: u8| {
        let mut bytes = vec![MARK, 1, 0, 12, rank];
        bytes.extend(std::iter::repeat_n(1, rank.into()));
        bytes.extend([0, 0]);
        read(&bytes)
    };
    assert!(with_rank(64).is_ok());
    assert!(with_rank(65).is_err_and(|error| error.contains("64")));
    // Four billion lengths are announced, and one follows.
    assert!(read(&[MARK, 0, 12, 0xff, 0xff, 0xff, 0xff, 0xf, 1]).is_err());
    assert!(read(b"text").is_err() && read(&[]).is_err());
    assert!(read(&[MARK]).is_err() && read(&[MARK, 1]).is_err() && read(&[MARK, 1, 0]).is_err());
    // An index that no table has, and no flag.
    assert!(
        read(&[MARK, 1, 0xff, 0xff, 0xff, 0xff, 0x1f, 12]).is_err_and(|error| error.contains("no storage"))
    );
    assert!(read(&[MARK, 2, 0, 12, 1, 1, 0, 0]).is_err_and(|error| error.contains('2')));
    // One byte too many, and an unknown dtype.
    assert!(read(&[MARK, 0, 12, 1, 0, 0, 0, 9]).is_err_and(|error| error.contains("1 bytes too long")));
    assert!(read(&[MARK, 0, 100, 1, 1, 0, 0]).is_err_and(|error| error.contains("100")));
}

#[test]
fn an_empty_tensor_needs_no_message() {
    let tensor = Tensor::from_vec(Vec::<f64>::new(), [3, 0]).unwrap();
    let bytes = rmp_serde::to_vec_named(&tensor).unwrap();
    assert_eq!(rmp_serde::from_slice::<Tensor<f64>>(&bytes).unwrap().shape(), &[3, 0]);
    let any: AnyTensor = rmp_serde::from_slice(&bytes).unwrap();
    assert_eq!((any.dtype(), any.n_elements()), (DType::F64, 0));
    assert_eq!(rmp_serde::from_slice::<SharedTensor<f64>>(&bytes).unwrap().shape(), &[3, 0]);
    let wrong = rmp_serde::from_slice::<Tensor<f32>>(&bytes);
    assert!(wrong.is_err(), "{wrong:?}");
}

proptest! {
    #[test]
    fn layouts_come_back(
        dims in prop::collection::vec((0_usize..4, 0_usize..9), 0..5),
        offset in 0_usize..9,
    ) {
        let (shape, strides): (Vec<usize>, Vec<usize>) = dims.into_iter().unzip();
        let layout = LayoutRef::from(Layout::new(shape, &strides, offset).unwrap());
        let sent = Description::of(DType::F32, &layout, || Ok(HandleIndex::new(3))).unwrap();
        let bytes = rmp_serde::to_vec_named(&sent).unwrap();
        let Carried(received, storage) = rmp_serde::from_slice(&bytes).unwrap();
        prop_assert_eq!(received.offsets().collect::<Vec<_>>(), layout.offsets().collect::<Vec<_>>());
        prop_assert_eq!(received.shape(), layout.shape());
        prop_assert_eq!(storage.is_some(), layout.n_elements() > 0);
    }

    #[test]
    fn hostile_bytes_are_an_error_or_a_layout_that_knows_its_end(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let bytes = [&[MARK], &bytes[..]].concat();
        if let Ok(Carried(layout, _)) = read(&bytes) {
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
        if let Ok(Carried(layout, _)) = made(&shape, with_strides.then_some(&strides[..]), offset, storage) {
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
