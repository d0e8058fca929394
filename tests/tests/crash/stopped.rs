//! A process that is stopped is not dead, and in nobody's way.

use tensorferry_kit::{Child, Item, assert_all_slots_work, with_family};

use crate::{member, queue};

#[test]
fn a_stopped_sleeper_does_not_swallow_wake_ups() {
    with_family(|family| {
        let queue = queue(family, 2);
        let [stopped, getter] = [(); 2].map(|()| member(family, &queue));
        stopped.begin("get");
        stopped.wait_until_asleep();
        stopped.stop();
        for sequence in 0..100 {
            getter.begin("get");
            getter.wait_until_asleep();
            queue.put(Item::new(family.heap(), 1, sequence, &[4])).unwrap();
            getter.expect(&format!("got 1/{sequence}"));
        }
        assert_eq!(family.members().len(), 3, "a stopped process stays a member");
        stopped.go_on();
        queue.put(Item::new(family.heap(), 1, 100, &[4])).unwrap();
        stopped.expect("got 1/100");
        [stopped, getter].into_iter().for_each(Child::finish);
        family.wait_blocks(1);
    });
}

#[test]
fn a_stopped_putter_does_not_swallow_wake_ups() {
    with_family(|family| {
        let queue = queue(family, 1);
        let [stopped, putter] = [(); 2].map(|()| member(family, &queue));
        queue.put(Item::new(family.heap(), 3, 0, &[])).unwrap();
        stopped.begin("put 1 0 4");
        stopped.wait_until_asleep();
        stopped.stop();
        for sequence in 0..100 {
            putter.begin(&format!("put 2 {sequence} 4"));
            putter.wait_until_asleep();
            let _ = queue.get().unwrap();
            putter.expect("put");
        }
        stopped.kill();
        putter.finish();
        assert_eq!(queue.get().unwrap().sequence, 99);
        family.wait_blocks(1);
        assert_all_slots_work(family, &queue);
    });
}

#[test]
fn a_stopped_sweeper_is_no_obstacle_once_it_is_dead_too() {
    with_family(|family| {
        let queue = queue(family, 8);
        let [first, second, third] = [(); 3].map(|()| member(family, &queue));
        for (sender, child) in [&first, &second, &third].into_iter().enumerate() {
            assert_eq!(child.ask(&format!("put {sender} 0 100")), "put");
        }
        second.stop();
        third.stop();
        first.kill();
        second.kill();
        third.go_on();
        assert_eq!(third.ask("get"), "got 0/0");
        third.kill();
        family.wait_alone();
        for sender in 1..3 {
            let item = queue.get().unwrap();
            item.check();
            assert_eq!(item.sender, sender);
        }
        assert_all_slots_work(family, &queue);
    });
}
