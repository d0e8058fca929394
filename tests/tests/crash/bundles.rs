//! Bundles of killed processes: what they name stays for whoever has the bundle, and for nobody else.

use tensorferry::Queue;
use tensorferry_kit::{Child, Family, Item, until, with_family};

use crate::{member, queue};

const N_TENSORS: usize = 40;

/// Tensors of some hundred bytes each, and one that stands alone.
fn lengths() -> String {
    (0..N_TENSORS).map(|index| if index == 7 { "9000" } else { "30" }).collect::<Vec<_>>().join(" ")
}

/// A child that holds a bundle, and has put it.
fn packer(family: &Family, queue: &Queue<Item>) -> Child {
    let packer = member(family, queue);
    assert_eq!(packer.ask(&format!("make 1 0 {}", lengths())), "made");
    assert_eq!(packer.ask("bundle"), "bundled");
    assert_eq!(packer.ask("pass"), "put");
    packer
}

/// Allocates, writes and drops so much that every block that is free is written over.
fn write_over_everything(family: &Family, sender: u32) {
    let lengths: Vec<_> = (0..N_TENSORS).map(|index| if index == 7 { 9000 } else { 30 }).collect();
    let items: Vec<_> = (0..4).map(|sequence| Item::new(family.heap(), sender, sequence, &lengths)).collect();
    items.iter().for_each(Item::check);
}

fn kill(family: &Family, child: Child, n_left: usize) {
    child.kill();
    until("the dead one is swept", || family.members().len() == n_left);
}

#[test]
fn a_bundle_outlives_its_maker_and_takes_all_along_when_it_goes() {
    with_family(|family| {
        let queue = queue(family, 4);
        let packer = packer(family, &queue);
        let keeper = member(family, &queue);
        // Its maker dies while it is on its way in one round, and while somebody has it in the other.
        kill(family, packer, 2);
        write_over_everything(family, 8);
        assert_eq!(keeper.ask("get"), "got 1/0");
        write_over_everything(family, 9);
        assert_eq!(keeper.ask("check"), "right");
        // It is passed on, and whoever had it dies too.
        assert_eq!(keeper.ask("pass"), "put");
        let last = member(family, &queue);
        assert_eq!(last.ask("get"), "got 1/0");
        kill(family, keeper, 2);
        write_over_everything(family, 10);
        assert_eq!(last.ask("check"), "right");
        assert_eq!(last.ask("let_go"), "let go");
        last.finish();
        family.wait_alone();
        family.wait_blocks(1);
    });
}

#[test]
fn what_is_taken_out_of_a_bundle_of_the_dead_outlives_it() {
    with_family(|family| {
        let queue = queue(family, 4);
        let packer = packer(family, &queue);
        let keeper = member(family, &queue);
        assert_eq!(keeper.ask("get"), "got 1/0");
        kill(family, packer, 2);
        write_over_everything(family, 8);
        assert_eq!(keeper.ask("unbundle"), "unbundled");
        write_over_everything(family, 9);
        assert_eq!(keeper.ask("check"), "right");
        assert_eq!(keeper.ask("let_go"), "let go");
        keeper.finish();
        family.wait_alone();
        family.wait_blocks(1);
    });
}

#[test]
fn a_maker_gets_everything_back_from_who_was_killed_with_its_bundle() {
    with_family(|family| {
        let queue = queue(family, 4);
        let packer = packer(family, &queue);
        let keeper = member(family, &queue);
        assert_eq!(keeper.ask("get"), "got 1/0");
        // The bundle, its tensors, and nothing else.
        assert_eq!(packer.ask("live"), (N_TENSORS + 1).to_string());
        kill(family, keeper, 2);
        until("all of it is back", || packer.ask("live") == "0");
        packer.finish();
        family.wait_alone();
        family.wait_blocks(1);
    });
}

#[test]
fn a_message_that_is_too_long_for_its_slot_may_carry_a_bundle_of_the_dead() {
    with_family(|family| {
        let queue = queue(family, 4);
        let packer = member(family, &queue);
        assert_eq!(packer.ask(&format!("make 1 0 {}", lengths())), "made");
        assert_eq!(packer.ask("bundle"), "bundled");
        assert_eq!(packer.ask("note 1000"), "noted");
        assert_eq!(packer.ask("pass"), "put");
        kill(family, packer, 1);
        write_over_everything(family, 8);
        let keeper = member(family, &queue);
        assert_eq!(keeper.ask("get"), "got 1/0");
        write_over_everything(family, 9);
        assert_eq!(keeper.ask("check"), "right");
        keeper.finish();
        family.wait_alone();
        family.wait_blocks(1);
    });
}

#[test]
fn a_leased_bundle_comes_again_when_its_lessee_and_its_maker_are_killed() {
    with_family(|family| {
        let queue = Queue::with_leases_in(family.heap(), 4, 2).unwrap();
        let packer = packer(family, &queue);
        let lessee = member(family, &queue);
        assert_eq!(lessee.ask("lease"), "leased 1/0");
        kill(family, packer, 2);
        write_over_everything(family, 8);
        kill(family, lessee, 1);
        write_over_everything(family, 9);
        let item = queue.get_leased().unwrap().ack().unwrap();
        item.check();
        drop(item);
        family.wait_blocks(1);
    });
}
