//! What all primitives have in common: a monitor in shared memory that travels by handle, and the news of
//! deaths.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use tensorferry_domain::Member;
use tensorferry_storage::{Deadline, Heap, Monitor, MonitorView, StorageError};

use crate::wire::refuse;

/// How long a call that does not wait may wait for another process that is in the middle of a short step.
/// Only for one that is stopped there does it take that long.
pub(crate) const MOMENT: Duration = Duration::from_secs(1);

/// What tells handles apart, for a type with a `primitive`.
macro_rules! identity {
    ($handle:ident, $noun:literal) => {
        impl $handle {
            #[doc = concat!("Whether both are handles on the same ", $noun, ".")]
            #[must_use]
            pub fn ptr_eq(&self, other: &Self) -> bool {
                self.primitive.monitor().ptr_eq(other.primitive.monitor())
            }

            /// Where it lies in the domain: equal for all handles on it, in all processes, and the `id` under
            /// which a snapshot has it (`tensorferry-inspect`).
            #[must_use]
            pub fn id(&self) -> tensorferry_storage::BlockId {
                self.primitive.monitor().id()
            }
        }
    };
}

pub(crate) use identity;

/// A handle on a monitor that is used for `PURPOSE`.
pub(crate) struct Primitive<const PURPOSE: u64> {
    monitor: Monitor,
    /// The count of deaths up to which this handle has told of them.
    deaths_told: AtomicU64,
}

impl<const PURPOSE: u64> Primitive<PURPOSE> {
    pub(crate) fn create(heap: &Heap) -> Result<Self, StorageError> {
        Ok(Self::over(Monitor::create(heap, PURPOSE)?, 0))
    }

    /// As [`Primitive::create`], with a word of state that is not zero.
    pub(crate) fn create_with(heap: &Heap, index: usize, value: u64) -> Result<Self, StorageError> {
        let primitive = Self::create(heap)?;
        word(&primitive.monitor.view()?, index).store(value, Ordering::SeqCst);
        Ok(primitive)
    }

    fn over(monitor: Monitor, deaths_told: u64) -> Self {
        Self { monitor, deaths_told: AtomicU64::new(deaths_told) }
    }

    pub(crate) fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// A word of state; `None` in a process that is no member.
    pub(crate) fn state(&self, index: usize) -> Option<u64> {
        Some(word(&self.monitor.view().ok()?, index).load(Ordering::SeqCst))
    }

    /// Whether the count of deaths was, when it was read, beyond what this handle has told of. Read the count
    /// before whatever else decides: what a process did before it died is then seen too.
    pub(crate) fn is_untold(&self, deaths: u64) -> bool {
        self.deaths_told.load(Ordering::SeqCst) < deaths
    }

    /// As [`Primitive::is_untold`], and the caller tells of it.
    pub(crate) fn tells_of(&self, deaths: u64) -> bool {
        // Another thread may have told of a later death meanwhile.
        self.deaths_told.fetch_max(deaths, Ordering::SeqCst) < deaths
    }
}

impl<const PURPOSE: u64> fmt::Debug for Primitive<PURPOSE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Primitive").field(&self.monitor.id()).finish()
    }
}

/// The word of state with this index, which is below 4.
pub(crate) fn word<'a>(view: &MonitorView<'a>, index: usize) -> &'a AtomicU64 {
    static NOWHERE: AtomicU64 = AtomicU64::new(0);
    view.state().get(index).unwrap_or(&NOWHERE)
}

/// The deadline for a step that takes another process a moment.
pub(crate) fn for_a_step(deadline: Deadline) -> Deadline {
    if deadline == Deadline::Now { Deadline::within(MOMENT) } else { deadline }
}

/// One that a member has taken of what a monitor has: counted in the member's share until it is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    monitor: Monitor,
    by: Member,
}

impl Taken {
    /// Counts one more; `None` if this process was declared dead.
    pub(crate) fn count(monitor: &Monitor, view: &MonitorView<'_>) -> Option<Self> {
        view.change_share(1).then(|| Self { monitor: monitor.clone(), by: view.me() })
    }

    /// The words of the monitor, unless what was taken is not this process's: a child of a fork has a copy of
    /// the value only.
    pub(crate) fn view(&self) -> Option<MonitorView<'_>> {
        self.monitor.view().ok().filter(|view| view.me() == self.by)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.view().is_some_and(|view| view.change_share(-1)) {
            self.monitor.notify();
        }
    }
}

impl<const PURPOSE: u64> Clone for Primitive<PURPOSE> {
    fn clone(&self) -> Self {
        Self::over(self.monitor.clone(), self.deaths_told.load(Ordering::SeqCst))
    }
}

impl<const PURPOSE: u64> Serialize for Primitive<PURPOSE> {
    /// Sends another handle. Works only inside a message.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let index = tensorferry_reduce::give_monitor(&self.monitor);
        index.map_err(|error| ser::Error::custom(refuse(error)))?.serialize(serializer)
    }
}

impl<'de, const PURPOSE: u64> Deserialize<'de> for Primitive<PURPOSE> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let received =
            tensorferry_reduce::take_monitor(tensorferry_reduce::HandleIndex::deserialize(deserializer)?)
                .map_err(|error| de::Error::custom(refuse(error)))?;
        let monitor = received.open(PURPOSE).map_err(|error| de::Error::custom(refuse(error)))?;
        let deaths = monitor.view().map_or(0, |view| view.deaths());
        Ok(Self::over(monitor, deaths))
    }
}
