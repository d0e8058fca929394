//! What needs no other program.

use tensorferry_kit::where_possible;

use crate::{program, program_with};

/// Runs a program that checks things and says `done`.
#[track_caller]
fn passes(name: &str, modules: &[&str]) {
    where_possible(|| {
        let child = program_with(name, &[], modules);
        child.expect("done");
        child.finish();
    });
}

#[test]
fn tensors_are_buffers_and_are_not_given_away_under_a_view() {
    passes("memory.py", &[]);
}

#[test]
fn a_message_holds_what_serde_can_and_says_why_it_does_not() {
    passes("messages.py", &[]);
}

#[test]
fn the_stub_has_what_is_there() {
    where_possible(|| {
        let stub = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/tensorferry-python/tensorferry.pyi");
        let child = program("stubs.py", &[stub]);
        child.expect("done");
        child.finish();
    });
}

#[test]
fn a_forked_process_is_told_that_it_has_nothing() {
    passes("forks.py", &[]);
}

#[test]
fn threads_may_close_and_freeze_what_others_wait_with() {
    passes("threads.py", &[]);
}

#[test]
fn tasks_of_asyncio_wait_in_one_thread() {
    passes("tasks.py", &[]);
}

#[test]
fn the_interpreter_ends_while_a_task_waits() {
    where_possible(|| {
        let child = program("ends.py", &[]);
        child.expect("done");
        child.finish_silently();
    });
}

#[test]
fn a_lease_is_acknowledged_or_its_value_comes_back() {
    passes("leases.py", &[]);
}

#[test]
fn arrays_of_numpy_are_the_same_memory() {
    passes("arrays.py", &["numpy"]);
}

#[test]
fn tensors_of_pytorch_are_the_same_memory() {
    passes("torch_tensors.py", &["torch"]);
}

#[test]
fn an_address_without_a_listener_is_an_error() {
    where_possible(|| {
        let child = program("consumer.py", &["@tensorferry-nobody-listens"]);
        let stderr = child.fail();
        assert!(
            stderr.contains(
                "ConnectionRefusedError: [Errno 111] cannot connect to @tensorferry-nobody-listens"
            ),
            "{stderr}"
        );
    });
}
