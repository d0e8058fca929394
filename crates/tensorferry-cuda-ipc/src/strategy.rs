//! The strategies by which device memory is shared, and which of them is used.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::context::PrimaryContext;
use crate::error::{CudaError, Result};

/// How device memory is shared with other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CudaStrategy {
    /// Virtual memory management: memory of `cuMemCreate`, shared as a descriptor. It lives as long as any
    /// process has it, so its maker may end at any time. The default where the device supports it.
    Vmm,
    /// Memory of `cuMemAlloc`, shared by `cuIpcGetMemHandle`, as PyTorch does it. It ends with the process
    /// that made it.
    Legacy,
    /// Memory of a pool that can be exported. It ends with the process that made it, and not before: freed
    /// memory stays in the pool for later allocations of this process from it ("IPC memory pools" in the CUDA
    /// programming guide).
    Pool,
    /// A copy in shared memory of the host, from which each process makes a copy on its device. It shares no
    /// device memory, so it is used only on request
    /// ([`CudaTensor::to_staged`](crate::CudaTensor::to_staged)).
    Staged,
}

/// A string that names no strategy.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown strategy for device memory {name:?}: known are \"vmm\", \"legacy\" and \"pool\"")]
pub struct ParseCudaStrategyError {
    /// The string.
    pub name: String,
}

tensorferry_storage::debug_as_display!(ParseCudaStrategyError);

/// The code of the strategy plus one; 0 if none was set.
static CURRENT: AtomicU8 = AtomicU8::new(0);

const ALL: [CudaStrategy; 3] = [CudaStrategy::Vmm, CudaStrategy::Legacy, CudaStrategy::Pool];

/// The strategies that work on the device of a context, the preferred one first.
///
/// Where the driver has no attribute that tells, a strategy is tried, once for each context. A strategy whose
/// trial fails for a passing reason, for example because the device is full, is left out and tried again the
/// next time.
///
/// # Errors
/// The driver's error when an attribute cannot be read, or when the context is broken or was destroyed.
pub fn get_all_cuda_strategies(context: &PrimaryContext) -> Result<Vec<CudaStrategy>> {
    let mut all = Vec::new();
    for strategy in ALL {
        if strategy.works_on(context)? == Works::Yes {
            all.push(strategy);
        }
    }
    Ok(all)
}

/// The strategy that was set for this process; `None` if each device uses the first one that works on it.
#[must_use]
pub fn get_cuda_strategy() -> Option<CudaStrategy> {
    CURRENT.load(Ordering::Relaxed).checked_sub(1).and_then(|code| CudaStrategy::from_code(code.into()))
}

/// Sets the strategy of the tensors that this process makes from now on. `None` means the first strategy that
/// works on the tensor's device.
///
/// The setting does not affect tensors that this process receives. If the device does not support the
/// strategy, making a tensor is an error; with [`CudaStrategy::Staged`] it always is. A process that is
/// started by spawn or forkserver begins with `None`, and makes its own setting. `CudaTensor::share` uses the
/// setting only where it copies.
pub fn set_cuda_strategy(strategy: impl Into<Option<CudaStrategy>>) {
    let code = strategy.into().map_or(0, |strategy| strategy.code() + 1);
    let code = u8::try_from(code).unwrap_or(0);
    CURRENT.store(code, Ordering::Relaxed);
}

impl CudaStrategy {
    /// Whether memory of this strategy lives on without the process that made it.
    #[must_use]
    pub const fn outlives_maker(self) -> bool {
        matches!(self, Self::Vmm | Self::Staged)
    }

    /// The strategy's number in shared memory.
    pub(crate) const fn code(self) -> u64 {
        match self {
            Self::Vmm => 0,
            Self::Legacy => 1,
            Self::Pool => 2,
            Self::Staged => 3,
        }
    }

    pub(crate) fn from_code(code: u64) -> Option<Self> {
        ALL.into_iter().chain([Self::Staged]).find(|strategy| strategy.code() == code)
    }

