//! Elements inside 64-bit words, read and written atomically.
//!
//! Every access to shared memory is an atomic access to a whole word, so accesses of different sizes never
//! overlap. An element never crosses a word: sizes are powers of two up to 8, and storage begins at a word.
//! Positions count elements from the start of the storage. The callers have checked that they are inside.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::element::{AtomicElement, AtomicNumber};

/// The element at a position. Acquires, to pair with the release of [`update`].
pub(crate) fn load<T: AtomicElement>(words: &[AtomicU64], position: usize) -> T {
    lanes::<T>(words[position / T::N_LANES].load(Acquire)).as_ref()[position % T::N_LANES]
}

/// Replaces the element at a position and returns the old one. Acquires and releases.
pub(crate) fn update<T: AtomicElement>(words: &[AtomicU64], position: usize, change: impl Fn(T) -> T) -> T {
    let lane = position % T::N_LANES;
    let old = replace(&words[position / T::N_LANES], |mut lanes: T::Lanes| {
        let element = &mut lanes.as_mut()[lane];
        *element = change(*element);
        lanes
    });
    lanes::<T>(old).as_ref()[lane]
}

/// Copies elements from `start` on. Orders nothing.
pub(crate) fn read<T: AtomicElement>(words: &[AtomicU64], start: usize, out: &mut [T]) {
    let (head, rest) = out.split_at_mut(head_len::<T>(start, out.len()));
    if !head.is_empty() {
        read_part(&words[start / T::N_LANES], start % T::N_LANES, head);
    }
    let words = &words[(start + head.len()) / T::N_LANES..];
    let mut whole = rest.chunks_exact_mut(T::N_LANES);
    let n_whole = whole.len();
    for (word, out) in words.iter().zip(&mut whole) {
        // As bytes, so that this is one store and not one for each element.
        bytemuck::cast_slice_mut(out).copy_from_slice(&word.load(Relaxed).to_ne_bytes());
    }
    let tail = whole.into_remainder();
    if !tail.is_empty() {
        read_part(&words[n_whole], 0, tail);
    }
}

/// Stores elements from `start` on. Orders nothing.
pub(crate) fn write<T: AtomicElement>(words: &[AtomicU64], start: usize, data: &[T]) {
    each_word(
        words,
        start,
        data,
        |word, data| {
            let mut lanes = lanes::<T>(0);
            lanes.as_mut().copy_from_slice(data);
            word.store(bytemuck::must_cast(lanes), Relaxed);
        },
        |old, new| *old = new,
    );
}

/// Adds `scale(data)` to the elements from `start` on. Zeros in `data` change nothing, whatever `scale` makes
/// of them. Orders nothing.
pub(crate) fn add<T: AtomicNumber>(words: &[AtomicU64], start: usize, data: &[T], scale: impl Fn(T) -> T) {
    let changes = |value: T| value != T::zeroed();
    each_word(
        words,
        start,
        data,
        |word, data| {
            if !data.iter().any(|value| changes(*value)) {
                return;
            }
            let mut change = lanes::<T>(0);
            for (change, value) in change.as_mut().iter_mut().zip(data) {
                *change = scale(*value);
            }
            replace_relaxed(word, |mut sum: T::Lanes| {
                for ((sum, change), value) in sum.as_mut().iter_mut().zip(change.as_ref()).zip(data) {
                    *sum = if changes(*value) { sum.plus(*change) } else { *sum };
                }
                sum
            });
        },
        |old, value| *old = if changes(value) { old.plus(scale(value)) } else { *old },
    );
}

/// Walks the words that `data` covers from `start` on. Calls `whole` for a word that it covers entirely, and
/// `part` for each of its elements in a word that it covers in part.
#[inline]
fn each_word<T: AtomicElement>(
    words: &[AtomicU64],
    start: usize,
    data: &[T],
    whole: impl Fn(&AtomicU64, &[T]),
    part: impl Fn(&mut T, T),
) {
    let change_part = |word: &AtomicU64, lane: usize, data: &[T]| {
        replace_relaxed(word, |mut lanes: T::Lanes| {
            for (old, new) in lanes.as_mut()[lane..].iter_mut().zip(data) {
                part(old, *new);
            }
            lanes
        });
    };
    let (head, rest) = data.split_at(head_len::<T>(start, data.len()));
    if !head.is_empty() {
        change_part(&words[start / T::N_LANES], start % T::N_LANES, head);
    }
    let words = &words[(start + head.len()) / T::N_LANES..];
    let chunks = rest.chunks_exact(T::N_LANES);
    let (n_whole, tail) = (chunks.len(), chunks.remainder());
    for (word, data) in words.iter().zip(chunks) {
        whole(word, data);
    }
    if !tail.is_empty() {
        change_part(&words[n_whole], 0, tail);
    }
}

/// The number of elements before the first word boundary.
fn head_len<T: AtomicElement>(start: usize, len: usize) -> usize {
    match start % T::N_LANES {
        0 => 0,
        lane => len.min(T::N_LANES - lane),
    }
}

