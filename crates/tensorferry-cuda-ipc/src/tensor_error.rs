//! Why a device tensor could not be made, used, sent or received.

use tensorferry_domain::FdStoreError;
use tensorferry_reduce::TransitError;
use tensorferry_storage::StorageError;
use tensorferry_tensor::{DType, LayoutError, TensorError};

use crate::error::CudaError;
use crate::stats::DeviceUsage;

/// Why an operation on a device tensor failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CudaTensorError {
    /// The driver, or what it would be asked, was refused.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The device has no room. What this process kept for later was given back first, and what was on its way back did not
    /// come in time ([`CacheLimits::full_device_timeout`](crate::CacheLimits::full_device_timeout)). What other processes keep for later is theirs to
    /// give: [`empty_cache`](crate::empty_cache) there, or smaller [`CacheLimits`](crate::CacheLimits). What tensors of the strategy
    /// [`Pool`](crate::CudaStrategy::Pool) once had is given back by no process before it ends, other than to that strategy.
    #[error("no room for {len_bytes} bytes: {error}; {usage}")]
    DeviceFull {
        /// What was wanted.
        len_bytes: usize,
        /// Who has it.
        usage: Box<DeviceUsage>,
        /// What the driver says.
        error: CudaError,
    },
    /// A shape, a view or a length was refused.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Shared memory for the tensor's header could not be had.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A tensor of the host could not be made.
    #[error(transparent)]
    Host(#[from] TensorError),
    /// A handle could not be put into a message, or taken out of one.
    #[error(transparent)]
    Transit(#[from] TransitError),
    /// The descriptor of the memory could not be stored with the process that made the domain, or fetched from it
    /// ([`FdStoreError::Gone`]: that process has ended).
    #[error(transparent)]
    FdStore(#[from] FdStoreError),
    /// The elements have another type than was asked for.
    #[error("the tensor holds {found}, not {expected}")]
    DTypeMismatch {
        /// The type that was asked for.
        expected: DType,
        /// The type of the tensor.
        found: DType,
    },
    /// The process that sent the tensor ended before its device had done what the tensor is the result of: it was killed, has
    /// called `_exit`, or was not done 10 s after it had begun to end.
    #[error(
        "the process that sent the tensor ended before its stream had written it: the contents are unknown; synchronize the stream before sending where the sender may be killed"
    )]
    ProducerGone,
    /// The process whose memory it was has ended, and took the memory along.
    #[error(
        "the process that made the tensor's memory has ended, and its memory with it: memory of the strategies legacy and pool goes with its maker; use the strategy vmm, or let the maker wait"
    )]
    MemoryGone,
    /// Memory of another library cannot be shared without a copy, and a copy was not wanted, or would not help.
    #[error("the memory cannot be shared as it is: {why}")]
    NotShareable {
        /// The reason.
        why: &'static str,
    },
    /// A message describes what cannot be.
    #[error("the message is not from an honest sender: {what}")]
    BadMessage {
        /// What is wrong.
        what: &'static str,
    },
}

/// The result of something with device tensors.
pub(crate) type Result<T, E = CudaTensorError> = std::result::Result<T, E>;
