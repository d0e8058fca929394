//! The memory in which a process makes device tensors: slabs, cut into parts and kept for reuse.
//!
//! Small tensors share a slab; a large tensor has its own. A part that came back has *points*, behind which
//! its last users are done. The stream of the next user waits for the points; no thread blocks.

use std::sync::Arc;

use crate::event::Event;
use crate::slab::Slab;
use crate::stream::Stream;
use crate::tensor_error::Result;

/// Parts begin at multiples of this, and their lengths are multiples of it. It is the least alignment of the
/// driver's own allocations.
pub(crate) const ALIGN_BYTES: usize = 256;

/// The longest part that shares a slab. A longer one has a slab of its own.
const SMALL_BYTES: usize = 1 << 20;

/// The slabs of one device in one domain.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    slabs: Vec<Owned>,
}

#[derive(Debug)]
struct Owned {
    slab: Arc<Slab>,
    /// Sorted by offset; no two are adjacent.
    holes: Vec<Hole>,
    is_small: bool,
    /// It cannot be known whether a part of the slab is still in use.
    is_poisoned: bool,
}

#[derive(Debug)]
struct Hole {
    offset_bytes: usize,
    len_bytes: usize,
    points: Vec<Arc<Event>>,
}

/// A part of a slab that belongs to the caller now.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) slab: Arc<Slab>,
    pub(crate) offset_bytes: usize,
    pub(crate) points: Vec<Arc<Event>>,
}

/// A slab that is given up, and the points behind which it may be unmapped.
#[derive(Debug)]
pub(crate) struct Dying {
    slab: Arc<Slab>,
    points: Vec<Arc<Event>>,
}

impl Part {
    /// Makes the stream wait for the last users of the part.
    pub(crate) fn hold_up(&self, stream: &Stream) -> Result<()> {
        for point in &self.points {
            point.hold_up(stream)?;
        }
        Ok(())
    }
}

impl Dying {
    /// Marks the slab as given up, for all processes to see.
    pub(crate) fn retire(slab: Arc<Slab>, points: Vec<Arc<Event>>) -> Self {
        slab.control().retire();
        Self { slab, points }
    }

    /// Whether a device may still use the slab, or another process has it open and must close it first. If
    /// the context broke, this stays true.
    pub(crate) fn is_busy(&self) -> bool {
        self.slab.is_open_elsewhere() || self.points.iter().any(|point| point.is_pending())
    }

    pub(crate) fn slab(&self) -> &Arc<Slab> {
        &self.slab
    }

    /// Whether only a device is still waited for.
    pub(crate) fn is_closed_elsewhere(&self) -> bool {
        !self.slab.is_open_elsewhere()
    }

    /// Blocks until no device uses the slab.
    pub(crate) fn synchronize(&self) {
        for point in &self.points {
            let _ = point.synchronize();
        }
    }
}

/// The length of a part that holds `len_bytes`: at least one byte, rounded up to [`ALIGN_BYTES`].
pub(crate) fn part_len_bytes(len_bytes: usize) -> Option<usize> {
    len_bytes.max(1).checked_next_multiple_of(ALIGN_BYTES)
}

impl Pool {
    pub(crate) fn has(&self, slab: &Arc<Slab>) -> bool {
        self.slabs.iter().any(|owned| Arc::ptr_eq(&owned.slab, slab))
    }

    /// The length of the slab that is made when no part of `len_bytes` is free.
    pub(crate) fn slab_len_bytes(len_bytes: usize, granularity_bytes: usize) -> Option<usize> {
        // Two of the largest small parts fit into a small slab.
        let at_least = if len_bytes <= SMALL_BYTES { 2 * SMALL_BYTES } else { len_bytes };
        at_least.checked_next_multiple_of(granularity_bytes.max(ALIGN_BYTES))
    }

