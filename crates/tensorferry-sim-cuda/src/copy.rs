//! Copies and fills, synchronous and on streams.

use std::sync::Arc;

use crate::access::{HostMemory, copying};
use crate::address_space::{self, AddressSpace, Touch};
use crate::driver::Driver;
use crate::stream::Stream;
use crate::{Answer, Status};

/// The rows of a fill.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    pub(crate) pitch_bytes: usize,
    pub(crate) n_rows: usize,
}

impl Rows {
    pub(crate) const ONE: Self = Self { pitch_bytes: 0, n_rows: 1 };
}

impl Driver {
    /// Queues work on device memory.
    fn in_stream(
        &self,
        stream: &Stream,
        work: impl FnOnce(&AddressSpace, Touch) -> Answer + Send + 'static,
    ) -> Answer {
        let space = Arc::clone(&self.space);
        stream.push(move |stream| {
            let answer = work(&address_space::lock(&space), copying(stream.device));
            // The range could be accessed at the call. If it cannot any more, the work fails.
            answer.map_err(|_| Status::LAUNCH_FAILED)
        })
    }

    /// The check at the call: it refuses ranges that are no device memory, or may not be accessed so.
    fn check_range(&self, touch: Touch, address: u64, len_bytes: usize) -> Answer {
        self.space().check(address, len_bytes, touch).map_err(|_| Status::INVALID_VALUE)
    }

    /// Copies from the host. Pageable memory is staged before this returns.
    pub(crate) fn copy_htod(&self, to: u64, from: HostMemory, stream: usize) -> Answer {
        let stream = self.stream(stream)?;
        self.check_range(copying(stream.device).writing(), to, from.len_bytes)?;
        if let Some(in_use) = self.pinned_around(from) {
            return self.in_stream(&stream, move |space, touch| {
                let _in_use = in_use;
                space.copy_from_host(to, from, touch)
            });
        }
        let staged = from.to_vec();
        self.in_stream(&stream, move |space, touch| space.write(to, &staged, touch))
    }

    /// Copies to the host. To pageable memory, this returns when the copy is done.
    pub(crate) fn copy_dtoh(&self, to: HostMemory, from: u64, stream: usize) -> Answer {
        let stream = self.stream(stream)?;
        self.check_range(copying(stream.device), from, to.len_bytes)?;
        let in_use = self.pinned_around(to);
        let is_pinned = in_use.is_some();
        self.in_stream(&stream, move |space, touch| {
            let _in_use = in_use;
            space.copy_to_host(to, from, touch)
        })?;
        if is_pinned { Ok(()) } else { stream.synchronize() }
    }

    /// Copies on the device, or between devices.
    pub(crate) fn copy_dtod(&self, to: u64, from: u64, len_bytes: usize, stream: usize) -> Answer {
        let stream = self.stream(stream)?;
        self.check_range(copying(stream.device).writing(), to, len_bytes)?;
        self.check_range(copying(stream.device), from, len_bytes)?;
        self.in_stream(&stream, move |space, touch| space.copy(to, from, len_bytes, touch))
    }

    /// Fills rows of `n` elements with a pattern of one element.
    pub(crate) fn fill(&self, to: u64, rows: Rows, pattern: &[u8], n: usize, stream: usize) -> Answer {
        let stream = self.stream(stream)?;
        let row_bytes = pattern.len().checked_mul(n).ok_or(Status::INVALID_VALUE)?;
        if !to.is_multiple_of(pattern.len() as u64) || (rows.n_rows > 1 && rows.pitch_bytes < row_bytes) {
            return Err(Status::INVALID_VALUE);
        }
        if row_bytes == 0 || rows.n_rows == 0 {
            return Ok(());
        }
        let skipped = rows.pitch_bytes.checked_mul(rows.n_rows - 1).ok_or(Status::INVALID_VALUE)?;
        let span = skipped.checked_add(row_bytes).ok_or(Status::INVALID_VALUE)?;
        self.check_range(copying(stream.device).writing(), to, span)?;
        let pattern = pattern.to_vec();
        self.in_stream(&stream, move |space, touch| {
            (0..rows.n_rows)
                .try_for_each(|row| space.fill(to + (row * rows.pitch_bytes) as u64, &pattern, n, touch))
        })
    }

    /// Runs `queue`, which queues work on the null stream, and waits for that work.
    pub(crate) fn at_once(&self, queue: impl FnOnce() -> Answer) -> Answer {
        queue()?;
        self.stream(0)?.synchronize()
    }

    /// `cuMemcpyHtoD`. When it returns, pageable memory may be only staged; page-locked memory has been read.
    pub(crate) fn copy_htod_at_once(&self, to: u64, from: HostMemory) -> Answer {
        if self.pinned_around(from).is_some() {
            return self.at_once(|| self.copy_htod(to, from, 0));
        }
        if self.settings.staged_copies {
            self.stream(0)?.synchronize()?;
        }
        self.on_device(|| self.copy_htod(to, from, 0))
    }

    /// The device-only work of a function without `Async`. With `staged_copies`, this does not wait for it.
    pub(crate) fn on_device(&self, queue: impl FnOnce() -> Answer) -> Answer {
        if self.settings.staged_copies { queue() } else { self.at_once(queue) }
    }

    /// Copies bytes to the device and waits.
    #[cfg(test)]
    pub(crate) fn write(&self, to: u64, bytes: &[u8]) -> Answer {
        let host = HostMemory::from_c(bytes.as_ptr().expose_provenance(), bytes.len())?;
        self.at_once(|| self.copy_htod(to, host, 0))
    }

    /// Copies bytes from the device and waits.
    #[cfg(test)]
    pub(crate) fn read(&self, from: u64, len_bytes: usize) -> Answer<Vec<u8>> {
        let mut bytes = vec![0; len_bytes];
        let host = HostMemory::from_c(bytes.as_mut_ptr().expose_provenance(), len_bytes)?;
        self.at_once(|| self.copy_dtoh(host, from, 0))?;
        Ok(bytes)
    }
}
