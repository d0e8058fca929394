//! Allocation on a full device.

use std::time::Instant;

use super::Registry;
use super::tables::Tables;
use crate::context::PrimaryContext;
use crate::device::Uuid;
use crate::pool::{Dying, Pool};
use crate::refused;
use crate::stats::DeviceUsage;
use crate::tensor_error::{CudaTensorError, Result};
use crate::tick::TICK;

fn is_full(error: &CudaTensorError) -> bool {
    matches!(error, CudaTensorError::Cuda(error) if error.is_out_of_memory())
}

impl Registry {
    /// Runs `make`, which allocates `len_bytes` of device memory. If the device is full, gives back what this
    /// process caches, and runs `make` again as long as more memory of this process is on its way back.
    ///
    /// # Errors
    /// [`CudaTensorError::DeviceFull`]; errors of `make`.
    ///
    /// # Blocking
    /// For at most [`CacheLimits::full_device_timeout`](crate::CacheLimits::full_device_timeout), if the
    /// device is full.
    pub(crate) fn make_room_for<T>(
        &'static self,
        context: &PrimaryContext,
        len_bytes: usize,
        make: impl Fn() -> Result<T>,
    ) -> Result<T> {
        let answer = make();
        if !answer.as_ref().is_err_and(is_full) {
            return answer;
        }
        let (uuid, begin) = (context.device().uuid()?, Instant::now());
        loop {
            let is_coming = self.give_back(uuid);
            let error = match make() {
                Err(CudaTensorError::Cuda(error)) if error.is_out_of_memory() => error,
                answer => return answer,
            };
            let tables = self.tables();
            if !is_coming || begin.elapsed() >= tables.limits.full_device_timeout {
                let usage = Box::new(tables.usage(context, uuid));
                return Err(CudaTensorError::DeviceFull { len_bytes, usage, error });
            }
            drop(self.looked.wait_timeout(tables, TICK));
        }
    }

    /// Gives back what this process caches. Returns whether more memory of this device is on its way back.
    fn give_back(&'static self, uuid: Uuid) -> bool {
        let (mut garbage, mut tables) = self.clean_up();
        tables.settle(&mut garbage);
        tables.trim(0);
        garbage.dying = tables.dying.extract_if(.., |dying| !dying.is_busy()).collect();
        tables.drop_unused(0, &mut garbage);
        if self.throw_away(tables, garbage) {
            self.stir();
        }
        self.tables().is_coming(uuid)
    }
}

impl Tables {
    fn is_coming(&self, uuid: Uuid) -> bool {
        let mut leaving = self.leaving.iter().filter_map(|key| self.storages.get(key));
        // When a slab is given up, other processes unmap it, and then the descriptor store closes its
        // descriptor.
        self.gave_up_at.is_some_and(|at| at.elapsed() < self.limits.full_device_timeout)
            || self.n_freeing > 0
            || refused::is_any()
            || self.dying.iter().map(Dying::slab).any(|slab| slab.uuid() == uuid && !self.is_leaked(slab))
            || leaving.any(|storage| storage.slab().uuid() == uuid)
    }

    fn usage(&self, context: &PrimaryContext, uuid: Uuid) -> DeviceUsage {
        let mut usage = DeviceUsage::default();
        for storage in self.storages.values().filter(|storage| storage.slab().uuid() == uuid) {
            let (slab, is_held) = (storage.slab(), storage.uses().is_held());
            let bytes = match (slab.is_own(), is_held) {
                (false, _) => continue,
                (true, _) if slab.is_lent() => &mut usage.lent_bytes,
                (true, true) => &mut usage.live_bytes,
                (true, false) => &mut usage.leaving_bytes,
            };
            *bytes += storage.len_bytes();
        }
        let pools = self.pools.iter().filter(|((_, of, _), _)| *of == context.handle());
        usage.free_bytes = pools.map(|(_, pool)| Pool::free_bytes(pool)).sum();
        let dying = self.dying.iter().map(Dying::slab).filter(|slab| slab.uuid() == uuid);
        usage.dying_bytes = dying.filter(|slab| !self.is_leaked(slab)).map(|slab| slab.len_bytes()).sum();
        // A slab that is still in a pool counts there, by its parts.
        let is_in_pool = |slab| self.pools.values().any(|pool| pool.has(slab));
        let leaked = self.leaked.iter().filter(|slab| slab.is_own() && slab.uuid() == uuid);
        usage.leaked_bytes = leaked.filter(|slab| !is_in_pool(slab)).map(|slab| slab.len_bytes()).sum();
        let received = self.slabs.values().filter(|slab| slab.is_mapped() && slab.uuid() == uuid);
        usage.received_bytes = received.map(|slab| slab.len_bytes()).sum();
        let device = context.memory_info().unwrap_or_default();
        (usage.device_free_bytes, usage.device_bytes) = (device.free_bytes, device.total_bytes);
        usage
    }
}
