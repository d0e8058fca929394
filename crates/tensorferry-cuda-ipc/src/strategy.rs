//! The ways in which device memory is shared, and which of them is used.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::context::PrimaryContext;
use crate::error::{CudaError, Result};

/// How device memory gets to other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CudaStrategy {
    /// Virtual memory management: memory of `cuMemCreate`, as a descriptor. It lives as long as anybody has it, so its maker
    /// may end at any time. The default where the device has it.
    Vmm,
    /// `cuIpcGetMemHandle`, as PyTorch does it: memory of `cuMemAlloc`. It goes with the process that made it.
    Legacy,
    /// Memory of a pool that can be exported. It goes with the process that made it, and not before: what is freed stays in the pool,
    /// for what this process allocates from it later ("IPC memory pools" in the CUDA programming guide).
    Pool,
    /// A copy in shared memory of the host, from which each process makes one on its device. Only where it is asked for
    /// ([`CudaTensor::to_staged`](crate::CudaTensor::to_staged)): it is no shared memory of a device.
    Staged,
}

/// A name that is none of a strategy's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown strategy for device memory {name:?}: known are \"vmm\", \"legacy\" and \"pool\"")]
pub struct ParseCudaStrategyError {
    /// What was given.
    pub name: String,
}

/// One more than the code; 0 when none was set.
static CURRENT: AtomicU8 = AtomicU8::new(0);

const ALL: [CudaStrategy; 3] = [CudaStrategy::Vmm, CudaStrategy::Legacy, CudaStrategy::Pool];

/// The strategies that work on the device of a context, the preferred one first. Found out by trying, once for each context, where
/// the driver has no attribute for it: what fails just then, because the device is full for example, is not among them, and is tried
/// again the next time.
///
/// # Errors
/// What the driver says when it is asked for attributes, and when the context is broken or gone.
pub fn get_all_cuda_strategies(context: &PrimaryContext) -> Result<Vec<CudaStrategy>> {
    let mut all = Vec::new();
    for strategy in ALL {
        if strategy.works_on(context)? == Works::Yes {
            all.push(strategy);
        }
    }
    Ok(all)
}

/// The strategy that was set for this process; `None` when each device has the first one that works on it.
#[must_use]
pub fn get_cuda_strategy() -> Option<CudaStrategy> {
    CURRENT.load(Ordering::Relaxed).checked_sub(1).and_then(|code| CudaStrategy::from_code(code.into()))
}

/// Sets the strategy of the tensors that this process makes from now on; `None` for the first one that works on their
/// device. What others made is received whatever this says. On a device that does not support the strategy, making a
/// tensor is an error; by [`CudaStrategy::Staged`] it always is. Processes that are started begin with `None`, and each sets
/// its own. `CudaTensor::share` asks it only where it copies.
pub fn set_cuda_strategy(strategy: impl Into<Option<CudaStrategy>>) {
    let code = strategy.into().map_or(0, |strategy| strategy.code() + 1);
    let code = u8::try_from(code).unwrap_or(0);
    CURRENT.store(code, Ordering::Relaxed);
}

impl CudaStrategy {
    /// Whether memory that is shared like this lives on without the process that made it.
    #[must_use]
    pub const fn outlives_maker(self) -> bool {
        matches!(self, Self::Vmm | Self::Staged)
    }

    /// The number in shared memory.
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

    /// The first one that works in a context, and whether that will be so for good.
    pub(crate) fn preferred(context: &PrimaryContext) -> Result<(Self, bool)> {
        let mut is_certain = true;
        for strategy in ALL {
            match strategy.works_on(context)? {
                Works::Yes => return Ok((strategy, is_certain)),
                Works::No => {}
                Works::NotNow => is_certain = false,
            }
        }
        // Then the driver says what is missing.
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

/// What was found out about legacy handles, by context.
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
    allocation.legacy_handle().map(|_| ())
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
