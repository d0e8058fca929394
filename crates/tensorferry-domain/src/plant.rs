//! Bugs that are planted on purpose, to show that the tests notice them.
//!
//! In a build without `--cfg tensorferry_plants`, which is every build but one of `cargo xtask kill --plant`, there are
//! none: the answer is known to the compiler.

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
