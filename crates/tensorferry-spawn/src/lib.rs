//! Run registered functions in child processes with typed arguments and whole error reports.
