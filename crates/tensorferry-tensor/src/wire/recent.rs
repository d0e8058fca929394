//! The layouts that a thread has read last.
//!
//! Most streams have tensors of one shape, or of few. That the bytes are those of a layout that was checked before is
//! found out in less time than they are read and checked again.

use std::cell::RefCell;

use crate::layout::{Layout, LayoutRef};
use crate::recent::Recent;

/// How many a thread remembers: a message of a batch and its labels has two.
const MAX_LAYOUTS: usize = 4;
/// Longer descriptions are read every time.
const MAX_BYTES: usize = 24;

#[derive(Debug)]
struct Read {
    bytes: [u8; MAX_BYTES],
    len_bytes: usize,
    layout: LayoutRef,
}

thread_local! {
    static RECENT: RefCell<Recent<Read, MAX_LAYOUTS>> = const { RefCell::new(Recent::new()) };
}

/// The layout that `read` makes of the bytes that it takes off the front of `rest`. `read` depends on nothing but those.
#[inline]
pub(super) fn layout<E>(
    rest: &mut &[u8],
    read: impl FnOnce(&mut &[u8]) -> Result<Layout, E>,
) -> Result<LayoutRef, E> {
    // A thread that is about to end remembers nothing.
    let known = RECENT.try_with(|recent| find(&*recent.try_borrow().ok()?, rest));
    if let Ok(Some(layout)) = known {
        return Ok(layout);
    }
    let bytes = *rest;
    let layout = LayoutRef::from(read(rest)?);
    let (taken, _) = bytes.split_at(bytes.len() - rest.len());
    let mut kept = [0; MAX_BYTES];
    if let Some(bytes) = kept.get_mut(..taken.len()) {
        bytes.copy_from_slice(taken);
        let read = Read { bytes: kept, len_bytes: taken.len(), layout: layout.clone() };
        let _ = RECENT.try_with(|recent| recent.try_borrow_mut().map(|mut recent| recent.keep(read)));
    }
    Ok(layout)
}

#[inline]
fn find(recent: &Recent<Read, MAX_LAYOUTS>, rest: &mut &[u8]) -> Option<LayoutRef> {
    for read in recent.iter() {
        let (bytes, _) = read.bytes.split_at(read.len_bytes);
        if let Some(after) = rest.strip_prefix(bytes) {
            *rest = after;
            return Some(read.layout.clone());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Reads one number as the length of a vector.
    fn read(rest: &mut &[u8], n_reads: &Cell<u32>) -> Result<LayoutRef, ()> {
        layout(rest, |rest| {
            n_reads.set(n_reads.get() + 1);
            let len = crate::wire::numbers::take(rest).ok_or(())?;
            Layout::contiguous([usize::try_from(len).unwrap()]).map_err(drop)
        })
    }

    #[test]
    fn what_was_read_before_is_not_read_again_and_the_oldest_is_forgotten() {
        let n_reads = Cell::new(0);
        for round in 0..3 {
            for len in 1..=4_u8 {
                let mut rest = &[len, 77][..];
                assert_eq!(read(&mut rest, &n_reads).unwrap().shape(), &[usize::from(len)]);
                assert_eq!(rest, [77], "round {round}");
            }
        }
        assert_eq!(n_reads.get(), 4);
        read(&mut &[5][..], &n_reads).unwrap();
        read(&mut &[4][..], &n_reads).unwrap();
        assert_eq!(n_reads.get(), 5);
        read(&mut &[1][..], &n_reads).unwrap();
        assert_eq!(n_reads.get(), 6);
    }

    #[test]
    fn what_is_refused_or_long_is_not_remembered() {
        let n_reads = Cell::new(0);
        for _ in 0..2 {
            assert!(read(&mut &[0x80][..], &n_reads).is_err());
        }
        let long = [1; MAX_BYTES + 1];
        for _ in 0..2 {
            let all = layout(&mut &long[..], |rest| {
                *rest = &[];
                n_reads.set(n_reads.get() + 1);
                Layout::contiguous([3])
            });
            assert_eq!(all.unwrap().shape(), &[3]);
        }
        assert_eq!(n_reads.get(), 4);
    }
}
