//! Values and arrays that several processes write.

use tensorferry::spawn::{func, spawn};
use tensorferry::sync::{RawArray, RawValue};

const N_TIMES: u64 = 10_000;

/// Adds to a counter and to its own element, and marks the others' as seen.
#[func]
fn count(
    rank: usize,
    total: RawValue<u64>,
    each: RawArray<f32>,
    seen: RawArray<bool>,
) -> Result<u64, String> {
    for _ in 0..N_TIMES {
        total.fetch_add(1);
        each.at(rank).ok_or("there is one for each")?.fetch_add(0.5);
    }
    seen.set(rank, true).map_err(|e| e.to_string())?;
    Ok(total.get())
}

#[test]
fn processes_add_to_one_value_and_fill_one_array() {
    let total = RawValue::new(5_u64).unwrap();
    let each = RawArray::new(&[1.0_f32; 4]).unwrap();
    let seen = RawArray::new(&[false; 4]).unwrap();
    let totals = spawn(count, (total.clone(), each.clone(), seen.clone()), 3).unwrap();
    assert_eq!(total.get(), 5 + 3 * N_TIMES, "no addition is lost");
    assert_eq!(totals.iter().max(), Some(&total.get()), "the last one saw all of them");
    assert_eq!(each.to_vec(), [5001.0, 5001.0, 5001.0, 1.0]);
    assert_eq!(seen.to_vec(), [true, true, true, false]);
}
