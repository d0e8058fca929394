//! What other libraries have on a device: streams by their handles, and memory by its address.
//!
//! # Safety
//! Nobody can check what a handle or an address stands for, and for how long.
#![expect(unsafe_code, reason = "what a number of another library stands for is its user's word")]

use tensorferry_tensor::Element;

use crate::context::PrimaryContext;
use crate::stream::{Lender, Stream};
use crate::tensor::CudaTensor;
use crate::tensor_error::Result;

impl Stream {
    /// A stream of another library, by the driver's handle (`CUstream`).
    ///
    /// For streams of cudarc there is a safe way, with the feature `cudarc`; for the legacy default stream
    /// there is [`Stream::null`].
    ///
    /// # Safety
    /// `handle` is a stream of this context, and none that stands for another one in each thread
    /// (`CU_STREAM_PER_THREAD`). It is not destroyed before this process ends: tensors that were used on it
    /// are marked there when they are sent or dropped.
    #[must_use]
    pub unsafe fn from_raw(context: &PrimaryContext, handle: usize) -> Self {
        Self::lent(context.clone(), handle, Lender::nobody())
    }
}

impl<T: Element> CudaTensor<T> {
    /// Overwrites all elements with those that lie at `address`, in row-major order.
    ///
    /// # Errors
    /// As [`CudaTensor::copy_from`].
    ///
    /// # Blocking
    /// Until all work that was queued on the stream is done, and the copy. So whoever has the memory may let
    /// go of it when this returns, whatever it returns.
    ///
    /// # Safety
    /// Until this returns, as many elements as the tensor has lie at `address`, in memory that the stream's
    /// device can read.
    pub unsafe fn copy_from_address(&self, stream: &Stream, address: u64) -> Result<()> {
        self.check_contiguous()?;
        self.on(stream)?.driver_copy_from_lent(address)
    }
}
