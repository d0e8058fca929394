//! The orderings that the library's protocols are written with are enough, and weaker ones are not.

#![expect(clippy::print_stdout, reason = "says how much was tried")]

use tensorferry_loom::atomic::{Access, What};
use tensorferry_loom::{Consumers, Outcome, Weakened, holding, leasing, locking, passing, waiting};

#[track_caller]
fn holds(outcome: Outcome) {
    println!("{} executions, {} positions of a kill", outcome.n_executions, outcome.n_positions);
    assert_eq!(outcome.failure, None, "after {} executions", outcome.n_executions);
    assert!(outcome.n_executions > 1, "nothing happened at the same time");
}

/// Without these orderings or fences it fails, in the way that is expected.
#[track_caller]
fn needs(model: impl Fn(Weakened) -> Outcome, weakened: Weakened, expected: &str) {
    let failure = model(weakened).failure;
    assert!(failure.as_ref().is_some_and(|failure| failure.contains(expected)), "{weakened:?}: {failure:?}");
}

const RACE: &str = "Causality violation";
const ASLEEP_FOR_EVER: &str = "deadlock";

/// The tag of a slot's state.
fn tag(access: &Access) -> u64 {
    access.new & 0xff
}

fn is_fence_of(access: &Access, function: &str) -> bool {
    access.what == What::Fence && access.function == function
}

fn is_step_to(access: &Access, to: u64) -> bool {
    access.what == What::Change && access.function == "replace" && tag(access) == to
}

const NO_FENCE_IN_WAKE: Weakened = Weakened::Orderings(|access| is_fence_of(access, "wake"));
const NO_ORDER_AFTER_CHANGE: Weakened =
    Weakened::Orderings(|access| is_fence_of(access, "wake_after_change"));
const NO_FENCE_IN_SLEEP: Weakened = Weakened::Orderings(|access| is_fence_of(access, "announce_sleep"));
const NO_FENCE_IN_PUT: Weakened = Weakened::Orderings(|access| is_fence_of(access, "try_place"));
const NO_FENCE_AT_THE_END: Weakened = Weakened::Orderings(|access| is_fence_of(access, "ending"));
const RELAXED_COMMIT: Weakened = Weakened::Orderings(|access| is_step_to(access, 2));
const RELAXED_FREE: Weakened = Weakened::Orderings(|access| is_step_to(access, 0));
/// A look at a slot acquires already, so the claim is weak only together with it.
const RELAXED_LOOK_AND_CLAIM: Weakened =
    Weakened::Orderings(|access| access.function == "state" || is_step_to(access, 3));
const RELAXED_LOOK: Weakened = Weakened::Orderings(|access| access.function == "state");
const RELAXED_LOCK: Weakened =
    Weakened::Orderings(|access| ["try_acquire", "release"].contains(&access.function));
/// A record's steps, and the count that leads to it.
const RELAXED_RECORDS_AND_RETURNS: Weakened =
    Weakened::Orderings(|access| ["record.rs", "lease.rs"].contains(&access.file));
/// Whoever looks at a record has looked at its slot before.
const RELAXED_RECORDS_AND_SLOTS: Weakened =
    Weakened::Orderings(|access| ["record.rs", "slot.rs"].contains(&access.file));
/// The marks come after the last access too and are found first, so the bit is weak only together with them.
const RELAXED_RETURN: Weakened = Weakened::Orderings(|access| {
    ["let_go", "mark_returned_anew", "set_bit", "hint_return"].contains(&access.function)
});

#[test]
fn a_sleeper_is_woken() {
    holds(waiting::two_sleepers(Weakened::Nothing));
    holds(waiting::two_wakers(Weakened::Nothing));
}

#[test]
fn both_fences_of_a_wait_are_needed() {
    needs(waiting::two_wakers, NO_FENCE_IN_WAKE, ASLEEP_FOR_EVER);
    needs(waiting::two_sleepers, NO_FENCE_IN_WAKE, ASLEEP_FOR_EVER);
    needs(waiting::two_wakers, NO_FENCE_IN_SLEEP, ASLEEP_FOR_EVER);
    needs(waiting::two_sleepers, NO_FENCE_IN_SLEEP, ASLEEP_FOR_EVER);
}

