//! Tensors in shared memory: dtypes, shapes, views, exclusive, frozen and shared states.