fn read_part<T: AtomicElement>(word: &AtomicU64, lane: usize, out: &mut [T]) {
    out.copy_from_slice(&lanes::<T>(word.load(Relaxed)).as_ref()[lane..lane + out.len()]);
}

fn lanes<T: AtomicElement>(word: u64) -> T::Lanes {
    bytemuck::must_cast(word)
}

/// Compare-and-swap until it succeeds; returns the old word.
fn replace<L: bytemuck::Pod>(word: &AtomicU64, change: impl Fn(L) -> L) -> u64 {
    let change = |old| bytemuck::must_cast(change(bytemuck::must_cast(old)));
    let mut old = word.load(Relaxed);
    loop {
        match word.compare_exchange_weak(old, change(old), AcqRel, Relaxed) {
            Ok(old) => return old,
            Err(now) => old = now,
        }
    }
}

/// [`replace`] that orders nothing.
#[inline]
fn replace_relaxed<L: bytemuck::Pod>(word: &AtomicU64, change: impl Fn(L) -> L) {
    let change = |old| bytemuck::must_cast(change(bytemuck::must_cast(old)));
    let mut old = word.load(Relaxed);
    while let Err(now) = word.compare_exchange_weak(old, change(old), Relaxed, Relaxed) {
        old = now;
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    fn zeros(n_words: usize) -> Vec<AtomicU64> {
        (0..n_words).map(|_| AtomicU64::new(0)).collect()
    }

    /// What the words hold, read as plain memory.
    fn plain<T: AtomicElement>(words: &[AtomicU64]) -> Vec<T> {
        let words: Vec<u64> = words.iter().map(|word| word.load(Relaxed)).collect();
        bytemuck::cast_slice(&words).to_vec()
    }

    fn bulk_matches_plain_memory<T: AtomicNumber>(start: usize, data: &[T], more: &[T]) {
        let words = zeros(8);
        let mut expected = plain::<T>(&words);
        let start = start.min(expected.len() - data.len());
        write(&words, start, data);
        expected[start..start + data.len()].copy_from_slice(data);
        assert_eq!(plain::<T>(&words), expected);
        let more = &more[..data.len().min(more.len())];
        add(&words, start, more, |value| value.plus(value));
        for (sum, value) in expected[start..].iter_mut().zip(more) {
            *sum = sum.plus(value.plus(*value));
        }
        assert_eq!(plain::<T>(&words), expected);
        let mut out = vec![T::zeroed(); data.len()];
        read(&words, start, &mut out);
        assert_eq!(out, expected[start..start + data.len()]);
        for (position, value) in expected.iter().enumerate() {
            assert_eq!(load::<T>(&words, position), *value);
        }
    }

    proptest! {
        #[test]
        fn any_run_of_any_size_touches_its_elements_only(
            start in 0_usize..64,
            data in prop::collection::vec(any::<i8>(), 0..8),
            more in prop::collection::vec(any::<i8>(), 0..8),
        ) {
            bulk_matches_plain_memory::<i8>(start, &data, &more);
            let wide = |values: &[i8]| values.iter().map(|value| i16::from(*value) * 129).collect::<Vec<_>>();
            bulk_matches_plain_memory::<i16>(start, &wide(&data), &wide(&more));
            let wide = |values: &[i8]| values.iter().map(|value| f32::from(*value)).collect::<Vec<_>>();
            bulk_matches_plain_memory::<f32>(start, &wide(&data), &wide(&more));
            let wide = |values: &[i8]| values.iter().map(|value| f64::from(*value)).collect::<Vec<_>>();
            bulk_matches_plain_memory::<f64>(start, &wide(&data), &wide(&more));
        }
    }

    #[test]
    fn neighbours_of_a_partial_word_keep_their_exact_bits() {
        // Adding 0 to the neighbour would turn -0 into +0.
        let words = zeros(1);
        write(&words, 0, &[-0.0_f32, 1.0]);
        add(&words, 1, &[2.0_f32], |value| value);
        let bits: Vec<u32> = plain::<f32>(&words).iter().map(|value| value.to_bits()).collect();
        assert_eq!(bits, [(-0.0_f32).to_bits(), 3.0_f32.to_bits()]);
    }

    #[test]
    fn update_returns_what_was_there() {
        let words = zeros(1);
        assert_eq!(update(&words, 3, |old: u16| old + 7), 0);
        assert_eq!(update(&words, 3, |old: u16| old * 2), 7);
        assert_eq!(plain::<u16>(&words), [0, 0, 0, 14]);
    }

    #[test]
    fn no_addition_is_lost_and_neighbours_do_not_disturb_each_other() {
        let words = zeros(4);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..2000).for_each(|_| add(&words, 1, &[1.0_f32; 6], |value| value)));
            }
            scope.spawn(|| (0..2000_u16).for_each(|round| write(&words, 0, &[f32::from(round)])));
            scope.spawn(|| (0..2000).for_each(|_| _ = update(&words, 7, |old: f32| old + 1.0)));
        });
        assert_eq!(plain::<f32>(&words), [1999.0, 4000.0, 4000.0, 4000.0, 4000.0, 4000.0, 4000.0, 2000.0]);
    }
}
