//! Why a device tensor could not be made, used, sent or received.

use tensorferry_domain::FdStoreError;
use tensorferry_reduce::TransitError;
use tensorferry_storage::StorageError;
use tensorferry_tensor::{DType, LayoutError, TensorError};

use crate::error::CudaError;
use crate::stats::DeviceUsage;

/// Why an operation on a device tensor failed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CudaTensorError {
    /// The driver returned an error, or this crate refused the call before the driver was asked.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The device is full. Before this error, this process gave back what it caches, and waited for memory
    /// that was on its way back
    /// ([`CacheLimits::full_device_timeout`](crate::CacheLimits::full_device_timeout)).
    ///
    /// Only another process can give back what it caches: call [`empty_cache`](crate::empty_cache) there, or
    /// set smaller [`CacheLimits`](crate::CacheLimits). Until it ends, no process gives back memory that
    /// tensors of the strategy [`Pool`](crate::CudaStrategy::Pool) have used, except to that strategy.
    #[error("no room for {len_bytes} bytes: {error}; {usage}")]
    DeviceFull {
        /// The length that was asked for.
        len_bytes: usize,
        /// How much memory this process has, and for what.
        usage: Box<DeviceUsage>,
        /// The driver's error.
        error: CudaError,
    },
    /// A shape, a view or a length was refused.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// There was no shared memory for the tensor's control block.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A tensor of the host could not be made.
    #[error(transparent)]
    Host(#[from] TensorError),
    /// A handle could not be put into a message, or taken out of one.
    #[error(transparent)]
    Transit(#[from] TransitError),
    /// The descriptor of the memory could not be stored in the process that made the domain, or fetched from
    /// it. [`FdStoreError::Gone`] means that this process has ended.
    #[error(transparent)]
    FdStore(#[from] FdStoreError),
    /// The elements have another type than the one that was asked for.
    #[error("the tensor holds {found}, not {expected}")]
    DTypeMismatch {
        /// The type that was asked for.
        expected: DType,
        /// The type of the tensor.
        found: DType,
    },
    /// The process that sent the tensor ended before its device had written the tensor: it was killed, it
    /// called `_exit`, or the device was not done 10 s after the process began to end.
    #[error(
        "the process that sent the tensor ended before its stream had written it: the contents are unknown; synchronize the stream before sending where the sender may be killed"
    )]
    ProducerGone,
    /// The process that made the memory has ended, and the memory with it.
    #[error(
        "the process that made the tensor's memory has ended, and its memory with it: memory of the strategies legacy and pool goes with its maker; use the strategy vmm, or let the maker wait"
    )]
    MemoryGone,
    /// Memory of another library cannot be shared without a copy, and a copy was not wanted or would not
    /// help.
    #[error("the memory cannot be shared as it is: {why}")]
    NotShareable {
        /// The reason.
        why: &'static str,
    },
    /// The contents of a message contradict each other.
    #[error("the message is not from an honest sender: {what}")]
    BadMessage {
        /// The contradiction.
        what: &'static str,
    },
}

tensorferry_storage::debug_as_display!(CudaTensorError);

/// The result of an operation on device tensors.
pub(crate) type Result<T, E = CudaTensorError> = std::result::Result<T, E>;
