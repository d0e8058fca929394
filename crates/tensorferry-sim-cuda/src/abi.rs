//! The C interface: pointers as a C caller passes them, and the structures that they point to.
//!
//! # Safety
//! The pointer types here have no constructor: their values come only from the arguments of the exported
//! functions. The C caller promises what `cuda.h` requires of each pointer: it is null, or valid for what the
//! function does with it.
#![expect(unsafe_code, reason = "reads and writes what C callers point to")]

use std::ffi::{CStr, c_char, c_void};

use crate::{Answer, Status};

/// A pointer to the place where a C caller wants a result.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// # Errors
    /// INVALID_VALUE for null.
    pub(crate) fn set(self, value: T) -> Answer {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: write requires validity, which the C caller promised for a pointer that is not null; the
        // unaligned write requires no alignment.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// As [`Out::set`], for pointers that may be null.
    pub(crate) fn set_if_wanted(self, value: T) -> Answer {
        if self.0.is_null() { Ok(()) } else { self.set(value) }
    }

    /// The same address, with another type.
    pub(crate) fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }
}

/// A pointer to a value of a C caller.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// # Errors
    /// INVALID_VALUE for null.
    pub(crate) fn get(self) -> Answer<T> {
        self.at(0)
    }

    /// The element with this index of an array. `index` must be below the length that the caller gave.
    pub(crate) fn at(self, index: usize) -> Answer<T> {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        let element = self.0.wrapping_add(index);
        // SAFETY: read requires a valid, initialised value, which the C caller promised; the unaligned read
        // requires no alignment.
        Ok(unsafe { element.read_unaligned() })
    }
}

impl<T> In<T> {
    /// The same address, with another type.
    pub(crate) fn cast<U>(self) -> In<U> {
        In(self.0.cast())
    }
}

/// A pointer to a value of a C caller, which a result replaces.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct InOut<T>(*mut T);

impl<T: Copy> InOut<T> {
    /// As [`In::get`].
    pub(crate) fn get(self) -> Answer<T> {
        In(self.0.cast_const()).get()
    }

    /// As [`Out::set`].
    pub(crate) fn set(self, value: T) -> Answer {
        Out(self.0).set(value)
    }
}

/// A string of a C caller.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// # Errors
    /// INVALID_VALUE for null and for a string that is not UTF-8.
    pub(crate) fn get(self) -> Answer<String> {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: from_ptr requires a text that ends with a zero, which the C caller promised; it is copied
        // at once.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map(str::to_owned).map_err(|_| Status::INVALID_VALUE)
    }
}

/// The arguments of a launch: an array of addresses, one for each parameter of the kernel.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Arguments(In<In<u8>>);

impl Arguments {
    /// Copies arguments of these lengths, as the real driver does at the launch.
    ///
    /// # Errors
    /// INVALID_VALUE if a pointer is null.
    pub(crate) fn get(self, lens_bytes: impl Iterator<Item = usize>) -> Answer<Vec<u64>> {
        let argument = |(index, len_bytes)| {
            let from = self.0.at(index)?;
            let mut bytes = [0; 8];
            for (at, byte) in bytes.iter_mut().enumerate().take(len_bytes) {
                *byte = from.at(at)?;
            }
            Ok(u64::from_ne_bytes(bytes))
        };
        lens_bytes.enumerate().map(argument).collect()
    }
}

/// A function of a C caller, to be run on a stream.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct HostFunction(Option<unsafe extern "C" fn(*mut c_void)>);

impl HostFunction {
    /// The function, to be called with the pointer `data`.
    ///
    /// # Errors
    /// INVALID_VALUE for null.
    pub(crate) fn with(self, data: usize) -> Answer<impl FnOnce() + Send> {
        let function = self.0.ok_or(Status::INVALID_VALUE)?;
        // SAFETY: the C caller promised that a thread of the driver may call the function with this pointer,
        // once.
        Ok(move || unsafe { function(std::ptr::with_exposed_provenance_mut(data)) })
    }
}

/// `CUmemLocation`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Location {
    kind: u32,
    id: i32,
}

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const LOCATION_DEVICE: u32 = 1;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const ALLOCATION_PINNED: u32 = 1;

impl Location {
    /// The ordinal, if the location is a device.
    pub(crate) fn device(self) -> Answer<i32> {
        if self.kind == LOCATION_DEVICE { Ok(self.id) } else { Err(Status::INVALID_VALUE) }
    }
}

/// `CUmemAllocationProp`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct AllocationProperties {
    kind: u32,
    pub(crate) handle_types: u32,
    pub(crate) location: Location,
    win32_metadata: usize,
    flags: [u8; 8],
}

impl AllocationProperties {
    pub(crate) fn new(device: i32, handle_types: u32) -> Self {
        let location = Location { kind: LOCATION_DEVICE, id: device };
        Self { kind: ALLOCATION_PINNED, handle_types, location, win32_metadata: 0, flags: [0; 8] }
    }

    pub(crate) fn check(self) -> Answer<Self> {
        if self.kind == ALLOCATION_PINNED { Ok(self) } else { Err(Status::INVALID_VALUE) }
    }
}

/// `CUmemAccessDesc`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct AccessDescription {
    pub(crate) location: Location,
    pub(crate) flags: u32,
}

/// `CUmemPoolProps`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PoolProperties {
    kind: u32,
    pub(crate) handle_types: u32,
    pub(crate) location: Location,
    win32_attributes: usize,
    max_bytes: usize,
    usage: u16,
    reserved: [u8; 54],
}

impl PoolProperties {
    pub(crate) fn check(self) -> Answer<Self> {
        if self.kind == ALLOCATION_PINNED { Ok(self) } else { Err(Status::INVALID_VALUE) }
    }
}

/// `CUipcMemHandle`, `CUipcEventHandle`, `CUmemPoolPtrExportData`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Bytes64(pub(crate) [u8; 64]);

const _: () = assert!(size_of::<AllocationProperties>() == 32);
const _: () = assert!(size_of::<AccessDescription>() == 12);
const _: () = assert!(size_of::<PoolProperties>() == 88);
const _: () = assert!(size_of::<Bytes64>() == 64);
