//! The samples of one batch, as they are asked of a dataset.

use std::cell::Cell;
use std::fmt;

use serde::{Deserialize, Serialize};
use tensorferry_spawn::BoxedError;
use tensorferry_storage::{Heap, StorageError};
use tensorferry_sync::RawArray;

use crate::collate::Collate;
use crate::random::{EpochKey, SampleRng};

/// What is written where all can see it: how far a batch is, and that nobody wants it any more.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// First whether the epoch was given up, then three for each batch that can be under way, with the tag of
    /// the request in their upper halves. In the lower half the first one has the place in the batch of the
    /// sample that is being made, plus 1, or 0; the second one has the process that makes it; the third one
    /// is 1 when the batch was given up.
    pub(crate) cells: RawArray<u64>,
    pub(crate) cell: usize,
    /// Which request of the epoch it is. A worker that makes a batch once more after it was answered, because
    /// another one died over it, tells nothing of a later request in the same cells.
    pub(crate) tag: u32,
}

impl Progress {
    /// Cells for this many batches.
    pub(crate) fn cells(n_batches: usize) -> Result<RawArray<u64>, StorageError> {
        RawArray::full(1 + 3 * n_batches, 0)
    }

    /// The first cell of each of so many batches.
    pub(crate) fn places(n_batches: usize) -> impl Iterator<Item = usize> {
        (0..n_batches).map(|nth| 1 + 3 * nth)
    }

    /// Those of request `nth` of an epoch, in three cells that no other request under way has.
    pub(crate) fn new(cells: RawArray<u64>, cell: usize, nth: usize) -> Self {
        // The lower half of a number is as good as the number: it only has to differ from those before it.
        let tag = u32::try_from(nth & 0xFFFF_FFFF).unwrap_or_default().wrapping_add(1);
        Self { cells, cell, tag }
    }

    /// This process makes the batch.
    pub(crate) fn begin(&self) {
        self.note(None);
        self.set(self.cell + 1, std::process::id());
    }

    pub(crate) fn note(&self, place: Option<usize>) {
        self.set(
            self.cell,
            place.map_or(0, |place| u32::try_from(place).unwrap_or(u32::MAX).saturating_add(1)),
        );
    }

    fn set(&self, cell: usize, value: u32) {
        // The cell is there: whoever made the batch's request made the array for it.
        let _ = self.cells.set(cell, u64::from(self.tag) << 32 | u64::from(value));
    }

    /// What is noted of this request in a cell, unless it is 0.
    fn get(&self, cell: usize) -> Option<u32> {
        let value = self.cells.get(cell)?.checked_sub(u64::from(self.tag) << 32)?;
        u32::try_from(value).ok().filter(|value| *value != 0)
    }

    /// The process that makes the batch.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.get(self.cell + 1)
    }

    /// The place of the sample that is being made, or was when the process died.
    pub(crate) fn place(&self) -> Option<usize> {
        usize::try_from(self.get(self.cell)? - 1).ok()
    }

    /// Nobody wants this batch.
    pub(crate) fn give_up(&self) {
        self.set(self.cell + 2, 1);
    }

    /// Whether nobody wants this batch.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_epoch_given_up() || self.get(self.cell + 2).is_some()
    }

    /// Whether nobody wants any batch of the epoch.
    pub(crate) fn is_epoch_given_up(&self) -> bool {
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
#[error("nobody wants the batch any more")]
pub(crate) struct GivenUpError;

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
            C::push(rows, sample)?;
        }
        let rows = rows.ok_or("a batch has at least one sample")?;
        self.end();
        Ok(C::finish(rows)?)
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
