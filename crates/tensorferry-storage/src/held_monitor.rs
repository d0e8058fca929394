//! A block with the words of the monitor in it, which are found and checked once, as those of a ring are
//! ([`crate::attached_ring`]).
#![expect(clippy::mem_forget, clippy::disallowed_methods, reason = "what self_cell expands to")]

use crate::access::SharedBlock;
use crate::monitor_words::MonitorWords;

self_cell::self_cell!(
    pub(crate) struct HeldMonitor {
        owner: SharedBlock,
        #[covariant]
        dependent: MonitorWords,
    }

    impl {Debug}
);
