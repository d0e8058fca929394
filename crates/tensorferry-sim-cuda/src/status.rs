//! The results of driver functions: the codes of `CUresult`, with their names and texts.

use std::ffi::CStr;
use std::fmt;

/// A code of `CUresult` other than success.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u32);

/// The result of a driver function.
pub type Answer<T = ()> = Result<T, Status>;

struct Known {
    code: u32,
    name: &'static CStr,
    text: &'static CStr,
}

const SUCCESS: Known = Known { code: 0, name: c"CUDA_SUCCESS", text: c"no error" };

macro_rules! statuses {
    ($($constant:ident = $code:literal, $name:literal, $text:literal;)*) => {
        impl Status {
            $(#[doc = concat!("Code ", stringify!($code), ".")] pub const $constant: Self = Self($code);)*
        }
        const KNOWN: &[Known] = &[SUCCESS, $(Known { code: $code, name: $name, text: $text }),*];
    };
}

statuses! {
    INVALID_VALUE = 1, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument";
    OUT_OF_MEMORY = 2, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory";
    NOT_INITIALIZED = 3, c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error";
    DEINITIALIZED = 4, c"CUDA_ERROR_DEINITIALIZED", c"driver shutting down";
    DEVICE_UNAVAILABLE = 46, c"CUDA_ERROR_DEVICE_UNAVAILABLE", c"CUDA-capable device(s) is/are busy or unavailable";
    NO_DEVICE = 100, c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected";
    INVALID_DEVICE = 101, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal";
    INVALID_IMAGE = 200, c"CUDA_ERROR_INVALID_IMAGE", c"device kernel image is invalid";
    INVALID_CONTEXT = 201, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context";
    MAP_FAILED = 205, c"CUDA_ERROR_MAP_FAILED", c"mapping of buffer object failed";
    ECC_UNCORRECTABLE = 214, c"CUDA_ERROR_ECC_UNCORRECTABLE", c"uncorrectable ECC error encountered";
    PEER_ACCESS_UNSUPPORTED = 217, c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", c"peer access is not supported between these two devices";
    INVALID_PTX = 218, c"CUDA_ERROR_INVALID_PTX", c"a PTX JIT compilation failed";
    NVLINK_UNCORRECTABLE = 220, c"CUDA_ERROR_NVLINK_UNCORRECTABLE", c"uncorrectable NVLink error detected during the execution";
    JIT_COMPILER_NOT_FOUND = 221, c"CUDA_ERROR_JIT_COMPILER_NOT_FOUND", c"PTX JIT compiler library not found";
    CONTAINED = 226, c"CUDA_ERROR_CONTAINED", c"Invalid access of peer GPU memory over nvlink or a hardware error";
    INVALID_HANDLE = 400, c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle";
    NOT_FOUND = 500, c"CUDA_ERROR_NOT_FOUND", c"named symbol not found";
    NOT_READY = 600, c"CUDA_ERROR_NOT_READY", c"device not ready";
    ILLEGAL_ADDRESS = 700, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered";
    LAUNCH_TIMEOUT = 702, c"CUDA_ERROR_LAUNCH_TIMEOUT", c"the launch timed out and was terminated";
    PEER_ACCESS_ALREADY_ENABLED = 704, c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", c"peer access is already enabled";
    PEER_ACCESS_NOT_ENABLED = 705, c"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", c"peer access has not been enabled";
    CONTEXT_IS_DESTROYED = 709, c"CUDA_ERROR_CONTEXT_IS_DESTROYED", c"context is destroyed";
    ASSERT = 710, c"CUDA_ERROR_ASSERT", c"device-side assert triggered";
    HOST_MEMORY_ALREADY_REGISTERED = 712, c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", c"part or all of the requested memory range is already mapped";
    HOST_MEMORY_NOT_REGISTERED = 713, c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", c"pointer does not correspond to a registered memory region";
    HARDWARE_STACK_ERROR = 714, c"CUDA_ERROR_HARDWARE_STACK_ERROR", c"hardware stack error";
    ILLEGAL_INSTRUCTION = 715, c"CUDA_ERROR_ILLEGAL_INSTRUCTION", c"an illegal instruction was encountered";
    MISALIGNED_ADDRESS = 716, c"CUDA_ERROR_MISALIGNED_ADDRESS", c"misaligned address";
    INVALID_ADDRESS_SPACE = 717, c"CUDA_ERROR_INVALID_ADDRESS_SPACE", c"operation not supported on global/shared address space";
    INVALID_PC = 718, c"CUDA_ERROR_INVALID_PC", c"invalid program counter";
    LAUNCH_FAILED = 719, c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure";
    TENSOR_MEMORY_LEAK = 721, c"CUDA_ERROR_TENSOR_MEMORY_LEAK", c"tensor memory not completely freed";
    NOT_SUPPORTED = 801, c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported";
    STREAM_CAPTURE_UNSUPPORTED = 900, c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", c"operation not permitted when stream is capturing";
    STREAM_CAPTURE_INVALIDATED = 901, c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", c"operation failed due to a previous error during capture";
    STREAM_CAPTURE_IMPLICIT = 906, c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", c"operation would make the legacy stream depend on a capturing blocking stream";
    STREAM_CAPTURE_WRONG_THREAD = 908, c"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", c"attempt to terminate a thread-local capture sequence from another thread";
    UNKNOWN = 999, c"CUDA_ERROR_UNKNOWN", c"unknown error";
}

impl Status {
    /// The status with this code; `None` for success and for unknown codes. Some codes only occur as injected
    /// faults.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        (code != 0 && KNOWN.iter().any(|known| known.code == code)).then_some(Self(code))
    }

    /// The number that the C functions return.
    #[must_use]
    pub const fn code(self) -> u32 {
        self.0
    }

    /// The name of a code, success included.
    #[must_use]
    pub fn name_of(code: u32) -> Option<&'static CStr> {
        KNOWN.iter().find(|known| known.code == code).map(|known| known.name)
    }

    /// The driver's text for a code, success included.
    #[must_use]
    pub fn text_of(code: u32) -> Option<&'static CStr> {
        KNOWN.iter().find(|known| known.code == code).map(|known| known.text)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::name_of(self.0).and_then(|name| name.to_str().ok());
        f.write_str(name.unwrap_or("an unknown code"))
    }
}

/// Errors of the kernel that have no meaning of their own in CUDA.
impl From<rustix::io::Errno> for Status {
    fn from(errno: rustix::io::Errno) -> Self {
        if errno == rustix::io::Errno::NOMEM { Self::OUT_OF_MEMORY } else { Self::UNKNOWN }
    }
}

impl From<std::io::Error> for Status {
    fn from(_: std::io::Error) -> Self {
        Self::UNKNOWN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_listed_once_and_has_a_name() {
        for (i, known) in KNOWN.iter().enumerate() {
            assert!(KNOWN[..i].iter().all(|other| other.code != known.code), "{} twice", known.code);
            assert!(known.name.to_str().unwrap().starts_with("CUDA_"));
        }
        // Codes that break a context of a real driver can be injected, though nothing here returns them by
        // itself.
        for code in [4, 214, 220, 221, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721] {
            assert_eq!(Status::from_code(code).map(Status::code), Some(code));
        }
        assert!(KNOWN.is_sorted_by_key(|known| known.code));
        assert_eq!(Status::from_code(2), Some(Status::OUT_OF_MEMORY));
        assert_eq!(Status::from_code(0), None);
        assert_eq!(Status::from_code(12_345), None);
        assert_eq!(Status::OUT_OF_MEMORY.to_string(), "CUDA_ERROR_OUT_OF_MEMORY");
    }
}
