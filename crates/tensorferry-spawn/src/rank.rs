//! The variables that tell a process its place among several.

/// Index of the process among all that work together.
pub(crate) const RANK: &str = "RANK";

/// Index of the process among those on its machine.
const LOCAL_RANK: &str = "LOCAL_RANK";

/// How many work together.
const WORLD_SIZE: &str = "WORLD_SIZE";

/// The contents of `RANK`, `LOCAL_RANK` and `WORLD_SIZE` in the processes. torchrun, and programs and
/// libraries that are made for it, use these variables.
///
/// Set by [`Options::rank_environment`](crate::Options::rank_environment). A variable that is set or removed
/// by name, with [`Options::env`](crate::Options::env), [`Options::env_of`](crate::Options::env_of) or
/// [`Options::env_remove`](crate::Options::env_remove), takes precedence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RankEnvironment {
    /// `RANK` and `LOCAL_RANK` are the index of the process. `WORLD_SIZE` is how many are started together.
    /// They replace the values of this process.
    #[default]
    Indices,
    /// The processes are part of a larger group, such as those of one machine among several. `RANK` is
    /// `first_rank` plus the index, `LOCAL_RANK` is the index, and `WORLD_SIZE` is as given.
    PartOf {
        /// `RANK` of the process with index 0.
        first_rank: usize,
        /// How many processes the whole group has.
        world_size: usize,
    },
    /// Sets nothing: the processes inherit the values of this process.
    Inherited,
}

impl RankEnvironment {
    /// The index of a process among all that work together.
    pub(crate) fn global_rank(self, rank: usize) -> usize {
        match self {
            Self::PartOf { first_rank, .. } => first_rank.saturating_add(rank),
            Self::Indices | Self::Inherited => rank,
        }
    }

    /// The variables of one of `nprocs` processes.
    pub(crate) fn variables(self, rank: usize, nprocs: usize) -> Vec<(&'static str, String)> {
        let world_size = match self {
            Self::Indices => nprocs,
            Self::PartOf { world_size, .. } => world_size,
            Self::Inherited => return Vec::new(),
        };
        vec![
            (RANK, self.global_rank(rank).to_string()),
            (LOCAL_RANK, rank.to_string()),
            (WORLD_SIZE, world_size.to_string()),
        ]
    }
}
