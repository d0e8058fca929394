//! How many processors can be used.

use std::num::NonZero;
use std::thread;

/// How many threads of this process can run at the same time. A sensible `nprocs` where each process computes
/// with one thread. At least 1.
///
/// It is [`thread::available_parallelism`]: the number of processors that the calling thread may run on
/// (sched_getaffinity(2)), limited by the CPU quota of its cgroup (`cpu.max`, cgroups(7)), rounded down.
/// Python's `os.process_cpu_count` ignores the quota. `multiprocessing.cpu_count` counts all processors of
/// the machine, whether or not they may be used.
#[must_use]
pub fn cpu_count() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}
