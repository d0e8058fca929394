//! Processes that Python's `multiprocessing` starts.

use tensorferry_kit::{alone, where_possible};

use crate::program;

fn with_start_method(name: &str) {
    where_possible(|| {
        alone(|| {
            let child = program("processes.py", &[name]);
            child.expect("done");
            child.finish();
        });
    });
}

#[test]
fn multiprocessing_carries_tensors_and_queues_to_processes_that_it_spawns() {
    with_start_method("spawn");
}

#[test]
fn multiprocessing_carries_tensors_and_queues_to_processes_of_its_fork_server() {
    with_start_method("forkserver");
}
