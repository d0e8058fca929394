//! Errors of the driver, and of what this crate checks before it calls the driver.

use crate::Uuid;

/// Why a CUDA operation failed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// No driver could be loaded.
    #[error("no CUDA driver: {}; is there a GPU, and its driver installed?", tried.join("; "))]
    DriverNotFound {
        /// Each library that was tried, with the loader's reason.
        tried: Vec<String>,
    },
    /// The driver lacks a function.
    #[error("the CUDA driver has no function {symbol}: it is too old, or no driver")]
    MissingSymbol {
        /// The name of the function.
        symbol: &'static str,
    },
    /// The driver returned an error.
    #[error("{call} failed: {name} ({code}): {text}")]
    Driver {
        /// The function that failed.
        call: &'static str,
        /// The number of the error. A driver may return numbers that this library does not know.
        code: u32,
        /// The driver's name for the error.
        name: String,
        /// The driver's text for the error.
        text: String,
    },
    /// This process was forked from one that had initialised the driver, which does not survive a fork. Every
    /// call of the driver returns this.
    #[error(
        "process {pid} was forked after process {initialised_by} had initialised CUDA: start processes with spawn instead"
    )]
    ForkedAfterInit {
        /// This process.
        pid: u32,
        /// The process that initialised the driver.
        initialised_by: u32,
    },
    /// The device exists but is hidden from this process, or is in another machine.
    #[error("this process does not see device {uuid}: look at CUDA_VISIBLE_DEVICES")]
    DeviceNotVisible {
        /// The device.
        uuid: Uuid,
    },
    /// Imported memory lies on another device than the caller said.
    #[error("the memory lies on device {found}, not on device {expected}")]
    WrongDevice {
        /// The device that the caller said.
        expected: Uuid,
        /// The device on which the memory lies.
        found: Uuid,
    },
    /// The memory was used after it had been released.
    #[error("the memory was released")]
    Released,
    /// A stream is being captured into a graph. The work that it is given does not run now, so nothing can be
    /// waited for.
    #[error("the stream is capturing a graph: use the tensor outside of the capture")]
    Capturing,
    /// A stream waited for the device of another process, which ended before its device was done, and went on
    /// without. It is told once, by the first call that waits for the stream after that.
    #[error(
        "a process for whose device the stream waited ended before that was done: what the stream computed from its tensors is unknown"
    )]
    WaitCutShort,
    /// A device cannot reach the memory of another. [`Device::can_access`](crate::Device::can_access) tells
    /// this beforehand, for the device of [`CudaTensor::device_uuid`](crate::CudaTensor::device_uuid). A
    /// receiver of such a tensor that sees its device
    /// ([`Driver::device_by_uuid`](crate::Driver::device_by_uuid)) can use it on a stream of that device. Or
    /// it can make a [`CudaTensor::to_staged`](crate::CudaTensor::to_staged) copy there, which can be used on
    /// every device.
    #[error(
        "device {from} cannot reach the memory of device {to}: copy the tensor on a device that can, or send it by way of the host (CudaTensor::to_staged)"
    )]
    NoPeerAccess {
        /// The device that needs the memory.
        from: Uuid,
        /// The device on which the memory lies.
        to: Uuid,
    },
    /// The per-thread default stream is a different stream in each thread, under one handle. It could not be
    /// told later which stream was meant.
    #[error("the per-thread default stream cannot be used here: create a stream and pass that")]
    PerThreadStream,
    /// Two drivers were loaded into this process.
    #[error(
        "cudarc has loaded another CUDA driver than this library: is a stub of the toolkit first in LD_LIBRARY_PATH?"
    )]
    ForeignDriver,
    /// The stream was not made by cudarc.
    #[error("the stream was not made by cudarc: make it from an Arc<CudaStream>")]
    NotOfCudarc,
    /// cudarc returned an error.
    #[error("cudarc: {text}")]
    Cudarc {
        /// The text of cudarc's error.
        text: String,
    },
    /// The length overflows when it is rounded up to the granularity, so no device has that much memory.
    #[error("{len_bytes} bytes are more than any device has")]
    TooLarge {
        /// The length that was asked for.
        len_bytes: usize,
    },
    /// The length is zero or no multiple of the granularity, so it cannot be allocated or mapped.
    #[error("{len_bytes} bytes are no multiple of the device's granularity of {granularity_bytes} bytes")]
    NotGranular {
        /// The length that was asked for.
        len_bytes: usize,
        /// The granularity of the device.
        granularity_bytes: usize,
    },
    /// The range does not lie inside the mapping.
    #[error("{len_bytes} bytes from {offset_bytes} do not lie in a mapping of {mapping_len_bytes} bytes")]
    OutOfRange {
        /// Where the range begins.
        offset_bytes: usize,
        /// The length of the range.
        len_bytes: usize,
        /// The length of the mapping.
        mapping_len_bytes: usize,
    },
}

tensorferry_storage::debug_as_display!(CudaError);

/// The result of a CUDA operation.
pub type Result<T> = std::result::Result<T, CudaError>;

impl CudaError {
    /// The driver's error number, if the error is [`CudaError::Driver`].
    #[must_use]
    pub fn code(&self) -> Option<u32> {
        match self {
            Self::Driver { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether there is no usable CUDA here, in which case a program may choose to work without it. True for:
    ///
    /// - no driver ([`CudaError::DriverNotFound`]);
    /// - a driver without a device that this process may see (`CUDA_ERROR_NO_DEVICE`);
    /// - the toolkit's stub in place of a driver (`CUDA_ERROR_STUB_LIBRARY`).
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

    /// Whether the context is broken for good: every later call in this process returns the same error. The
    /// most common reasons are an illegal address, a device-side assert and a launch that took too long.
    #[must_use]
    pub fn is_sticky(&self) -> bool {
        self.code().is_some_and(|code| crate::raw::STICKY.contains(&code))
    }

    /// Whether this process can never use the context again: it is broken or was destroyed, or the process
    /// was forked.
    pub(crate) fn is_for_good(&self) -> bool {
        self.is_sticky()
            || self.code().is_some_and(|code| crate::raw::DESTROYED.contains(&code))
            || matches!(self, Self::ForkedAfterInit { .. })
    }

    /// Whether the driver refused the call, and did nothing, because a stream captures.
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
