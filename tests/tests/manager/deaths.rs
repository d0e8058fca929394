//! Callers that die, and processes that die with their objects.

use tensorferry::manager::{CallErrorKind, Manager};
use tensorferry_kit::tasks::manager::{Request, add};
use tensorferry_kit::{Child, until, with_family};

use crate::{asker, keeper};

#[test]
fn all_who_wait_are_told_when_the_process_of_an_object_is_killed() {
    with_family(|family| {
        let (keeper, number, tensors) = keeper(family);
        let keeper_pid = keeper.pid();
        let [waits, waits_too, idle] = [(); 3].map(|()| asker(family, &number, &tensors));
        assert_eq!(idle.ask("insert x 10"), "inserted");
        waits.begin("stop");
        keeper.wait_stopped();
        waits_too.begin("add 1");
        waits.wait_until_asleep();
        waits_too.wait_until_asleep();
        keeper.kill();
        waits.expect("OwnerDied");
        waits_too.expect("OwnerDied");
        assert_eq!(idle.ask("add 1"), "OwnerDied");
        let error = number.call(Request::Add(7)).unwrap_err();
        assert!(matches!(error.kind, CallErrorKind::OwnerDied { pid } if pid == keeper_pid), "{error}");
        assert!(error.to_string().contains(&format!("(pid {keeper_pid})")), "{error}");
        assert!(matches!(error.request, Some(Request::Add(7))), "it was not sent");
        [waits, waits_too, idle].into_iter().for_each(Child::finish);
    });
}

#[test]
fn a_caller_that_is_killed_costs_the_others_nothing() {
    with_family(|family| {
        let (keeper, number, tensors) = keeper(family);
        let [victim, other] = [(); 2].map(|()| asker(family, &number, &tensors));
        assert_eq!(victim.ask("add 1"), "1");
        // In the middle of a call.
        victim.begin("stop");
        keeper.wait_stopped();
        victim.wait_until_asleep();
        other.begin("add 10");
        victim.kill();
        keeper.go_on();
        other.expect("11");
        keeper.finish();
        other.finish();
    });
}

#[test]
fn callers_that_come_and_are_killed_leave_nothing_with_the_object() {
    with_family(|family| {
        let manager = Manager::new_in(family.heap());
        let number = manager.serve(0_u64, add).unwrap();
        let tensors = manager.dict().unwrap();
        for n in 1..=20_u64 {
            let caller = asker(family, &number, &tensors);
            assert_eq!(caller.ask("add 1"), n.to_string());
            assert_eq!(caller.ask("insert x 100"), "inserted");
            caller.kill();
        }
        until("the dead are swept", || family.heap().domain().members().len() == 1);
        assert_eq!(number.call(Request::Add(0)).unwrap(), 20);
        assert_eq!(tensors.len().unwrap(), 1);
        // An object looks for them now and then, as it goes on being called. Its requests are left, and the
        // link of this process.
        until("the links of the dead are forgotten", || {
            for _ in 0..100 {
                number.call(Request::Add(0)).unwrap();
                tensors.len().unwrap();
            }
            family.heap().collect();
            family.heap().snapshot().unwrap().queues.len() == 4
        });
        manager.shutdown().unwrap();
        drop((number, tensors));
    });
}

#[test]
fn what_is_taken_out_for_a_caller_that_is_dead_is_put_back() {
    with_family(|family| {
        let (keeper, number, tensors) = keeper(family);
        let [victim, other] = [(); 2].map(|()| asker(family, &number, &tensors));
        assert_eq!(victim.ask("insert x 100"), "inserted");
        // The object comes to it after the death.
        keeper.stop();
        victim.begin("remove x");
        victim.wait_until_asleep();
        victim.kill();
        until("the death is known", || family.members().len() == 3);
        keeper.go_on();
        assert_eq!(other.ask("remove x"), "100");
        assert_eq!(other.ask("remove x"), "none");
        keeper.finish();
        other.finish();
    });
}
