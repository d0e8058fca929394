//! Private tensors: no copy until one is needed, then exactly one, which is counted. These are the only tests
//! of this binary that copy private memory. They take turns, because the counter is global to the process.

use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};

use tensorferry_reduce::bytes_copied;
use tensorferry_storage::Heap;
use tensorferry_tensor::{AnyTensor, Bool, SealedTensor, Tensor};

use crate::send;

fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_vector_becomes_a_tensor_and_a_vector_again_without_a_copy() {
    let data = vec![1.5_f32, 2.5];
    let address = data.as_ptr();
    let tensor = Tensor::from_vec(data, [2, 1]).unwrap();
    assert!(!tensor.is_shared() && tensor.storage_id().is_none());
    assert_eq!(tensor.as_slice().unwrap().as_ptr(), address);
    let view = tensor.flatten().unwrap();
    assert!(view.shares_storage_with(&tensor));
    drop(view);
    let data = tensor.into_vec();
    assert_eq!(data.as_ptr(), address);

    let tensor = Tensor::from(vec![1, 2, 3]);
    let view = tensor.narrow(0, 1, 2).unwrap();
    assert_eq!((view.into_vec(), tensor.clone().into_vec()), (vec![2, 3], vec![1, 2, 3]));
    assert_eq!(Tensor::scalar(3_u8).item(), Ok(3));
}

#[test]
fn a_wrong_length_gives_the_vector_back() {
    let error = Tensor::from_vec(vec![1, 2, 3], [2, 2]).unwrap_err();
    assert_eq!(error.to_string(), "shape [2, 2] has 4 elements, but 3 were given");
    assert_eq!(error.into_data(), [1, 2, 3]);
}

#[test]
fn copies_of_private_tensors_are_private() {
    let tensor = Tensor::from_vec((0..6).collect::<Vec<i16>>(), [2, 3]).unwrap();
    let columns = tensor.transpose(0, 1).unwrap().contiguous().unwrap();
    assert!(!columns.is_shared());
    assert_eq!(columns.as_slice().unwrap(), [0, 3, 1, 4, 2, 5]);
    assert_eq!(columns.into_vec(), [0, 3, 1, 4, 2, 5]);
    let row = tensor.select(0, 1).unwrap().compact().unwrap();
    assert_eq!((row.offset(), row.as_slice().unwrap()), (0, &[3, 4, 5][..]));
    assert!(row.compact().unwrap().shares_storage_with(&row));
    let any = AnyTensor::from(tensor).transpose(0, 1).unwrap().contiguous().unwrap();
    assert_eq!(any.downcast::<i16>().unwrap().to_vec(), [0, 3, 1, 4, 2, 5]);
}

#[test]
fn private_memory_is_not_writable_but_can_be_copied() {
    let tensor = Tensor::from(vec![1, 2]);
    let refused = tensor.try_into_mut().unwrap_err();
    assert!(refused.to_string().contains("private"), "{refused}");
    let mut copy = refused.into_tensor().into_mut().unwrap();
    copy.as_mut_slice()[0] = 5;
    assert_eq!(copy.as_slice(), [5, 2]);
}

#[test]
fn sharing_copies_once_for_all_views() {
    let _turn = turn();
    let tensor = Tensor::from_vec(vec![1_u32, 2, 3, 4], [2, 2]).unwrap();
    let row = tensor.select(0, 1).unwrap();
    let before = bytes_copied();
    let shared = tensor.share_memory().unwrap();
    assert_eq!(bytes_copied() - before, 16);
    assert!(shared.is_shared() && tensor.is_shared() && row.is_shared());
    let shared_row = row.share_memory_in(Heap::current().unwrap()).unwrap();
    assert!(shared_row.shares_storage_with(&shared) && shared.shares_storage_with(&tensor));
    assert_eq!(shared.share_memory().unwrap().storage_id(), shared.storage_id());
    assert_eq!(bytes_copied() - before, 16);
    assert_eq!((shared.to_vec(), shared_row.to_vec()), (vec![1, 2, 3, 4], vec![3, 4]));

    // The vector, which held the copy too, is gone. The tensor is the only holder of the copy.
    drop((tensor, row, shared_row));
    assert!(shared.try_into_mut().is_ok());
}

#[test]
fn threads_that_share_one_tensor_at_the_same_time_make_one_copy() {
    const N_THREADS: usize = 4;
    const LEN: usize = 1 << 18;
    let _turn = turn();
    let before = bytes_copied();
    for _ in 0..20 {
        let tensor = Tensor::from(vec![1_u32; LEN]);
        let start = Barrier::new(N_THREADS);
        let ids = std::thread::scope(|s| {
            let share = || {
                start.wait();
                tensor.share_memory().unwrap().storage_id()
            };
            let threads: Vec<_> = (0..N_THREADS).map(|_| s.spawn(share)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(ids.iter().all(|id| *id == ids[0] && id.is_some()));
    }
    assert_eq!(bytes_copied() - before, 20 * 4 * LEN as u64);
}

#[test]
fn sending_copies_once_and_views_arrive_as_views_of_one_storage() {
    let _turn = turn();
    let tensor = Tensor::from_vec(vec![1_u32, 2, 3, 4], [2, 2]).unwrap();
    let before = bytes_copied();
    let (whole, row): (Tensor<u32>, Tensor<u32>) = send(&(&tensor, tensor.select(0, 1).unwrap()));
    assert_eq!(bytes_copied() - before, 16);
    assert!(whole.shares_storage_with(&row));
    assert_eq!((whole.to_vec(), row.to_vec()), (vec![1, 2, 3, 4], vec![3, 4]));
    let again: Tensor<u32> = send(&tensor);
    assert!(again.shares_storage_with(&whole));
    let forwarded: AnyTensor = send(&row);
    assert_eq!(forwarded.storage_id(), whole.storage_id());
    assert_eq!(bytes_copied() - before, 16, "sending again and forwarding copy nothing");
}

#[test]
fn sending_nothing_copies_nothing() {
    let _turn = turn();
    let before = bytes_copied();
    let received: Tensor<Bool> = send(&Tensor::from_vec(Vec::<Bool>::new(), [0, 4]).unwrap());
    assert_eq!(received.shape(), &[0, 4]);
    let view = Tensor::from(vec![1_u8; 100]).narrow(0, 5, 0).unwrap();
    assert_eq!(send::<_, Tensor<u8>>(&view).n_elements(), 0);
    assert_eq!(bytes_copied(), before);
}

#[test]
fn sealing_copies_once_and_sending_what_is_sealed_copies_nothing() {
    let _turn = turn();
    let before = bytes_copied();
    let built = SealedTensor::<u32>::build([4], |elements| elements.fill(7)).unwrap();
    assert_eq!(send::<_, SealedTensor<u32>>(&built).as_slice(), [7; 4]);
    assert_eq!(bytes_copied(), before);
    let of_slice = SealedTensor::from_slice(&[7_u32; 4], [4]).unwrap();
    let of_tensor = SealedTensor::from_tensor(&Tensor::from(vec![7_u32; 4])).unwrap();
    assert_eq!((&of_slice, bytes_copied() - before), (&of_tensor, 32));
    // As an ordinary tensor it is private.
    assert_eq!(send::<_, Tensor<u32>>(built.as_tensor()).to_vec(), [7; 4]);
    assert_eq!(bytes_copied() - before, 48);
}
