//! What can go wrong between a program and its driver.

use crate::Uuid;

/// Why something with CUDA could not be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// No driver could be loaded.
    #[error("no CUDA driver: {}; is there a GPU, and its driver installed?", tried.join("; "))]
    DriverNotFound {
        /// What was tried, each with the loader's reason.
        tried: Vec<String>,
    },
    /// The driver lacks a function.
    #[error("the CUDA driver has no function {symbol}: it is too old, or no driver")]
    MissingSymbol {
        /// The name of the function.
        symbol: &'static str,
    },
    /// The driver refused.
    #[error("{call} failed: {name} ({code}): {text}")]
    Driver {
        /// The function.
        call: &'static str,
        /// The number of the error; a driver may know more than this library.
        code: u32,
        /// The driver's name for it.
        name: String,
        /// The driver's text for it.
        text: String,
    },
    /// This process was forked from one that had initialised the driver, which does not survive that.
    #[error(
        "process {pid} was forked after process {initialised_by} had initialised CUDA: start processes with spawn instead"
    )]
    ForkedAfterInit {
        /// This process.
        pid: u32,
        /// The one that called the driver first.
        initialised_by: u32,
    },
    /// The device exists but is hidden from this process, or is in another machine.
    #[error("this process does not see device {uuid}: look at CUDA_VISIBLE_DEVICES")]
    DeviceNotVisible {
        /// The device.
        uuid: Uuid,
    },
    /// Memory came from another device than was said.
    #[error("the memory lies on device {found}, not on device {expected}")]
    WrongDevice {
        /// What was said.
        expected: Uuid,
        /// What is.
        found: Uuid,
    },
    /// Something was used after it had been released.
    #[error("the memory was released")]
    Released,
    /// A stream is being captured into a graph: what it is given is not done now, so nothing can be waited for.
    #[error("the stream is capturing a graph: use the tensor outside of the capture")]
    Capturing,
    /// A device cannot reach the memory of another. [`Device::can_access`](crate::Device::can_access) tells before, with the
    /// device of [`CudaTensor::device_uuid`](crate::CudaTensor::device_uuid). Who has received such a tensor and sees its
    /// device ([`Driver::device_by_uuid`](crate::Driver::device_by_uuid)) uses it on a stream of that device, or makes a
    /// [`CudaTensor::to_staged`](crate::CudaTensor::to_staged) one there, which can be used on every device.
    #[error(
        "device {from} cannot reach the memory of device {to}: copy the tensor on a device that can, or send it by way of the host (CudaTensor::to_staged)"
    )]
    NoPeerAccess {
        /// The one that was to use the memory.
        from: Uuid,
        /// Where the memory lies.
        to: Uuid,
    },
    /// The stream of each thread is another one under the same handle, so it cannot be said later which was meant.
    #[error("the per-thread default stream cannot be shared with: use a stream of its own")]
    PerThreadStream,
    /// Two drivers were loaded into this process.
    #[error(
        "cudarc has loaded another CUDA driver than this library: is a stub of the toolkit first in LD_LIBRARY_PATH?"
    )]
    ForeignDriver,
    /// The stream was not made by cudarc.
    #[error("the stream was not made by cudarc: make it from an Arc<CudaStream>")]
    NotOfCudarc,
    /// cudarc refused.
    #[error("cudarc: {text}")]
    Cudarc {
        /// Its words.
        text: String,
    },
    /// A length that no device has: it overflows when it is rounded up to what memory is made in.
    #[error("{len_bytes} bytes are more than any device has")]
    TooLarge {
        /// What was asked for.
        len_bytes: usize,
    },
    /// A length that cannot be allocated or mapped.
    #[error("{len_bytes} bytes are no multiple of the device's granularity of {granularity_bytes} bytes")]
    NotGranular {
        /// What was asked for.
        len_bytes: usize,
        /// What it has to be a multiple of.
        granularity_bytes: usize,
    },
    /// A range that does not lie inside of a mapping.
    #[error("{len_bytes} bytes from {offset_bytes} do not lie in a mapping of {mapping_len_bytes} bytes")]
    OutOfRange {
        /// Where it begins.
        offset_bytes: usize,
        /// How long it is.
        len_bytes: usize,
        /// How long the mapping is.
        mapping_len_bytes: usize,
    },
}

