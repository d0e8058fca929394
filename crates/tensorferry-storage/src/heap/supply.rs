//! Where a block comes from: recycled memory first, then blocks that came back, then extents whose owner is
//! gone, then fresh memory.

use std::sync::MutexGuard;

use tensorferry_domain::DomainError;

use super::Inner;
use crate::StorageError;
use crate::arena::{Arena, Wanted, extents_for};
use crate::class::Class;
use crate::geometry::Place;

/// From this length on, an allocation first collects what other members returned, even if there are free
/// blocks: the block that came back last is still in the cache that both processors share. For shorter blocks
/// the look costs more than that saves (docs/bench/NOTES.md).
const LONG_BYTES: usize = 64 << 10;

impl Inner {
    /// Finds a place for a block of this class that nobody holds.
    #[inline]
    pub(super) fn take_place(&self, class: Class, len_bytes: usize) -> Result<Place, StorageError> {
        match self.try_take_place(class, len_bytes) {
            // A new `Ok`: moving the old result would copy the room of an error too.
            Ok(place) => Ok(place),
            Err(error) => self.take_after_trimming(class, len_bytes, error),
        }
    }

    /// Before giving up: scans for what the dead may have sent, and gives free blocks of other classes back
    /// to the system.
    #[cold]
    fn take_after_trimming(
        &self,
        class: Class,
        len_bytes: usize,
        error: StorageError,
    ) -> Result<Place, StorageError> {
        let StorageError::Domain(DomainError::Limit { wanted_bytes, .. }) = error else { return Err(error) };
        {
            let mut arena = self.collect_returned();
            if let Ok(Some(place)) = arena.take_recycled(self.places(), class, len_bytes, Wanted::Any) {
                return Ok(place);
            }
            let mut trimmed = arena.trim(self.places(), wanted_bytes);
            trimmed += self.trim_released(&mut arena);
            if trimmed == 0 {
                return Err(error);
            }
        }
        self.try_take_place(class, len_bytes)
    }

    /// Recycled memory first, then blocks that came back (for long blocks the other way around), then fresh
    /// memory.
    #[inline(always)]
    fn try_take_place(&self, class: Class, len_bytes: usize) -> Result<Place, StorageError> {
        let places = self.places();
        let mut arena = self.arena();
        if len_bytes >= LONG_BYTES && self.memory.take_returns() {
            arena.collect(places);
        }
        match arena.take_recycled(places, class, len_bytes, Wanted::Ripe) {
            Ok(Some(place)) => {
                self.publish(&arena);
                Ok(place)
            }
            Ok(None) => self.take_what_came_back(arena, class, len_bytes),
            Err(error) => Err(error),
        }
    }

    /// As [`Inner::try_take_place`], after no recycled block was worth using.
    #[inline(never)]
    fn take_what_came_back<'a>(
        &'a self,
        mut arena: MutexGuard<'a, Arena>,
        class: Class,
        len_bytes: usize,
    ) -> Result<Place, StorageError> {
        let places = self.places();
        if self.pins.any() || self.bundles.any() {
            // Dropping a pinned block may need the arena.
            drop(arena);
            self.pins.retire();
            self.bundles.retire_some();
            arena = self.arena();
        }
        if self.memory.take_returns() || arena.has_pending() {
            arena.collect(places);
        }
        let mut place = arena.take_recycled(places, class, len_bytes, Wanted::Ripe)?;
        // When memory is short, no blocks rest for the sake of the caches.
        if place.is_none() && self.memory.populated_bytes() > self.memory.limit_bytes() / 2 {
            place = arena.take_recycled(places, class, len_bytes, Wanted::Any)?;
        }
        let place = match place {
            Some(place) => place,
            None => match self.take_fresh(&mut arena, class, len_bytes) {
                Ok(place) => place,
                Err(error) => match arena.take_recycled(places, class, len_bytes, Wanted::Any) {
                    Ok(Some(place)) => place,
                    _ => return Err(error),
                },
            },
        };
        self.publish(&arena);
        Ok(place)
    }

    fn take_fresh(&self, arena: &mut Arena, class: Class, len_bytes: usize) -> Result<Place, StorageError> {
        // Others will give back what they get of it, and the thread collects that.
        self.memory.ensure_service_started();
        let places = self.places();
        if let Some(place) = arena.take_fresh(places, class, len_bytes)? {
            return Ok(place);
        }
        for first in 0..self.memory.extents_high_water() {
            let Some(run) = self.memory.claim_released_at(first) else { continue };
            if let Err(error) = arena.adopt(places, run) {
                self.give_back(arena, run);
                return Err(error);
            }
            if let Some(place) = arena.take_recycled(places, class, len_bytes, Wanted::Of(run.first))? {
                return Ok(place);
            }
            if let Some(place) = arena.take_fresh(places, class, len_bytes)? {
                return Ok(place);
            }
            // Another member may find in it what it needs, and would claim a fresh extent otherwise.
            self.give_back(arena, run);
        }
        let no_room = match extents_for(places, class).map(|n| self.memory.claim_extents(n)) {
            Ok(Ok(run)) => {
                if let Err(error) = arena.add_fresh(places, run) {
                    arena.give_up(places, run.first);
                    self.memory.release_extents(run);
                    return Err(error);
                }
                if let Some(place) = arena.take_fresh(places, class, len_bytes)? {
                    return Ok(place);
                }
                StorageError::TooLarge {
                    len_bytes,
                    address_space_bytes: places.memory.layout().data_len_bytes,
                }
            }
            Ok(Err(error)) => error.into(),
            Err(error) => error,
        };
        // Resting blocks come before blocks that are larger than needed.
        if let Ok(Some(place)) = arena.take_recycled(places, class, len_bytes, Wanted::Any) {
            return Ok(place);
        }
        arena.take_larger(places, class, len_bytes)?.ok_or(no_room)
    }
}
