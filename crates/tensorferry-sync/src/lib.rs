//! Values and arrays in shared memory.
