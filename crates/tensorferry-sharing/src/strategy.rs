//! The strategies by name, and which one the next default domain uses.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};

use tensorferry_os::memfd;

/// How a domain's memory is backed and how other processes find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SharingStrategy {
    /// A sealed memfd. Children inherit its descriptor. The default.
    FileDescriptor,
    /// A named file that any process of the user can open. Known by name, but not supported by this version.
    FileSystem,
}

/// The error for a strategy that cannot be used here.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SharingStrategyError {
    /// torch has no strategy of this name.
    #[error("unknown sharing strategy {0:?}: known are \"file_descriptor\" and \"file_system\"")]
    Unknown(String),
    /// The strategy does not work on this machine or in this version.
    #[error("sharing strategy {0} is not supported here: use one of get_all_sharing_strategies()")]
    Unsupported(SharingStrategy),
}

tensorferry_os::debug_as_display!(SharingStrategyError);

/// Index of the current strategy in [`ALL`].
static CURRENT: AtomicU8 = AtomicU8::new(0);

const ALL: [SharingStrategy; 2] = [SharingStrategy::FileDescriptor, SharingStrategy::FileSystem];

/// The strategies that work on this machine, probed by trying them.
#[must_use]
pub fn get_all_sharing_strategies() -> Vec<SharingStrategy> {
    ALL.into_iter().filter(|strategy| strategy.works_here()).collect()
}

/// The strategy of the next default domain.
#[must_use]
pub fn get_sharing_strategy() -> SharingStrategy {
    ALL.get(usize::from(CURRENT.load(Ordering::Relaxed))).copied().unwrap_or(SharingStrategy::FileDescriptor)
}

/// Sets the strategy of the next default domain of this process. An existing default domain keeps its
/// strategy.
///
/// # Errors
/// [`SharingStrategyError::Unsupported`] when it is not among [`get_all_sharing_strategies`].
pub fn set_sharing_strategy(strategy: SharingStrategy) -> Result<(), SharingStrategyError> {
    if !strategy.works_here() {
        return Err(SharingStrategyError::Unsupported(strategy));
    }
    let index = ALL.iter().position(|&known| known == strategy).unwrap_or(0);
    CURRENT.store(u8::try_from(index).unwrap_or(0), Ordering::Relaxed);
    Ok(())
}

impl SharingStrategy {
    /// The name that torch uses: `file_descriptor` or `file_system`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FileDescriptor => "file_descriptor",
            Self::FileSystem => "file_system",
        }
    }

    fn works_here(self) -> bool {
        match self {
            Self::FileDescriptor => memfd::create_sealed("tensorferry-probe", 4096).is_ok(),
            Self::FileSystem => false,
        }
    }
}

impl fmt::Display for SharingStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for SharingStrategy {
    type Err = SharingStrategyError;

    fn from_str(name: &str) -> Result<Self, SharingStrategyError> {
        ALL.into_iter()
            .find(|strategy| strategy.name() == name)
            .ok_or_else(|| SharingStrategyError::Unknown(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_torchs() {
        for strategy in ALL {
            assert_eq!(strategy.to_string().parse::<SharingStrategy>(), Ok(strategy));
        }
        assert_eq!("fd".parse::<SharingStrategy>(), Err(SharingStrategyError::Unknown("fd".to_owned())));
    }

    #[test]
    fn only_what_works_can_be_set() {
        assert_eq!(get_all_sharing_strategies(), [SharingStrategy::FileDescriptor]);
        assert_eq!(
            set_sharing_strategy(SharingStrategy::FileSystem),
            Err(SharingStrategyError::Unsupported(SharingStrategy::FileSystem))
        );
        assert_eq!(get_sharing_strategy(), SharingStrategy::FileDescriptor);
    }
}
