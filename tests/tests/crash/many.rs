//! More members than anybody watches, many deaths at once, and a full process table.

use tensorferry::domain::DomainError;
use tensorferry_kit::{Child, Item, assert_all_slots_work, until, with_family};

use crate::{member, queue};

#[test]
fn many_members_die_at_once_while_others_wait() {
    with_family(|family| {
        let queue = queue(family, 40);
        let mut children: Vec<_> = (0..14).map(|_| member(family, &queue)).collect();
        for (sender, child) in children.iter().enumerate() {
            assert_eq!(child.ask(&format!("put {sender} 0 50")), "put");
        }
        for child in &children {
            assert!(child.ask("get").starts_with("got "));
        }
        for child in &children {
            child.begin("get");
            child.wait_until_asleep();
        }
        let sweeps = family.heap().domain().sweeps();
        let survivors = children.split_off(11);
        // Dead first, reaped later: nobody is helped by an empty process table entry.
        children.iter().for_each(Child::kill_unreaped);
        until("the dead are swept", || family.members().len() == 4);
        assert!(family.heap().domain().sweeps() >= sweeps + 11);
        for (sequence, survivor) in (0..).zip(&survivors) {
            queue.put(Item::new(family.heap(), 30, sequence, &[3])).unwrap();
            let _ = survivor;
        }
        let mut got: Vec<String> = survivors.iter().map(Child::hear).collect();
        got.sort();
        assert_eq!(got, ["got 30/0", "got 30/1", "got 30/2"]);
        // They hold what they got at first, and now.
        family.wait_blocks(1 + 3 + 3);
        survivors.into_iter().for_each(Child::finish);
        family.wait_blocks(1);
        assert_all_slots_work(family, &queue);
    });
}

#[test]
fn a_full_process_table_is_an_error_with_the_number_until_somebody_dies() {
    with_family(|family| {
        let queue = queue(family, 2);
        let mut children: Vec<_> = (0..62).map(|_| member(family, &queue)).collect();
        let domain = family.heap().domain();
        assert_eq!(family.members().len(), 63);
        let one_more = children.pop().unwrap();
        one_more.kill();
        until("a slot is free", || family.members().len() == 62);
        let last = member(family, &queue);
        let refused = domain.admit(last.pidfd()).unwrap_err();
        assert!(matches!(refused, DomainError::ProcessTableFull { slots: 63 }), "{refused}");
        assert!(refused.to_string().contains("63"));
        // The last in the table works like any other.
        queue.put(Item::new(family.heap(), 1, 0, &[9])).unwrap();
        assert_eq!(last.ask("get"), "got 1/0");
        children.into_iter().for_each(Child::kill);
        assert_eq!(last.ask("let_go"), "let go");
        last.finish();
        family.wait_alone();
        assert_all_slots_work(family, &queue);
    });
}

#[test]
fn a_newcomer_that_dies_before_it_joins_gives_its_slot_back() {
    with_family(|family| {
        let queue = queue(family, 2);
        for _ in 0..3 {
            let child = member(family, &queue);
            // A second admission for the same process, which it never uses.
            let unused = family.heap().domain().admit(child.pidfd()).unwrap();
            assert_eq!(family.members().len(), 3);
            assert_ne!(unused.member(), child.member());
            child.kill();
            family.wait_alone();
        }
    });
}
