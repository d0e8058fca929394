//! Numbers that tell types apart.

use std::any::type_name;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Stands for values of any type, where otherwise [`type_hash`] says what travels.
pub const ANY_TYPE: u64 = 0;

/// A hash of the name of `T`. It tells types apart between processes of one program.
#[must_use]
pub fn type_hash<T>() -> u64 {
    let mut hasher = DefaultHasher::new();
    type_name::<T>().hash(&mut hasher);
    hasher.finish()
}
