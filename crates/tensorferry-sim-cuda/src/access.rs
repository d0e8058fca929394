//! The bytes of device memory, and of the caller's memory on the host.
//!
//! # Safety
//! Only methods of a locked [`AddressSpace`] touch device memory, after [`AddressSpace::check`] has found the
//! whole range in regions. The memory of a region stays mapped while the region exists. Device memory is
//! never lent as a reference, because other processes write it at any time, as on a real device. Bytes that
//! are copied from it are plain data. With a [`HostMemory`], the C caller promises that the range belongs to
//! the caller and stays valid until the copy is done.
#![expect(unsafe_code, reason = "copies bytes from and to device memory, and memory that a C caller names")]

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::address_space::{AddressSpace, Ordinal, Touch};
use crate::{Answer, Status};

/// A range of the caller's memory on the host, as a C function received it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostMemory {
    address: usize,
    pub(crate) len_bytes: usize,
}

impl HostMemory {
    /// A range that a C caller passed. The caller promises that it is valid until the operation is done.
    pub(crate) fn from_c(address: usize, len_bytes: usize) -> Answer<Self> {
        if address == 0 && len_bytes > 0 {
            Err(Status::INVALID_VALUE)
        } else {
            Ok(Self { address, len_bytes })
        }
    }

    pub(crate) fn address(&self) -> u64 {
        self.address as u64
    }

    /// Copies the range, as the driver stages pageable memory.
    pub(crate) fn to_vec(self) -> Vec<u8> {
        let mut bytes = vec![0; self.len_bytes];
        let from = ptr::with_exposed_provenance::<u8>(self.address);
        // SAFETY: copy requires both ranges valid for len_bytes: the C caller promised one, the vector has
        // the other.
        unsafe { ptr::copy(from, bytes.as_mut_ptr(), self.len_bytes) };
        bytes
    }
}

#[expect(clippy::cast_possible_truncation, reason = "addresses are 64 bits wide here")]
fn device_pointer(address: u64) -> *mut u8 {
    ptr::with_exposed_provenance_mut(address as usize)
}

/// A copy, a fill, a load or a store by a device.
pub(crate) fn copying(device: Ordinal) -> Touch {
    Touch { device, is_write: false, is_kernel: false }
}

impl Touch {
    pub(crate) fn writing(self) -> Self {
        Self { is_write: true, ..self }
    }
}

impl AddressSpace {
    pub(crate) fn read(&self, from: u64, bytes: &mut [u8], touch: Touch) -> Answer {
        self.check(from, bytes.len(), touch)?;
        // SAFETY: copy requires both ranges valid: the check has just found the source mapped, and it stays
        // mapped under the lock that `self` proves; the slice is the destination.
        unsafe { ptr::copy(device_pointer(from), bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    pub(crate) fn write(&self, to: u64, bytes: &[u8], touch: Touch) -> Answer {
        self.check(to, bytes.len(), touch.writing())?;
        // SAFETY: as in `read`, with the roles exchanged.
        unsafe { ptr::copy(bytes.as_ptr(), device_pointer(to), bytes.len()) };
        Ok(())
    }

    pub(crate) fn copy(&self, to: u64, from: u64, len_bytes: usize, touch: Touch) -> Answer {
        self.check(from, len_bytes, touch)?;
        self.check(to, len_bytes, touch.writing())?;
        // SAFETY: both ranges were just found mapped, and the lock keeps them mapped; copy allows that they
        // overlap.
        unsafe { ptr::copy(device_pointer(from), device_pointer(to), len_bytes) };
        Ok(())
    }

    pub(crate) fn copy_to_host(&self, to: HostMemory, from: u64, touch: Touch) -> Answer {
        self.check(from, to.len_bytes, touch)?;
        let host = ptr::with_exposed_provenance_mut::<u8>(to.address);
        // SAFETY: the source was just found mapped, and the C caller promised the destination.
        unsafe { ptr::copy(device_pointer(from), host, to.len_bytes) };
        Ok(())
    }

    pub(crate) fn copy_from_host(&self, to: u64, from: HostMemory, touch: Touch) -> Answer {
        self.check(to, from.len_bytes, touch.writing())?;
        let host = ptr::with_exposed_provenance::<u8>(from.address);
        // SAFETY: the destination was just found mapped, and the C caller promised the source.
        unsafe { ptr::copy(host, device_pointer(to), from.len_bytes) };
        Ok(())
    }

    /// Fills `n` elements with a pattern of 1, 2, 4 or 8 bytes.
    pub(crate) fn fill(&self, to: u64, pattern: &[u8], n: usize, touch: Touch) -> Answer {
        self.write(to, &pattern.repeat(n), touch)
    }

    /// Changes a 32-bit word in one step, for every process that maps it. Returns the word before.
    pub(crate) fn update(&self, at: u64, touch: Touch, new: impl Fn(u32) -> u32) -> Answer<u32> {
        self.check(at, 4, touch.writing())?;
        if !at.is_multiple_of(4) {
            return Err(Status::ILLEGAL_ADDRESS);
        }
        // SAFETY: from_ptr requires an aligned pointer to mapped memory: both were just checked, and the lock
        // keeps it mapped. Other processes may copy the same word without atomics, as they may on a real
        // device.
        let word = unsafe { AtomicU32::from_ptr(device_pointer(at).cast()) };
        let updated = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(new(old)));
        updated.map_err(|_| Status::UNKNOWN)
    }
}
