//! How many processors there are to use.

use std::num::NonZero;
use std::thread;

/// How many threads can run at the same time in this process: a sensible `nprocs` where each process computes with one
/// thread. At least 1.
///
/// What it counts are the processors that the calling thread may run on (sched_getaffinity(2)), and no more of them than the
/// process-time quota of its cgroup allows (`cpu.max`, cgroups(7)), rounded down; as in [`thread::available_parallelism`],
/// which it is. Python's `os.process_cpu_count` counts the former alone, and `multiprocessing.cpu_count` all processors of the
/// machine, whoever may use them.
#[must_use]
pub fn cpu_count() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}
