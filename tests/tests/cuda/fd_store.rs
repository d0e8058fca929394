//! The process that keeps the descriptors of device memory, when it is stopped or has none left.

use tensorferry_cuda_ipc::CudaStrategy;
use tensorferry_kit::{Limit, Machine, alone, until, where_possible};

use super::tensors::is_run_with;
use super::{ask, told};

#[test]
fn a_stopped_fd_store_holds_up_only_who_needs_it() {
    if !is_run_with(CudaStrategy::Vmm) {
        return;
    }
    where_possible(|| {
        alone(|| {
            let machine = Machine::new("");
            let host = machine.host(&[]);
            let (a, b) = (machine.member_of(&host), machine.member_of(&host));
            told(&a, &["load 0", "make x s 10 1", "make large s 1000000 1", "put 0 x", "put 0 large"]);
            told(&b, &["load 0", "get 0 y", "get 0 large"]);
            assert_eq!(ask(&b, "read y s"), "1 10 55");
            host.stop();
            // The slab of this one was not fetched yet.
            told(&b, &["begin-reading large s"]);
            b.wait_until_thread_sleeps("reading-s");
            // Everything else goes on: tensors that are mapped, new ones, the tables, and what comes and
            // goes.
            assert_eq!(ask(&b, "read y s"), "1 10 55");
            assert!(ask(&b, "stats").contains("slabs_mapped: 1,"));
            told(&b, &["collect", "make z s 10 5", "drop z", "put 1 y"]);
            told(&a, &["get 1 z"]);
            assert_eq!(ask(&a, "read z s"), "1 10 55");
            host.go_on();
            assert!(ask(&b, "end-reading s").starts_with("1 1000000 "), "the answer came in time");
            for member in [a, b] {
                member.finish();
            }
            host.finish();
        });
    });
}

#[test]
fn a_fd_store_without_descriptors_says_so_and_may_be_asked_again() {
    if !is_run_with(CudaStrategy::Vmm) {
        return;
    }
    where_possible(|| {
        alone(|| {
            let machine = Machine::new("");
            let host = machine.host(&[(Limit::OpenFiles, 64)]);
            let (a, b) = (machine.member_of(&host), machine.member_of(&host));
            told(&a, &["load 0", "make x s 10 1", "put 0 x", "make large s 1000000 1"]);
            told(&b, &["load 0", "get 0 y"]);
            // What was stored lies in its door until its service thread takes it.
            until("the descriptor store has it", || ask(&host, "kept") == "1");
            told(&host, &["fill"]);
            // It cannot take the socket for the answer.
            let answer = ask(&b, "read y s");
            assert!(answer.contains("had no descriptor left to answer with"), "{answer}");
            // It cannot take what it is to keep.
            told(&a, &["put 0 large"]);
            told(&b, &["get 0 large"]);
            assert!(ask(&b, "read large s").contains("had no descriptor left to answer with"));
            told(&host, &["drain"]);
            assert_eq!(ask(&b, "read y s"), "1 10 55");
            let answer = ask(&b, "read large s");
            assert!(answer.contains("had no descriptor left to keep"), "{answer}");
            // Its maker needs no descriptor store.
            assert!(ask(&a, "read large s").starts_with("1 1000000 "));
            for member in [a, b] {
                member.finish();
            }
            host.finish();
        });
    });
}
