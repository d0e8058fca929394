//! An attachment with the words of its ring, which are found and checked once, and not for each message.
//!
//! The words are borrowed from the attachment, which holds the ring: while it does, they stay where they are,
//! and open, and are those of this ring. A child of a fork(2) that is not this library's does not hold the
//! ring; who uses them has checked for that (`Heap::check_owning_process`).
#![expect(clippy::mem_forget, clippy::disallowed_methods, reason = "what self_cell expands to")]

use crate::attachments::Attachment;
use crate::ring_layout::RingWords;

self_cell::self_cell!(
    pub(crate) struct AttachedRing {
        owner: Attachment,
        #[covariant]
        dependent: RingWords,
    }

    impl {Debug}
);
