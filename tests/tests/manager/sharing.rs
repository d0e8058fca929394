//! Several processes use the objects of one.

use tensorferry::bytes_copied;
use tensorferry::manager::{CallErrorKind, Manager};
use tensorferry_kit::tasks::manager::{Request, add};
use tensorferry_kit::with_family;

use crate::{asker, keeper};

#[test]
fn calls_of_several_processes_add_up_and_tensors_arrive_without_a_copy() {
    with_family(|family| {
        let manager = Manager::new_in(family.heap());
        let number = manager.serve(0_u64, add).unwrap();
        let tensors = manager.dict().unwrap();
        let askers = [(); 3].map(|()| asker(family, &number, &tensors));
        for round in 0..20 {
            for (index, asker) in askers.iter().enumerate() {
                assert_eq!(asker.ask("add 1"), (3 * round + index + 1).to_string());
            }
        }
        let before = bytes_copied();
        assert_eq!(askers[0].ask("insert weights 1000"), "inserted");
        assert_eq!(askers[1].ask("get weights"), "1000");
        assert_eq!(askers[2].ask("get bias"), "none");
        // It is this process that has it.
        askers.into_iter().for_each(tensorferry_kit::Child::finish);
        assert_eq!(tensors.get(&"weights".to_owned()).unwrap().unwrap().n_elements(), 1000);
        assert_eq!(number.call(Request::Add(0)).unwrap(), 60);
        assert_eq!(bytes_copied(), before);
        manager.shutdown().unwrap();
        drop((number, tensors));
    });
}

#[test]
fn an_object_that_ends_in_order_is_ended_for_all() {
    with_family(|family| {
        let (keeper, number, tensors) = keeper(family);
        let asker = asker(family, &number, &tensors);
        assert_eq!(asker.ask("add 5"), "5");
        keeper.finish();
        assert_eq!(asker.ask("add 5"), "Ended");
        assert_eq!(asker.ask("get x"), "Ended");
        let error = number.call(Request::Add(7)).unwrap_err();
        assert!(matches!(error.kind, CallErrorKind::Ended), "{error}");
        assert!(matches!(error.request, Some(Request::Add(7))));
        asker.finish();
    });
}

#[test]
fn a_panic_of_a_handler_is_told_with_its_process_and_its_place() {
    with_family(|family| {
        let (keeper, number, tensors) = keeper(family);
        let asker = asker(family, &number, &tensors);
        let error = number.call(Request::Panic).unwrap_err();
        let CallErrorKind::Panicked(panic) = &error.kind else { panic!("{error}") };
        assert_eq!((panic.pid, &*panic.message), (keeper.pid(), "told to panic"));
        let location = panic.location.as_ref().unwrap();
        assert!(location.file.ends_with("tasks/manager.rs"), "{location}");
        // All who call are told the same.
        assert_eq!(asker.ask("add 1"), error.to_string());
        assert_eq!(asker.ask("insert x 10"), "inserted");
        asker.finish();
        keeper.kill();
    });
}
