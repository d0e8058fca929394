//! What the output of [`func`](crate::func) names. Not for use by hand, and free to change.

pub use crate::call::Call;
pub use crate::registry::{FUNCTIONS, Registered, Signature};
pub use linkme;