    /// Takes a free part of `len_bytes`, a multiple of [`ALIGN_BYTES`].
    pub(crate) fn take(&mut self, len_bytes: usize) -> Option<Part> {
        let is_small = len_bytes <= SMALL_BYTES;
        for owned in self.slabs.iter_mut().filter(|owned| owned.is_small == is_small && !owned.is_poisoned) {
            // A large part takes all of its slab, so a slab that is much too long does not fit.
            let fits = |hole: &Hole| {
                hole.len_bytes >= len_bytes && (is_small || hole.len_bytes - len_bytes <= len_bytes / 8)
            };
            let Some(at) = owned.holes.iter().position(fits) else { continue };
            let hole = &mut owned.holes[at];
            let (offset_bytes, points) = (hole.offset_bytes, hole.points.clone());
            hole.offset_bytes += len_bytes;
            hole.len_bytes -= len_bytes;
            if hole.len_bytes == 0 || !is_small {
                owned.holes.remove(at);
            }
            return Some(Part { slab: Arc::clone(&owned.slab), offset_bytes, points });
        }
        None
    }

    /// Adds a fresh slab; its first `len_bytes` belong to the caller.
    pub(crate) fn add(&mut self, slab: Slab, len_bytes: usize) -> Part {
        let (slab, is_small) = (Arc::new(slab), len_bytes <= SMALL_BYTES);
        let rest = Hole {
            offset_bytes: len_bytes,
            len_bytes: slab.len_bytes().saturating_sub(len_bytes),
            points: Vec::new(),
        };
        let holes = if is_small && rest.len_bytes > 0 { vec![rest] } else { Vec::new() };
        self.slabs.push(Owned { slab: Arc::clone(&slab), holes, is_small, is_poisoned: false });
        Part { slab, offset_bytes: 0, points: Vec::new() }
    }

    /// Takes a part back. `is_poisoned`: it cannot be known whether the part is still in use, so no part of
    /// its slab is handed out again.
    pub(crate) fn give_back(
        &mut self,
        slab: &Arc<Slab>,
        offset_bytes: usize,
        len_bytes: usize,
        points: Vec<Arc<Event>>,
        is_poisoned: bool,
    ) {
        let Some(owned) = self.slabs.iter_mut().find(|owned| Arc::ptr_eq(&owned.slab, slab)) else { return };
        owned.is_poisoned |= is_poisoned;
        let len_bytes = if owned.is_small { len_bytes } else { slab.len_bytes() };
        let at = owned.holes.partition_point(|hole| hole.offset_bytes < offset_bytes);
        owned.holes.insert(at, Hole { offset_bytes, len_bytes, points });
        owned.join(at + 1);
        owned.join(at);
    }

    /// Gives up slabs without a used part: all poisoned ones, and others until at most `keep_bytes` are free.
    pub(crate) fn trim(&mut self, keep_bytes: usize) -> Vec<Dying> {
        let mut free_bytes: usize =
            self.slabs.iter().filter(|owned| owned.is_free()).map(Owned::len_bytes).sum();
        let mut dying = Vec::new();
        self.slabs.retain_mut(|owned| {
            for hole in &mut owned.holes {
                hole.points.retain(|point| point.is_pending());
            }
            if !owned.is_free() || !(owned.is_poisoned || free_bytes > keep_bytes) {
                return true;
            }
            free_bytes -= owned.len_bytes();
            let points = owned.holes.drain(..).flat_map(|hole| hole.points).collect();
            dying.push(Dying::retire(Arc::clone(&owned.slab), points));
            false
        });
        dying
    }

    pub(crate) fn n_slabs(&self) -> usize {
        self.slabs.len()
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.slabs.iter().map(Owned::len_bytes).sum()
    }

    pub(crate) fn free_bytes(&self) -> usize {
        self.slabs.iter().flat_map(|owned| &owned.holes).map(|hole| hole.len_bytes).sum()
    }
}

impl Owned {
    fn len_bytes(&self) -> usize {
        self.slab.len_bytes()
    }

    fn is_free(&self) -> bool {
        matches!(&self.holes[..], [hole] if hole.len_bytes == self.slab.len_bytes())
    }

    /// Joins hole `at` with the one before it, if they are adjacent.
    fn join(&mut self, at: usize) {
        let (Some(before), Some(hole)) =
            (at.checked_sub(1).and_then(|i| self.holes.get(i)), self.holes.get(at))
        else {
            return;
        };
        if before.offset_bytes + before.len_bytes != hole.offset_bytes {
            return;
        }
        let hole = self.holes.remove(at);
        if let Some(before) = self.holes.get_mut(at - 1) {
            before.len_bytes += hole.len_bytes;
            before.points.extend(hole.points);
            before.points.retain(|point| point.is_pending());
        }
    }
}
