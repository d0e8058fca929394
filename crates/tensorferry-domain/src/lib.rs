//! One file descriptor of memory shared by a group of processes: members, liveness, extents, waiting.