/// The result of something with CUDA.
pub type Result<T> = std::result::Result<T, CudaError>;

impl CudaError {
    /// The driver's number, when it was the driver that refused.
    #[must_use]
    pub fn code(&self) -> Option<u32> {
        match self {
            Self::Driver { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether there is no CUDA here to be used, which a program may take as a reason to do without: no driver
    /// ([`CudaError::DriverNotFound`]), a driver without a device or with none that this process may see
    /// (`CUDA_ERROR_NO_DEVICE`), or the toolkit's stub in its place (`CUDA_ERROR_STUB_LIBRARY`).
    #[must_use]
    pub fn is_no_device(&self) -> bool {
        matches!(self, Self::DriverNotFound { .. })
            || self.code().is_some_and(|code| crate::raw::NO_DEVICE.contains(&code))
    }

    /// Whether the device has no memory left (`CUDA_ERROR_OUT_OF_MEMORY`).
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.code() == Some(crate::raw::OUT_OF_MEMORY)
    }

    /// Whether the context is broken for good: every later call in this process answers the same. An illegal address, a
    /// device-side assert and a launch that took too long are the commonest reasons.
    #[must_use]
    pub fn is_sticky(&self) -> bool {
        self.code().is_some_and(|code| crate::raw::STICKY.contains(&code))
    }

    /// Whether the driver will never answer otherwise in this process: the context is broken, or was destroyed, or the process
    /// was forked.
    pub(crate) fn is_for_good(&self) -> bool {
        self.is_sticky()
            || self.code().is_some_and(|code| crate::raw::DESTROYED.contains(&code))
            || matches!(self, Self::ForkedAfterInit { .. })
    }

    /// Whether it was refused because a stream captures, and not done.
    pub(crate) fn is_about_capture(&self) -> bool {
        self.code().is_some_and(|code| crate::raw::STREAM_CAPTURE.contains(&code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_where_and_what_to_do() {
        let (name, text) = ("CUDA_ERROR_OUT_OF_MEMORY".to_owned(), "out of memory".to_owned());
        let error = CudaError::Driver { call: "cuMemCreate", code: 2, name, text };
        assert_eq!(error.to_string(), "cuMemCreate failed: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory");
        assert!(error.is_out_of_memory() && !error.is_sticky());
        let forked = CudaError::ForkedAfterInit { pid: 2, initialised_by: 1 };
        assert!(forked.to_string().ends_with("start processes with spawn instead"));
        assert_eq!(forked.code(), None);
        let error = CudaError::TooLarge { len_bytes: 7 };
        assert_eq!(error.to_string(), "7 bytes are more than any device has");
    }

    #[test]
    fn a_context_that_broke_is_told_from_what_may_be_asked_again() {
        let refused =
            |code| CudaError::Driver { call: "cuEventQuery", code, name: String::new(), text: String::new() };
        for code in [214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721] {
            assert!(refused(code).is_sticky(), "{code}");
        }
        // Out of memory, no JIT compiler, not ready, too many resources, too large a launch, not supported.
        for code in [2, 221, 600, 701, 720, 801] {
            assert!(!refused(code).is_sticky() && !refused(code).is_for_good(), "{code}");
        }
    }

    #[test]
    fn no_device_is_no_driver_or_one_that_drives_nothing() {
        let refused =
            |code| CudaError::Driver { call: "cuInit", code, name: String::new(), text: String::new() };
        assert!(CudaError::DriverNotFound { tried: Vec::new() }.is_no_device());
        assert!(refused(100).is_no_device() && refused(34).is_no_device());
        // Not initialised, an invalid device, a library that is no driver: all of these are faults.
        assert!(!refused(3).is_no_device() && !refused(101).is_no_device());
        assert!(!CudaError::MissingSymbol { symbol: "cuInit" }.is_no_device());
    }
}
