//! The only door to the kernel: memfd, mapping, futex, pidfd, descriptor passing, limits.
