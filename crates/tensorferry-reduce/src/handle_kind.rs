//! What travels by handle.

use std::fmt;

use tensorferry_storage::IncomingHandle;

/// What a handle of a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HandleKind {
    /// [`take_frozen`](crate::take_frozen) takes it.
    Frozen,
    /// [`take_shared`](crate::take_shared) takes it.
    Shared,
    /// [`take_monitor`](crate::take_monitor) takes it.
    Monitor,
    /// [`take_exclusive`](crate::take_exclusive) takes it, once.
    Exclusive,
    /// [`take_ring`](crate::take_ring) takes it.
    Ring,
    /// [`take_bundle`](crate::take_bundle) takes it.
    Bundle,
}

impl HandleKind {
    /// `None` for a kind that this version does not know.
    pub(crate) fn of(handle: &IncomingHandle) -> Option<Self> {
        Some(match handle {
            IncomingHandle::Offered(_) | IncomingHandle::Frozen(_) => Self::Frozen,
            IncomingHandle::Shared(_) => Self::Shared,
            IncomingHandle::Monitor(_) => Self::Monitor,
            IncomingHandle::Exclusive(_) => Self::Exclusive,
            IncomingHandle::Ring(_) => Self::Ring,
            IncomingHandle::Bundle(_) => Self::Bundle,
            _ => return None,
        })
    }

    /// What to do where it arrived and was not wanted.
    pub(crate) const fn hint(self) -> &'static str {
        match self {
            Self::Exclusive => "freeze a `TensorMut` before it is sent as `Tensor`, or receive it as one",
            Self::Frozen => "receive it as `Tensor`",
            Self::Shared => "receive it as what was sent, a `SharedTensor`, say",
            Self::Monitor => "receive it as what was sent, a `Lock`, say",
            Self::Ring | Self::Bundle => "sender and receiver have different types in mind",
        }
    }
}

impl fmt::Display for HandleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Frozen => "frozen memory",
            Self::Shared => "shared memory",
            Self::Monitor => "a lock or the like",
            Self::Exclusive => "exclusive memory",
            Self::Ring => "a queue",
            Self::Bundle => "a bundle",
        })
    }
}
