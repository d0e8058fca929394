//! One value.

use tensorferry_reduce::{EncodeError, Parcel, TransitError};
use tensorferry_sync::RawValue;

use crate::{heap, sent};

#[test]
fn a_value_is_read_and_replaced() {
    let heap = heap();
    let value = RawValue::new_in(&heap, -7_i16).unwrap();
    assert_eq!(value.get(), -7);
    value.set(9);
    assert_eq!(value.swap(10), 9);
    assert_eq!(value.fetch_add(5), 10);
    assert_eq!(value.compare_exchange(15, 16), Ok(15));
    assert_eq!(value.compare_exchange(15, 17), Err(16));
    assert_eq!(value.fetch_update(|v| v.checked_mul(2)), Ok(16));
    assert_eq!(value.fetch_update(|v| v.checked_mul(i16::MAX)), Err(32));
    assert_eq!(format!("{value:?}"), "RawValue(32)");
    let flag = RawValue::new_in(&heap, false).unwrap();
    assert!(!flag.swap(true));
    assert!(flag.get());
}

#[test]
fn a_clone_and_what_was_sent_are_the_same_memory() {
    let heap = heap();
    let value = RawValue::new_in(&heap, 1.5_f64).unwrap();
    let clone = value.clone();
    let received: RawValue<f64> = sent(&heap, &value).unwrap();
    assert!(value.ptr_eq(&clone) && value.ptr_eq(&received));
    assert!(!value.ptr_eq(&RawValue::new_in(&heap, 1.5).unwrap()));
    received.set(2.5);
    drop(received);
    assert_eq!((value.get(), clone.get()), (2.5, 2.5));
}

#[test]
fn the_memory_lives_as_long_as_a_handle_and_no_longer() {
    let heap = heap();
    let value = RawValue::new_in(&heap, 1_u8).unwrap();
    let other: RawValue<u8> = sent(&heap, &value).unwrap();
    drop(value);
    assert_eq!(other.get(), 1);
    assert_eq!(heap.stats().own.live_blocks, 1);
    drop(other);
    assert_eq!(heap.stats().own.live_blocks, 0);
}

#[test]
fn recycled_memory_shows_nothing_of_its_last_use() {
    let heap = heap();
    for round in 0..50_u64 {
        let value = RawValue::new_in(&heap, 0_u8).unwrap();
        assert_eq!(value.get(), 0, "round {round}");
        assert_eq!(value.compare_exchange(0, 255), Ok(0));
    }
}

#[test]
fn no_addition_is_lost() {
    const N: u32 = 5_000;
    let heap = heap();
    let count = RawValue::new_in(&heap, 0_u32).unwrap();
    let sum = RawValue::new_in(&heap, 0.0_f32).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let (count, sum) = (count.clone(), sum.clone());
            scope.spawn(move || {
                for _ in 0..N {
                    count.fetch_add(1);
                    sum.fetch_add(0.5);
                }
            });
        }
    });
    assert_eq!((count.get(), sum.get()), (3 * N, 7_500.0));
}

#[test]
fn outside_of_a_message_and_in_another_domain_it_is_refused() {
    let value = RawValue::new_in(&heap(), 1_u8).unwrap();
    assert!(rmp_serde::to_vec_named(&value).is_err());
    assert!(rmp_serde::from_slice::<RawValue<u8>>(&[0x93, 1, 1, 0]).is_err());
    let error = Parcel::pack(&heap(), &value).unwrap_err();
    assert!(matches!(error, EncodeError::Transit(TransitError::ForeignDomain)), "{error}");
}
