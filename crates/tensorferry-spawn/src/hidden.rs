//! What the output of [`func`](crate::func) and the fuzz targets name. Not for use by hand, and free to change.

pub use crate::call::{Call, read_order};
pub use crate::registry::{FUNCTIONS, Registered, Signature};
pub use linkme;
