//! For the code that [`func`](crate::func) generates, for `tensorferry-pool`, and for the fuzz targets. Not
//! for direct use; may change.

pub use crate::call::{Call, read_order};
pub use crate::registry::{FUNCTIONS, Registered, Signature};
pub use crate::task::{Send, SendError, TASK_KEY_LEN_BYTES, Task, TaskFailure, TaskKey};
pub use linkme;

/// Contains the entry of a registered function. The compiler names this macro when somebody registers a
/// function inside an `impl`, where a `const` without a name is refused: the name says the rule.
#[doc(hidden)]
#[macro_export]
macro_rules! a_registered_function_is_a_free_function_not_in_an_impl {
    ($($entry:tt)*) => {
        const _: () = {
            $($entry)*
        };
    };
}

pub use a_registered_function_is_a_free_function_not_in_an_impl;
