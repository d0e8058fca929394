//! Processes that Python's `multiprocessing` starts.

use tensorferry_kit::{alone, where_possible};

use crate::program;

fn runs(script: &str, argument: &str) {
    where_possible(|| {
        alone(|| {
            let child = program(script, &[argument]);
            child.expect("done");
            child.finish();
        });
    });
}

#[test]
fn multiprocessing_carries_tensors_and_queues_to_processes_that_it_spawns() {
    runs("processes.py", "spawn");
}

#[test]
fn multiprocessing_carries_tensors_and_queues_to_processes_of_its_fork_server() {
    runs("processes.py", "forkserver");
}

#[test]
fn processes_that_import_it_late_are_waited_for_as_long_as_anybody_may_come() {
    runs("late.py", "--late");
}

#[test]
fn a_main_module_that_makes_tensors_when_it_is_imported_is_warned_of() {
    runs("late.py", "--early");
}
