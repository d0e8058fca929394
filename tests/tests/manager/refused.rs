//! An object whose process is not allowed to map what a request names.

use tensorferry::manager::CallErrorKind;
use tensorferry::tensor::{Tensor, TensorMut};
use tensorferry_kit::tasks::manager::{Number, Request};
use tensorferry_kit::{Child, Family, where_possible, with_family};

use crate::{asker, keeper};

/// Has the kernel refuse memory to the number's thread, and sends it a tensor of 1,000,000 ones, for which it
/// needs some. Returns once the thread has tried to read the request.
#[track_caller]
fn refused(family: &Family, keeper: &Child, number: &Number) -> Tensor<u64> {
    if number.call(Request::Refuse).unwrap() == 0 {
        tensorferry_kit::not_here("filters of system calls");
    }
    let tensor = TensorMut::ones_in(family.heap(), [1_000_000]).unwrap().freeze();
    number.tell(Request::AddAll(tensor.clone())).unwrap();
    keeper.wait_until_thread_sleeps("refused");
    tensor
}

#[test]
fn a_request_that_cannot_be_mapped_waits_until_it_can() {
    where_possible(|| {
        with_family(|family| {
            let (keeper, number, tensors) = keeper(family);
            let tensor = refused(family, &keeper, &number);
            // The thread of the dictionary maps it for the whole process.
            tensors.insert("ones".to_owned(), tensor).unwrap();
            assert_eq!(number.call(Request::Add(1)).unwrap(), 1_000_002);
            keeper.finish();
        });
    });
}

#[test]
fn an_object_that_is_ended_does_not_wait_for_a_request_that_cannot_be_mapped() {
    where_possible(|| {
        with_family(|family| {
            let (keeper, number, tensors) = keeper(family);
            let asker = asker(family, &number, &tensors);
            drop(refused(family, &keeper, &number));
            asker.begin("add 1");
            asker.wait_until_asleep();
            keeper.finish();
            asker.expect("Ended");
            let error = number.call(Request::Add(1)).unwrap_err();
            assert!(matches!(error.kind, CallErrorKind::Ended), "{error}");
            asker.finish();
        });
    });
}
