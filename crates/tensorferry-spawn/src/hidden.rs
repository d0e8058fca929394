//! For the code that [`func`](crate::func) generates and for the fuzz targets. Not for direct use; may
//! change.

pub use crate::call::{Call, read_order};
pub use crate::registry::{FUNCTIONS, Registered, Signature};
pub use linkme;
