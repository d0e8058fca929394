//! What backs the next default domain, by torch's names.

pub use tensorferry_sharing::{
    SharingStrategy, SharingStrategyError, get_all_sharing_strategies, get_sharing_strategy,
    set_sharing_strategy,
};
