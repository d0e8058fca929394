//! The samples of one batch, as they are asked of a dataset.

use std::cell::Cell;
use std::fmt;

use serde::{Deserialize, Serialize};
use tensorferry_spawn::BoxedError;
use tensorferry_storage::Heap;
use tensorferry_sync::RawArray;

use crate::collate::Collate;
use crate::random::{EpochKey, SampleRng};

/// What is written where all can see it: how far a batch is, and that nobody wants it any more.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// First whether the epoch was given up, then for each batch that can be under way: the tag of the
    /// request in the upper half, and in the lower half 0, or the place in the batch of the sample that is
    /// being made, plus 1.
    pub(crate) cells: RawArray<u64>,
    pub(crate) cell: usize,
    /// Which request of the epoch it is. A worker that makes a batch once more after it was answered, because
    /// another one died over it, tells nothing of a later request in the same cell.
    pub(crate) tag: u32,
}

impl Progress {
    fn note(&self, place: Option<usize>) {
        let place = place.map_or(0, |place| u32::try_from(place).unwrap_or(u32::MAX).saturating_add(1));
        let value = u64::from(self.tag) << 32 | u64::from(place);
        // The cell is there: whoever made the batch's request made the array for it.
        let _ = self.cells.set(self.cell, value);
    }

    /// The place of the sample that is being made, or was when the process died.
    pub(crate) fn place(&self) -> Option<usize> {
        let value = self.cells.get(self.cell)?;
        let place = value.checked_sub(u64::from(self.tag) << 32)?.checked_sub(1)?;
        u32::try_from(place).ok().and_then(|place| usize::try_from(place).ok())
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.cells.get(0).is_some_and(|given_up| given_up != 0)
    }
}

/// The samples of one batch, as they are asked of [`Dataset::get_batch`](crate::Dataset::get_batch).
pub struct Samples<'a> {
    indices: &'a [usize],
    key: EpochKey,
    /// The places of the samples in the epoch, if an epoch can have a sample several times.
    draws: Option<&'a [usize]>,
    heap: &'a Heap,
    progress: Option<&'a Progress>,
    /// The place of the sample that is being made.
    place: Cell<Option<usize>>,
}

/// Nobody wants the batch.
#[derive(Debug, thiserror::Error)]
#[error("the epoch was given up")]
struct GivenUpError;

impl<'a> Samples<'a> {
    pub(crate) fn new(
        indices: &'a [usize],
        key: EpochKey,
        draws: Option<&'a [usize]>,
        heap: &'a Heap,
        progress: Option<&'a Progress>,
    ) -> Self {
        Self { indices, key, draws, heap, progress, place: Cell::new(None) }
    }

    /// The indices of the samples, in order. All are below the dataset's length.
    #[must_use]
    pub fn indices(&self) -> &[usize] {
        self.indices
    }

    /// The loader's seed and the number of the epoch.
    #[must_use]
    pub fn key(&self) -> EpochKey {
        self.key
    }

    /// Where the batch goes.
    #[must_use]
    pub fn heap(&self) -> &Heap {
        self.heap
    }

    /// Notes that the sample at this place of the batch is being made, for the error if it cannot be made or
    /// the process dies meanwhile.
    ///
    /// # Errors
    /// When nobody wants the batch any more. To be passed on.
    pub fn begin(&self, place: usize) -> Result<(), BoxedError> {
        self.place.set(Some(place));
        let Some(progress) = self.progress else { return Ok(()) };
        progress.note(Some(place));
        if progress.is_given_up() { Err(GivenUpError.into()) } else { Ok(()) }
    }

    /// The random numbers of the sample at this place of the batch.
    #[must_use]
    pub fn rng(&self, place: usize) -> SampleRng {
        let index = self.indices.get(place).copied().unwrap_or(usize::MAX);
        match self.draws {
            None => self.key.sample_rng(index),
            Some(draws) => self.key.draw_rng(index, draws.get(place).copied().unwrap_or(usize::MAX)),
        }
    }

    /// Makes a batch of what `get` makes for each index.
    ///
    /// # Errors
    /// Those of `get` and of [`Collate`].
    pub fn collate<C: Collate>(
        &self,
        mut get: impl FnMut(usize, &mut SampleRng) -> Result<C, BoxedError>,
    ) -> Result<C::Batch, BoxedError> {
        let mut rows = None;
        for (place, &index) in self.indices.iter().enumerate() {
            self.begin(place)?;
            let sample = get(index, &mut self.rng(place))?;
            let rows = match &mut rows {
                Some(rows) => rows,
                None => rows.insert(C::begin(&sample, self.indices.len(), self.heap)?),
            };
            sample.push(rows)?;
        }
        let rows = rows.ok_or("a batch has at least one sample")?;
        let batch = C::finish(rows)?;
        self.end();
        Ok(batch)
    }

    /// From here on it is no sample's fault if something fails.
    pub(crate) fn end(&self) {
        self.place.set(None);
        self.progress.iter().for_each(|progress| progress.note(None));
    }

    /// The place of the sample that is being made.
    pub(crate) fn place(&self) -> Option<usize> {
        self.place.get()
    }
}

impl fmt::Debug for Samples<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (indices, place) = (self.indices, self.place.get());
        f.debug_struct("Samples").field("indices", &indices).field("place", &place).finish_non_exhaustive()
    }
}
