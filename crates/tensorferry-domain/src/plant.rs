//! Bugs that are planted on purpose, to show that the tests notice them.
//!
//! They exist only in a build with `--cfg tensorferry_plants`, which `cargo xtask kill --plant` makes. In
//! every other build the answer is a constant that the compiler knows.

/// Whether the bug with this name is planted.
#[cfg(not(tensorferry_plants))]
#[doc(hidden)]
#[must_use]
#[inline(always)]
pub const fn planted(_name: &str) -> bool {
    false
}

/// Whether the bug with this name is planted: `TENSORFERRY_PLANT` names one.
#[cfg(tensorferry_plants)]
#[doc(hidden)]
#[must_use]
pub fn planted(name: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<std::ffi::OsString>> = std::sync::OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var_os("TENSORFERRY_PLANT")).as_deref() == Some(name.as_ref())
}
