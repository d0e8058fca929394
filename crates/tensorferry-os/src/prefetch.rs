//! Prefetching memory before it is used.
//!
//! # Safety
//!
//! The instructions here are hints. They change no register, no flag and no memory, and do not fault,
//! whatever the address.
#![expect(unsafe_code, reason = "instructions that the standard library does not have")]

use std::sync::atomic::AtomicU64;

/// Starts to bring the cache line of `word` to this processor for writing, while the caller goes on. It
/// changes nothing and cannot fail. On a processor without such an instruction it does nothing.
///
/// Use it where another processor has the line: bringing it takes as long as a few hundred instructions.
#[inline(always)]
pub fn prefetch_to_write(word: &AtomicU64) {
    prefetch_address_to_write(std::ptr::from_ref(word).addr());
}

/// As [`prefetch_address_to_write`], for reading: the line may stay with other processors, too.
#[inline(always)]
pub fn prefetch_address_to_read(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: PREFETCHT0 is such a hint (Intel SDM volume 2, AMD APM volume 3). It reads its operand from a
    // register.
    unsafe {
        std::arch::asm!("prefetcht0 [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: PRFM is such a hint (Arm ARM, C6.2). It reads its operand from a register.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// As [`prefetch_to_write`], by address. The address may be wrong: then nothing happens.
#[inline(always)]
pub fn prefetch_address_to_write(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: PREFETCHW is such a hint (Intel SDM volume 2, AMD APM volume 3). It reads its operand from a
    // register.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: PRFM is such a hint (Arm ARM, C6.2). It reads its operand from a register.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