    /// The first strategy that works in a context, and whether that answer is final.
    pub(crate) fn preferred(context: &PrimaryContext) -> Result<(Self, bool)> {
        let mut is_certain = true;
        for strategy in ALL {
            match strategy.works_on(context)? {
                Works::Yes => return Ok((strategy, is_certain)),
                Works::No => {}
                Works::NotNow => is_certain = false,
            }
        }
        // No strategy works. The driver's error for this one tells what is missing.
        Ok((Self::Vmm, is_certain))
    }

    fn works_on(self, context: &PrimaryContext) -> Result<Works> {
        let device = context.device();
        let known = |is_there| if is_there { Works::Yes } else { Works::No };
        match self {
            Self::Vmm => device.has_shareable_memory().map(known),
            Self::Pool => device.has_shareable_pools().map(known),
            Self::Staged => Ok(Works::No),
            // No attribute tells.
            Self::Legacy => legacy_works_on(context),
        }
    }
}

/// Whether a strategy works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Works {
    Yes,
    No,
    /// It failed for a reason that may pass.
    NotNow,
}

/// By context: whether legacy handles work there.
static LEGACY: Mutex<Vec<(usize, Works)>> = Mutex::new(Vec::new());

fn legacy_works_on(context: &PrimaryContext) -> Result<Works> {
    let lock = || LEGACY.lock().unwrap_or_else(PoisonError::into_inner);
    let known = lock().iter().find(|(handle, _)| *handle == context.handle()).map(|(_, works)| *works);
    if let Some(works) = known {
        return Ok(works);
    }
    let works = match legacy_handle(context) {
        Ok(()) => Works::Yes,
        Err(CudaError::MissingSymbol { .. }) => Works::No,
        Err(error) if error.code() == Some(crate::raw::NOT_SUPPORTED) => Works::No,
        Err(error) if error.is_for_good() => return Err(error),
        Err(_) => return Ok(Works::NotNow),
    };
    lock().push((context.handle(), works));
    Ok(works)
}

fn legacy_handle(context: &PrimaryContext) -> Result<()> {
    let allocation = crate::allocation::Allocation::create(context, crate::pool::ALIGN_BYTES)?;
    let handle = allocation.legacy_handle();
    // Freeing it waits for all streams, and so for whatever they wait for.
    crate::refused::keep(allocation);
    handle.map(|_| ())
}

impl fmt::Display for CudaStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Vmm => "vmm",
            Self::Legacy => "legacy",
            Self::Pool => "pool",
            Self::Staged => "staged",
        })
    }
}

impl FromStr for CudaStrategy {
    type Err = ParseCudaStrategyError;

    fn from_str(name: &str) -> std::result::Result<Self, ParseCudaStrategyError> {
        let known = ALL.into_iter().find(|strategy| strategy.to_string() == name);
        known.ok_or_else(|| ParseCudaStrategyError { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_come_back() {
        for strategy in ALL {
            assert_eq!(strategy.to_string().parse(), Ok(strategy));
            assert_eq!(CudaStrategy::from_code(strategy.code()), Some(strategy));
        }
        assert_eq!(format!("{:>8}|{:<5}|", CudaStrategy::Legacy, CudaStrategy::Vmm), "  legacy|vmm  |");
        assert_eq!(CudaStrategy::from_code(3), Some(CudaStrategy::Staged));
        assert_eq!(CudaStrategy::from_code(4), None);
        assert!("staged".parse::<CudaStrategy>().is_err(), "nothing is made by it");
        assert!("cuda".parse::<CudaStrategy>().unwrap_err().to_string().contains("\"legacy\""));
        assert_eq!(get_cuda_strategy(), None);
        set_cuda_strategy(CudaStrategy::Pool);
        assert_eq!(get_cuda_strategy(), Some(CudaStrategy::Pool));
        set_cuda_strategy(CudaStrategy::Staged);
        assert_eq!(get_cuda_strategy(), Some(CudaStrategy::Staged), "which making a tensor then refuses");
        set_cuda_strategy(None);
        assert_eq!(get_cuda_strategy(), None);
    }
}
