//! Move tensors between processes without copying them.