#[test]
fn a_sleeper_at_two_words_is_woken_by_either() {
    holds(waiting::two_words(Weakened::Nothing));
    needs(waiting::two_words, NO_FENCE_IN_WAKE, ASLEEP_FOR_EVER);
    needs(waiting::two_words, NO_FENCE_IN_SLEEP, ASLEEP_FOR_EVER);
}

#[test]
fn a_killed_waker_or_sleeper_costs_nobody_a_wake_up() {
    holds(waiting::a_waker_dies(Weakened::Nothing));
    holds(waiting::a_sleeper_dies(Weakened::Nothing));
    needs(waiting::a_sleeper_dies, NO_FENCE_IN_WAKE, ASLEEP_FOR_EVER);
}

#[test]
fn a_message_comes_whole_and_in_order() {
    for consumers in [Consumers::Multi, Consumers::Single] {
        holds(passing::one_after_the_other(Weakened::Nothing, consumers));
    }
    holds(passing::two_receivers(Weakened::Nothing));
    holds(passing::two_senders(Weakened::Nothing));
}

#[test]
fn who_sleeps_for_a_message_or_a_slot_is_woken() {
    let many = |weakened| passing::one_after_the_other(weakened, Consumers::Multi);
    needs(many, NO_ORDER_AFTER_CHANGE, ASLEEP_FOR_EVER);
}

#[test]
fn commit_look_and_free_have_to_be_ordered() {
    let many = |weakened| passing::one_after_the_other(weakened, Consumers::Multi);
    let sole = |weakened| passing::one_after_the_other(weakened, Consumers::Single);
    needs(many, RELAXED_COMMIT, RACE);
    needs(many, RELAXED_FREE, RACE);
    needs(many, RELAXED_LOOK_AND_CLAIM, RACE);
    needs(sole, RELAXED_LOOK, RACE);
}

#[test]
fn what_was_put_into_a_closed_ring_is_taken_or_taken_back() {
    holds(passing::closing(Weakened::Nothing));
    needs(passing::closing, NO_FENCE_IN_PUT, "put: true, taken: []");
    needs(passing::closing, NO_FENCE_AT_THE_END, "put: true, taken: []");
}

#[test]
fn a_killed_sender_leaves_a_whole_message_or_none() {
    holds(passing::a_sender_dies(Weakened::Nothing));
    needs(passing::a_sender_dies, RELAXED_COMMIT, RACE);
}

#[test]
fn what_a_killed_receiver_had_not_taken_goes_to_the_other() {
    holds(passing::a_receiver_dies(Weakened::Nothing));
}

#[test]
fn a_message_that_was_given_back_comes_whole() {
    holds(leasing::given_back(Weakened::Nothing));
    needs(leasing::given_back, RELAXED_RECORDS_AND_RETURNS, RACE);
}

#[test]
fn what_a_killed_lessee_had_not_acknowledged_goes_to_the_other() {
    holds(leasing::a_lessee_dies(Weakened::Nothing));
}

#[test]
fn who_joins_waits_until_it_was_done_and_is_woken() {
    holds(leasing::joined(Weakened::Nothing));
    needs(leasing::joined, RELAXED_RECORDS_AND_SLOTS, "joined before it was done");
    needs(leasing::joined, NO_FENCE_IN_WAKE, ASLEEP_FOR_EVER);
    holds(leasing::joined_beside_a_death(Weakened::Nothing));
}

#[test]
fn one_at_a_time_has_a_lock_and_who_sleeps_for_it_is_woken() {
    holds(locking::two_owners(Weakened::Nothing));
    needs(locking::two_owners, RELAXED_LOCK, RACE);
    needs(locking::two_owners, NO_ORDER_AFTER_CHANGE, ASLEEP_FOR_EVER);
    holds(locking::a_share_comes_back(Weakened::Nothing));
    needs(locking::a_share_comes_back, NO_ORDER_AFTER_CHANGE, ASLEEP_FOR_EVER);
}

