//! How a process comes to hold a block: a new one, or one that a message names.

use std::hint::cold_path;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use tensorferry_domain::ExtentOwner;

use crate::StorageError;
use crate::block::Block;
use crate::cell::{Allocation, Cell};
use crate::class::Class;
use crate::handle::{BlockHandle, HandlePair, cell_at};
use crate::heap::Heap;
use crate::reference::{GENERATION_MASK, Reference};

impl Heap {
    /// Allocates a block with one handle, which is returned.
    pub(crate) fn allocate_block(&self, len_bytes: usize) -> Result<Block, StorageError> {
        self.0.memory.check_owning_process()?;
        let class = Class::holding(len_bytes)
            .filter(|class| class.size_bytes() <= self.0.memory.layout().data_len_bytes);
        let class = class.ok_or(StorageError::TooLarge {
            len_bytes,
            address_space_bytes: self.0.memory.layout().data_len_bytes,
        })?;
        let place = self.0.take_place(class, len_bytes)?;
        let offset_bytes = place.header_offset_bytes as u64;
        let damaged = |what| StorageError::Damaged { offset_bytes, what };
        let unreachable = "the header of a new block is out of reach";
        let cell = cell_at(self, place).ok_or_else(|| damaged(unreachable))?;
        let header = cell.header().ok_or_else(|| damaged(unreachable))?;
        let handle = BlockHandle::alone(cell, || {
            let generation = header.prepare(len_bytes);
            // From here on the block is held: a sweep after this process's death finds this bit. No other
            // process knows the block before it is named to one. A message names it, which is put by a
            // sequentially consistent change, or the kernel carries the name.
            header.holders().store(self.me().bit(), Ordering::Release);
            Allocation { len_bytes, generation }
        });
        handle.map(Block::new).ok_or_else(|| damaged("a block that this process holds was marked as free"))
    }

    /// Holds the block that a message names. Until then the message itself or its sender holds it.
    pub(crate) fn hold(&self, reference: Reference) -> Result<Block, Box<StorageError>> {
        let cell = self.cell_of(&reference)?;
        let block = Block::new(BlockHandle::on(cell, || self.begin_to_hold(cell, &reference))?);
        check_generation(cell, &reference)?;
        Ok(block)
    }

    /// As [`Heap::hold`], but returns two handles, which cost as much as one.
    #[inline]
    pub(crate) fn hold_twice(&self, reference: Reference) -> Result<HandlePair, Box<StorageError>> {
        let cell = self.cell_of(&reference)?;
        let pair = HandlePair::on(cell, || self.begin_to_hold(cell, &reference))?;
        check_generation(cell, &reference)?;
        Ok(pair)
    }

    /// The cell of the block that a message names.
    #[inline(always)]
    fn cell_of(&self, reference: &Reference) -> Result<Cell<'_>, Box<StorageError>> {
        self.check_owning_process()?;
        let at = reference.header_offset_bytes;
        self.0.cells.known(at).map_or_else(|| self.find_cell(reference), Ok)
    }

    #[cold]
    fn find_cell(&self, reference: &Reference) -> Result<Cell<'_>, Box<StorageError>> {
        let bad = |what| bad_reference(reference, what);
        let place = self.0.places().find(reference.header_offset_bytes);
        let place = place.map_err(|error| error.into_error(|what| *bad(what)))?;
        cell_at(self, place).ok_or_else(|| bad("it lies beyond the domain"))
    }

    /// Sets this member's bit and opens the data.
    fn begin_to_hold(&self, cell: Cell<'_>, reference: &Reference) -> Result<Allocation, Box<StorageError>> {
        let bad = |what| bad_reference(reference, what);
        let place = cell.place().ok_or_else(|| bad("nobody knows its place"))?;
        let header = cell.header().ok_or_else(|| bad("its header is closed"))?;
        // Most messages come from the process that allocated their blocks, and only that process holds them.
        let likely = match self.0.memory.extent_owner(place.address.extent()) {
            ExtentOwner::Member(owner) => owner.bit(),
            _ => 0,
        };
        if !header.hold_if_held(self.me().bit(), likely) {
            return Err(bad("nobody holds the block"));
        }
        let len_bytes = usize::try_from(header.len_bytes()).unwrap_or(usize::MAX);
        let opened = if len_bytes <= cell.len_bytes() {
            // The last block that was held here was at least as long, and blocks of one place begin at one
            // address: this is a part of what was opened then and stays open. (Whoever lends the bytes looks
            // once more whether they are open.)
            Ok(())
        } else if len_bytes > place.class.size_bytes() {
            Err(bad("its length is beyond its block"))
        } else {
            self.0.places().open_range(place.data_offset_bytes, len_bytes).map_err(Box::new)
        };
        opened
            .inspect_err(|_| self.let_go(cell))
            .map(|()| Allocation { len_bytes, generation: header.generation() })
    }

    /// Where the data of a block lies that a bundle names, and how long it is in bytes. Takes no handle: the
    /// bundle keeps the block.
    pub(crate) fn find_named(&self, reference: Reference) -> Result<(NonNull<u8>, usize), Box<StorageError>> {
        let bad = |what| bad_reference(&reference, what);
        let cell = self.cell_of(&reference)?;
        let place = cell.place().ok_or_else(|| bad("nobody knows its place"))?;
        let header = cell.header().ok_or_else(|| bad("its header is closed"))?;
        if header.holders().load(Ordering::Relaxed) == 0 {
            return Err(bad("nobody holds the block"));
        }
        if header.generation() & GENERATION_MASK != reference.generation {
            return Err(bad("the block was reused since"));
        }
        let len_bytes = usize::try_from(header.len_bytes()).unwrap_or(usize::MAX);
        if len_bytes > place.class.size_bytes() {
            return Err(bad("its length is beyond its block"));
        }
        let find = || self.data().bytes(place.data_offset_bytes, len_bytes);
        if let Some(data) = find() {
            return Ok((data, len_bytes));
        }
        cold_path();
        self.0.places().open_range(place.data_offset_bytes, len_bytes)?;
        Ok((find().ok_or_else(|| bad("its data is closed"))?, len_bytes))
    }

    /// Returns one more handle on the block whose header is at this offset; `None` when this process does not
    /// hold the block.
    pub(crate) fn another_handle(&self, header_offset_bytes: usize) -> Option<Block> {
        let cell = self.0.cells.known(header_offset_bytes)?;
        BlockHandle::on(cell, || Err(())).ok().map(Block::new)
    }

    /// Lets go of a block: the last handle of this process is gone.
    #[inline]
    pub(crate) fn let_go(&self, cell: Cell<'_>) {
        if let Some((header, place)) = cell.header().zip(cell.place()) {
            self.0.let_go(header, place);
        }
    }
}

#[cold]
fn bad_reference(reference: &Reference, what: &'static str) -> Box<StorageError> {
    Box::new(StorageError::BadReference { reference: reference.pack(), what })
}

/// Checks that a block that is held now is the one that a message names.
#[inline]
fn check_generation(cell: Cell<'_>, reference: &Reference) -> Result<(), Box<StorageError>> {
    let is_same = cell.generation() & GENERATION_MASK == reference.generation;
    if is_same { Ok(()) } else { Err(bad_reference(reference, "the block was reused since")) }
}
