//! The forms that a thread has read recently.
//!
//! Most streams have tensors of one form, or of a few. Comparing the bytes with those of a form that was
//! checked before takes less time than reading and checking them again.

use std::cell::RefCell;

use super::description::Form;
use crate::recent::Recent;

/// The number of forms that a thread keeps. A message with a batch and its labels has two.
const MAX_FORMS: usize = 4;
/// The longest form that is kept. Longer ones are read every time.
const MAX_BYTES: usize = 24;

#[derive(Debug)]
struct Read {
    bytes: [u8; MAX_BYTES],
    len_bytes: usize,
    form: Form,
}

thread_local! {
    static RECENT: RefCell<Recent<Read, MAX_FORMS>> = const { RefCell::new(Recent::new()) };
}

/// The form that `read` makes from these bytes. The result of `read` must depend on them only.
#[inline]
pub(super) fn form<E>(bytes: &[u8], read: impl FnOnce(&[u8]) -> Result<Form, E>) -> Result<Form, E> {
    // A thread that is ending has no cache any more.
    let known = RECENT.try_with(|recent| find(&*recent.try_borrow().ok()?, bytes));
    if let Ok(Some(form)) = known {
        return Ok(form);
    }
    let form = read(bytes)?;
    let mut kept = [0; MAX_BYTES];
    if let Some(room) = kept.get_mut(..bytes.len()) {
        room.copy_from_slice(bytes);
        let read = Read { bytes: kept, len_bytes: bytes.len(), form: form.clone() };
        let _ = RECENT.try_with(|recent| recent.try_borrow_mut().map(|mut recent| recent.keep(read)));
    }
    Ok(form)
}

#[inline]
fn find(recent: &Recent<Read, MAX_FORMS>, bytes: &[u8]) -> Option<Form> {
    let read = recent.iter().find(|read| read.len_bytes == bytes.len() && begins_with(&read.bytes, bytes))?;
    Some(read.form.clone())
}

/// Whether `kept` begins with these bytes.
///
/// Most forms are short. Comparing a slice of a few bytes is a call; comparing its first and its last bytes
/// as arrays, which may overlap, is not.
#[inline]
fn begins_with(kept: &[u8; MAX_BYTES], bytes: &[u8]) -> bool {
    let Some(kept) = kept.get(..bytes.len()) else { return false };
    match bytes.len() {
        4..8 => have_same_ends::<4>(kept, bytes),
        8..=16 => have_same_ends::<8>(kept, bytes),
        _ => kept == bytes,
    }
}

#[inline]
fn have_same_ends<const N: usize>(one: &[u8], other: &[u8]) -> bool {
    one.first_chunk::<N>() == other.first_chunk() && one.last_chunk::<N>() == other.last_chunk()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;
    use crate::dtype::DType;
    use crate::layout::Layout;

    /// Reads the first byte as the length of a vector. It is an error if there is none.
    fn read(bytes: &[u8], n_reads: &Cell<u32>) -> Result<Form, ()> {
        form(bytes, |bytes| {
            n_reads.set(n_reads.get() + 1);
            let len = *bytes.first().ok_or(())?;
            let layout = Layout::contiguous([usize::from(len)]).map_err(drop)?;
            Ok(Form { dtype: DType::U8, layout: layout.into() })
        })
    }

    #[test]
    fn what_was_read_before_is_not_read_again_and_the_oldest_is_forgotten() {
        let n_reads = Cell::new(0);
        for _ in 0..3 {
            for len in 1..=4_u8 {
                assert_eq!(read(&[len, 77], &n_reads).unwrap().layout.shape(), &[usize::from(len)]);
            }
        }
        assert_eq!(n_reads.get(), 4);
        read(&[5, 77], &n_reads).unwrap();
        read(&[4, 77], &n_reads).unwrap();
        assert_eq!(n_reads.get(), 5);
        read(&[1, 77], &n_reads).unwrap();
        assert_eq!(n_reads.get(), 6);
    }

    #[test]
    fn what_is_refused_or_long_is_not_remembered() {
        let n_reads = Cell::new(0);
        for _ in 0..2 {
            assert!(read(&[], &n_reads).is_err());
        }
        for _ in 0..2 {
            assert_eq!(read(&[3; MAX_BYTES + 1], &n_reads).unwrap().layout.shape(), &[3]);
        }
        assert_eq!(n_reads.get(), 4);
    }

    proptest! {
        #[test]
        fn only_the_same_bytes_are_the_same_form(
            one in prop::collection::vec(0_u8..2, 0..=MAX_BYTES),
            at in any::<prop::sample::Index>(),
            len in 0..=MAX_BYTES + 1,
        ) {
            let mut kept = [0; MAX_BYTES];
            kept[..one.len()].copy_from_slice(&one);
            prop_assert!(begins_with(&kept, &one));
            let other = vec![1; len];
            prop_assert_eq!(begins_with(&kept, &other), kept.starts_with(&other));
            if !one.is_empty() {
                let mut other = one.clone();
                other[at.index(one.len())] ^= 1;
                prop_assert!(!begins_with(&kept, &other));
            }
        }
    }
}
