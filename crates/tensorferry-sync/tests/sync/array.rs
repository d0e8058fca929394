//! Arrays.

use tensorferry_sync::{OutOfRangeError, RawArray, StorageError};

use crate::{heap, sent};

#[test]
fn elements_are_read_and_replaced_one_by_one_and_together() {
    let heap = heap();
    let array = RawArray::new_in(&heap, &[1_i8, 2, 3]).unwrap();
    assert_eq!((array.len(), array.is_empty()), (3, false));
    assert_eq!((array.get(2), array.get(3)), (Some(3), None));
    array.set(0, -1).unwrap();
    assert_eq!(array.at(1).unwrap().swap(20), 2);
    assert_eq!(array.at(2).unwrap().fetch_add(125), 3);
    assert_eq!(array.to_vec(), [-1, 20, -128]);
    assert_eq!(array.at(1).unwrap().compare_exchange(20, 21), Ok(20));
    assert_eq!(array.at(1).unwrap().compare_exchange(20, 22), Err(21));
    assert_eq!(format!("{array:?}"), "RawArray[-1, 21, -128]");
    array.fill(4);
    assert_eq!(array.to_vec(), [4, 4, 4]);
    assert_eq!(RawArray::full_in(&heap, 2, true).unwrap().to_vec(), [true, true]);
}

#[test]
fn an_iterator_loads_each_element_when_it_comes_to_it() {
    let array = RawArray::new_in(&heap(), &[1_i8, -2, 3]).unwrap();
    let mut values = array.iter();
    assert_eq!((values.len(), values.next()), (3, Some(1)));
    array.fill(7);
    assert_eq!((values.len(), values.next(), values.next()), (2, Some(7), Some(7)));
    assert_eq!((values.len(), values.next(), values.next()), (0, None, None));
    assert_eq!((&array).into_iter().map(i32::from).sum::<i32>(), 21);
}

#[test]
fn outside_is_an_error_with_the_numbers() {
    let array = RawArray::new_in(&heap(), &[1_u64, 2]).unwrap();
    let outside = OutOfRangeError { index: 2, len: 2 };
    assert_eq!(array.set(2, 0), Err(outside));
    assert!(array.at(2).is_none());
    assert_eq!(array.get(usize::MAX), None);
    assert_eq!(outside.to_string(), "index 2 is outside of a shared array of 2 elements");
    assert_eq!(array.to_vec(), [1, 2]);
}

#[test]
fn a_clone_and_what_was_sent_are_the_same_memory() {
    let heap = heap();
    let array = RawArray::new_in(&heap, &[0.0_f32; 5]).unwrap();
    // Two handles on one array in one message, and one of them inside other types.
    let (first, rest): (RawArray<f32>, Vec<Option<RawArray<f32>>>) =
        sent(&heap, &(&array, vec![Some(array.clone()), None])).unwrap();
    let second = rest[0].as_ref().unwrap();
    assert!(first.ptr_eq(&array) && second.ptr_eq(&array));
    first.set(4, 2.5).unwrap();
    assert_eq!((array.get(4), second.get(4), array.clone().get(4)), (Some(2.5), Some(2.5), Some(2.5)));
}

#[test]
fn an_empty_array_takes_no_memory_and_travels() {
    let heap = heap();
    let array = RawArray::<u16>::new_in(&heap, &[]).unwrap();
    let received: RawArray<u16> = sent(&heap, &array).unwrap();
    assert!(received.is_empty() && received.ptr_eq(&array));
    assert_eq!((received.get(0), received.to_vec()), (None, vec![]));
    received.fill(1);
    assert_eq!(heap.stats().own.live_blocks, 0);
}

#[test]
fn too_much_is_an_error_and_not_an_abort() {
    let heap = heap();
    for len in [4 << 20, usize::MAX / 8, usize::MAX] {
        let error = RawArray::full_in(&heap, len, 1_u8).unwrap_err();
        assert!(matches!(error, StorageError::TooLarge { .. } | StorageError::Domain(_)), "{len}: {error}");
    }
    assert_eq!(heap.stats().own.live_blocks, 0);
}

#[test]
fn no_addition_to_neighbours_is_lost() {
    const N: u16 = 5_000;
    let array = RawArray::full_in(&heap(), 3, 0_u16).unwrap();
    std::thread::scope(|scope| {
        for turn in 0..3 {
            let array = array.clone();
            scope.spawn(move || {
                for step in 0..usize::from(N) {
                    array.at((turn + step) % 3).unwrap().fetch_add(1);
                }
            });
        }
    });
    assert_eq!(array.to_vec().iter().map(|&n| u32::from(n)).sum::<u32>(), 3 * u32::from(N));
}
