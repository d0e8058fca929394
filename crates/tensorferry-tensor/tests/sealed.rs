//! Sealed tensors as messages, of which some are forged.

use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;

use serde::{Serialize, Serializer, ser};
use tensorferry_reduce::DecodeError;
use tensorferry_storage::{Heap, SharedBlock};
use tensorferry_tensor::{DType, Element, Layout, SealedTensor, SharedTensor, Tensor, TensorMut};

use crate::{send, try_send};

/// Made in place: what is copied is counted elsewhere in this process.
fn sealed<T: Element>(elements: &[T]) -> SealedTensor<T> {
    SealedTensor::build([elements.len()], |to| to.copy_from_slice(elements)).unwrap()
}

#[test]
fn the_same_memory_arrives() {
    let sealed = sealed(&[1_u16, 2, 3, 4]);
    let [first, second]: [SealedTensor<u16>; 2] = send(&[&sealed, &sealed]);
    assert_eq!((first.as_slice(), second.shape().to_vec()), (&[1, 2, 3, 4][..], vec![4]));
    assert!(first.as_tensor().shares_storage_with(sealed.as_tensor()), "it is mapped once");
    drop((sealed, second));
    let again: SealedTensor<u16> = send(&first);
    assert!(again.as_tensor().shares_storage_with(first.as_tensor()));
}

#[test]
fn a_tensor_without_elements_arrives() {
    let none = SealedTensor::<f64>::build([3, 0], |_| {}).unwrap();
    assert_eq!((none.rank(), none.dtype()), (2, DType::F64));
    assert_eq!(send::<_, SealedTensor<f64>>(&none).shape().to_vec(), [3, 0]);
}

#[test]
fn it_arrives_as_nothing_else() {
    let sealed = sealed(&[1_f32]);
    assert!(try_send::<_, Tensor<f32>>(&sealed).is_err());
    assert!(try_send::<_, SharedTensor<f32>>(&sealed).is_err());
    let error = refusal(try_send::<_, SealedTensor<i32>>(&sealed));
    assert!(error.contains("float32"), "{error}");
    assert!(try_send::<_, SealedTensor<f32>>(&TensorMut::<f32>::zeros([1]).unwrap().freeze()).is_err());
}

#[test]
fn another_format_is_refused() {
    let sealed = sealed(&[1_u8]);
    assert!(serde_json::to_string(&sealed).is_err());
}

#[track_caller]
fn refusal(received: Result<SealedTensor<impl Element>, DecodeError>) -> String {
    received.unwrap_err().to_string()
}

/// What a sender writes that does not follow the protocol.
struct Forged {
    ticket: SharedBlock,
    layout: Layout,
}

impl Serialize for Forged {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let index = tensorferry_reduce::give_shared(&self.ticket).map_err(ser::Error::custom)?;
        (Some(index), DType::U8.code(), &self.layout).serialize(serializer)
    }
}

const MAGIC: u64 = u64::from_le_bytes(*b"SEAL\x01\0\0\0");

/// A ticket with these words, for 10 elements.
fn forged(words: &[u64]) -> Forged {
    let ticket = Heap::current().unwrap().allocate(words.len() * 8).unwrap().share();
    for (place, word) in ticket.words().iter().zip(words) {
        place.store(*word, Ordering::Relaxed);
    }
    Forged { ticket, layout: Layout::contiguous([10]).unwrap() }
}

#[test]
fn a_file_that_others_could_write_is_refused() {
    let heap = Heap::current().unwrap();
    let forged = forged(&[MAGIC, 10]);
    // Sealed against resizing alone.
    let writable = heap.domain().as_fd().try_clone_to_owned().unwrap();
    heap.domain().store_fd(forged.ticket.name(), writable).unwrap();
    let error = refusal(try_send::<_, SealedTensor<u8>>(&forged));
    assert!(error.contains("not sealed against writing"), "{error}");
}

#[test]
fn tickets_that_stand_for_nothing_are_refused() {
    assert!(refusal(try_send::<_, SealedTensor<u8>>(&forged(&[7, 10]))).contains("is none"));
    assert!(refusal(try_send::<_, SealedTensor<u8>>(&forged(&[MAGIC]))).contains("no descriptor"));
    let error = refusal(try_send::<_, SealedTensor<u8>>(&forged(&[MAGIC, 10])));
    assert!(error.contains("no descriptor"), "{error}");
}

#[test]
fn a_file_of_another_length_is_refused() {
    let sealed = sealed(&[0_u8; 9]);
    for (told, of) in [(10, "that was sent has 10 bytes"), (9, "has 9 bytes, and the tensor needs 10")] {
        let forged = forged(&[MAGIC, told]);
        let domain = Heap::current().unwrap().domain();
        domain.store_fd(forged.ticket.name(), sealed.to_fd().unwrap()).unwrap();
        let error = refusal(try_send::<_, SealedTensor<u8>>(&forged));
        assert!(error.contains(of), "{error}");
    }
}

#[test]
fn layouts_that_are_not_whole_are_refused() {
    let sealed = sealed(&[0_u8; 10]);
    for layout in [Layout::new([4], &[2], 0), Layout::new([4], &[1], 1), Layout::contiguous([0])] {
        let forged = Forged { layout: layout.unwrap(), ..forged(&[MAGIC, 10]) };
        let domain = Heap::current().unwrap().domain();
        domain.store_fd(forged.ticket.name(), sealed.to_fd().unwrap()).unwrap();
        assert!(try_send::<_, SealedTensor<u8>>(&forged).is_err(), "{:?}", forged.layout);
    }
}
