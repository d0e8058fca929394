//! Bugs that the harness has to notice.

use super::Operation;

/// A bug that a build with `--cfg tensorferry_plants` has when `TENSORFERRY_PLANT` names it.
#[derive(Clone, Copy, Debug)]
pub struct Plant {
    /// What it is called, in the library too.
    pub name: &'static str,
    /// What it does.
    pub bug: &'static str,
    /// In which operations it has to be noticed.
    pub noticed_in: &'static [Operation],
}

/// All of them.
pub const PLANTS: &[Plant] = &[
    Plant {
        name: "put-commits-first",
        bug: "a message is committed before it is written",
        noticed_in: &[Operation::Put],
    },
    Plant {
        name: "put-claims-unnamed",
        bug: "a sender claims a slot in nobody's name",
        noticed_in: &[Operation::Put],
    },
    Plant {
        name: "get-holds-late",
        bug: "a receiver frees the slot before it holds what the message names",
        noticed_in: &[Operation::GetStandingStill],
    },
    Plant {
        name: "drop-clears-before-mark",
        bug: "a holder clears its bit before it marks the block as returned",
        noticed_in: &[Operation::DropOthers],
    },
    Plant {
        name: "drop-keeps-bit",
        bug: "a holder that lets go of another's block does not clear its bit",
        noticed_in: &[Operation::Put],
    },
    Plant {
        name: "sweep-forgets-bits",
        bug: "a sweeper does not convert the dead one's holder bits",
        noticed_in: &[Operation::DropOthers],
    },
    Plant {
        name: "sweep-suspects-nothing",
        bug: "a sweeper clears the dead one's holder bits instead of suspecting them",
        noticed_in: &[Operation::DropOwn],
    },
    Plant {
        name: "sweep-keeps-extents",
        bug: "a sweeper leaves the dead one's extents with it",
        noticed_in: &[Operation::AllocateFirst],
    },
    Plant {
        name: "sweep-skips-writing",
        bug: "a sweeper leaves a slot in which the dead one was writing",
        noticed_in: &[Operation::Put],
    },
    Plant {
        name: "sweep-wakes-nobody",
        bug: "a sweeper does not wake who sleeps at a ring",
        noticed_in: &[Operation::PutToSleeper],
    },
    Plant {
        name: "sweep-forgets-leases",
        bug: "a sweeper leaves the dead one's leases with it",
        noticed_in: &[Operation::Lease],
    },
    Plant {
        name: "sweep-forgets-monitors",
        bug: "a sweeper tells nobody who shares a lock or the like of the death",
        noticed_in: &[Operation::Acquire],
    },
    Plant {
        name: "sweep-keeps-admitting",
        bug: "a sweeper leaves a slot that the dead one was giving away",
        noticed_in: &[Operation::Admit],
    },
];

impl Plant {
    /// The one that is called so.
    #[must_use]
    pub fn with_name(name: &str) -> Option<&'static Self> {
        PLANTS.iter().find(|plant| plant.name == name)
    }
}