#[test]
fn the_lock_of_a_killed_owner_goes_to_the_other() {
    holds(locking::an_owner_dies(Weakened::Nothing));
}

#[test]
fn a_block_is_written_again_after_the_last_read() {
    holds(holding::reuse(Weakened::Nothing));
    needs(holding::reuse, RELAXED_RETURN, RACE);
}

#[test]
fn a_message_that_the_head_has_passed_is_held_by_who_took_it() {
    holds(holding::passed(Weakened::Nothing));
}

#[test]
fn a_block_of_a_killed_holder_comes_back() {
    holds(holding::a_holder_dies(Weakened::Nothing));
}

#[test]
fn a_mark_comes_before_the_bit_is_cleared() {
    needs(holding::a_holder_dies, Weakened::ClearsBeforeMark, "the block was lost");
}

/// The stand-in for the heap does with headers what the library does: these lines are there, in this order.
#[test]
fn the_heap_is_written_as_the_stand_in_has_it() {
    let hold = include_str!("../../../crates/tensorferry-storage/src/heap/hold.rs");
    let returns = include_str!("../../../crates/tensorferry-storage/src/heap/returns.rs");
    let arena = include_str!("../../../crates/tensorferry-storage/src/arena.rs");
    let sweep = include_str!("../../../crates/tensorferry-storage/src/sweep.rs");
    let scan = include_str!("../../../crates/tensorferry-storage/src/scan.rs");
    let memory = include_str!("../../../crates/tensorferry-domain/src/memory.rs");
    for (name, source, lines) in [
        (
            "heap/hold.rs",
            hold,
            &[
                "header.holders().store(self.me().bit(), Ordering::Release);",
                "ExtentOwner::Member(owner) => owner.bit(),",
                "if !header.hold_if_held(self.me().bit(), likely) {",
            ][..],
        ),
        (
            "heap/returns.rs",
            returns,
            &[
                "let others = header.let_go(me.bit(), me.bit());",
                "self.mark_returned(header, place);",
                "let others = header.holders().fetch_and(!cleared, Ordering::SeqCst) & !me.bit();",
                "if header.returned().load(Ordering::SeqCst) == 0 {",
                "header.returned().store(1, Ordering::SeqCst);",
                "set_bit(word, address.line() % 64);",
                "self.memory.hint_return(address.extent());",
                "if word.load(Ordering::SeqCst) & mask == 0 {",
                "word.fetch_or(mask, Ordering::SeqCst);",
            ][..],
        ),
        (
            "arena.rs",
            arena,
            &[
                "if places.memory.take_extent_returns(extent) {",
                "if word.load(Ordering::SeqCst) == 0 {",
                "for bit in bits(word.swap(0, Ordering::SeqCst)) {",
                "if header.returned().load(Ordering::SeqCst) == 0 {",
                "let holders = header.holders().load(Ordering::SeqCst);",
                "if holders == 0 {",
            ][..],
        ),
        (
            "sweep.rs",
            sweep,
            &[
                "} else if header.holders().load(Ordering::SeqCst) & bits != 0 {",
                "inner.mark_returned_anew(place);",
                "suspect(header.holders(), dead)",
            ][..],
        ),
        (
            "scan.rs",
            scan,
            &["self.inner.mark_returned_anew(place);", "in_time = self.clear(header.holders());"][..],
        ),
        (
            "memory.rs",
            memory,
            &[
                "if entry[extent::RETURNS].load(Ordering::SeqCst) == 0 {",
                "entry[extent::RETURNS].store(1, Ordering::SeqCst);",
                "if flag.load(Ordering::SeqCst) == 0 {",
                "flag.store(1, Ordering::SeqCst);",
                "&& entry[extent::RETURNS].swap(0, Ordering::SeqCst) != 0",
                "flag.load(Ordering::SeqCst) != 0 && flag.swap(0, Ordering::SeqCst) != 0",
            ][..],
        ),
    ] {
        let mut rest = source;
        for line in lines {
            let at = rest.find(line);
            assert!(at.is_some(), "{name} has no longer, or not in this order: {line}");
            rest = &rest[at.unwrap_or(0) + line.len()..];
        }
    }
}
