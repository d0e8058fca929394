//! Asking for memory before it is used.
#![expect(unsafe_code, reason = "an instruction that the standard library does not have")]

use std::sync::atomic::AtomicU64;

/// Has the line of `word` brought to this processor, to be written, while the caller goes on. Changes nothing and cannot
/// fail; a processor that has no such instruction does nothing.
///
/// Worth it where the line is another processor's: bringing it takes as long as a few hundred instructions.
#[inline(always)]
pub fn prefetch_to_write(word: &AtomicU64) {
    let address = std::ptr::from_ref(word);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: PREFETCHW is a hint: it changes no register, no flag and no memory, and whatever the address it does not fault.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: PRFM is a hint, as above.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
