//! The geometry of the file. docs/WIRE.md shows the same tables, and a test compares the two.

use tensorferry_os::mapping::{LARGE_PAGE_BYTES, PAGE_BYTES};

use crate::{DomainError, Member};

/// The number of processes that a domain can have at once: one bit each in a block's holder word, and one to
/// spare.
pub const MAX_MEMBERS: usize = 63;

/// "TNSRFRRY", read as a little-endian number.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"TNSRFRRY");
/// The version of everything in docs/WIRE.md.
pub(crate) const VERSION: u64 = 9;

/// Word indexes in the header.
pub(crate) mod header {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const VERSION: usize = 1;
    pub(crate) const FILE_LEN_BYTES: usize = 2;
    pub(crate) const DATA_OFFSET_BYTES: usize = 3;
    pub(crate) const DATA_LEN_BYTES: usize = 4;
    pub(crate) const EXTENT_LEN_BYTES: usize = 5;
    pub(crate) const DOMAIN_ID: usize = 6;
    pub(crate) const LIMIT_BYTES: usize = 7;
    pub(crate) const EXTENTS_HIGH_WATER: usize = 8;
    pub(crate) const SWEEPS: usize = 9;
    pub(crate) const SUSPICIONS: usize = 10;
    pub(crate) const SCANS_LEFT: usize = 11;
    pub(crate) const SCANS_LEFT_DONE: usize = 12;
    pub(crate) const N_WORDS: usize = 13;
}

/// The fields of the header's word `SUSPICIONS`.
pub(crate) mod suspicions {
    /// Something may be marked as suspect.
    pub(crate) const MAY_HAVE_MARKS: u64 = 1;
    /// One more of the count, which has all other bits.
    pub(crate) const ONE: u64 = 2;
}

/// Word indexes in a process slot.
pub(crate) mod slot {
    pub(crate) const STATE: usize = 0;
    pub(crate) const PID: usize = 1;
    pub(crate) const INODE: usize = 2;
    pub(crate) const START_TICKS: usize = 3;
    pub(crate) const RETURNS: usize = 4;
    /// The statistics are on a cache line of their own. Their member writes them with each allocation, while
    /// every member that returns a block reads the line before.
    pub(crate) const BLOCKS_LIVE: usize = 8;
    pub(crate) const BYTES_LIVE: usize = 9;
    pub(crate) const BYTES_CACHED: usize = 10;
    pub(crate) const SCANS_WANTED: usize = 11;
    pub(crate) const SCANS_DONE: usize = 12;
    pub(crate) const ENDED: usize = 13;
    pub(crate) const N_WORDS: usize = 16;
}

/// Word indexes in an entry of the extent table.
pub(crate) mod extent {
    pub(crate) const OWNER: usize = 0;
    pub(crate) const POPULATED_BYTES: usize = 1;
    pub(crate) const RETURNS: usize = 2;
    /// The length of the run that starts here; 0 before the extent was ever used.
    pub(crate) const RUN_LEN: usize = 3;
    pub(crate) const N_WORDS: usize = 4;
}

pub(crate) const PROCESS_TABLE_OFFSET_BYTES: usize = PAGE_BYTES;
pub(crate) const SLOT_LEN_BYTES: usize = slot::N_WORDS * 8;
const PROCESS_TABLE_LEN_BYTES: usize = 2 * PAGE_BYTES;
pub(crate) const EXTENT_TABLE_OFFSET_BYTES: usize = PROCESS_TABLE_OFFSET_BYTES + PROCESS_TABLE_LEN_BYTES;
pub(crate) const EXTENT_ENTRY_LEN_BYTES: usize = extent::N_WORDS * 8;

/// The most extents of a domain, so that scanning the table stays cheap.
const MAX_EXTENTS: usize = 16_384;
/// The least length of an extent.
const MIN_EXTENT_LEN_BYTES: usize = 4 << 20;
/// The least length of the data area.
const MIN_DATA_LEN_BYTES: usize = 4 * MIN_EXTENT_LEN_BYTES;
/// The length of the data area where nothing limits it.
pub(crate) const DEFAULT_DATA_LEN_BYTES: usize = 1 << 40;

const _: () = assert!(SLOT_LEN_BYTES * (MAX_MEMBERS + 1) <= PROCESS_TABLE_LEN_BYTES, "all slots fit");
const _: () = assert!(header::N_WORDS * 8 <= PAGE_BYTES, "the header is one page");

/// The byte of the file that a member locks for as long as it lives. No earlier member had the same byte. It
/// may be far behind the end of the file, which a lock allows.
pub(crate) fn presence_offset(member: Member) -> u64 {
    u64::from(member.slot) << 32 | u64::from(member.epoch)
}

/// The geometry of one domain. It depends only on the length of the data area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The offset of the data area in the file, in bytes; a multiple of 2 MiB.
    pub data_offset_bytes: usize,
    /// The length of the data area in bytes; a multiple of the extent length.
    pub data_len_bytes: usize,
    /// The length of an extent in bytes; a power of two, 4 MiB or more.
    pub extent_len_bytes: usize,
    /// The number of extents.
    pub n_extents: usize,
}

impl Layout {
    /// The layout with a data area of about `data_len_bytes` (rounded to whole extents, at least 16 MiB).
    #[must_use]
    pub fn with_data_len(data_len_bytes: usize) -> Self {
        let wanted = data_len_bytes.max(MIN_DATA_LEN_BYTES);
        let coarse = extent_len_for(wanted);
        let data_len_bytes = wanted / coarse * coarse;
        // Computed from the rounded length, so that this length alone gives the same layout again.
        let extent_len_bytes = extent_len_for(data_len_bytes);
        let n_extents = data_len_bytes / extent_len_bytes;
        let tables = EXTENT_TABLE_OFFSET_BYTES + n_extents * EXTENT_ENTRY_LEN_BYTES;
        Self {
            data_offset_bytes: tables.next_multiple_of(LARGE_PAGE_BYTES),
            data_len_bytes,
            extent_len_bytes,
            n_extents,
        }
    }

    /// The smallest layout there is.
    #[must_use]
    pub fn smallest() -> Self {
        Self::with_data_len(MIN_DATA_LEN_BYTES)
    }

    /// The length of the whole file in bytes.
    #[must_use]
    pub fn file_len_bytes(&self) -> usize {
        self.data_offset_bytes + self.data_len_bytes
    }

    /// Reads back what a header claims. Accepts only what `with_data_len` would have made.
    pub(crate) fn from_claims(
        file_len_bytes: u64,
        claimed_data_len_bytes: u64,
        claimed_data_offset_bytes: u64,
        claimed_extent_len_bytes: u64,
    ) -> Result<Self, DomainError> {
        let not = |what: String| DomainError::NotADomain { what };
        let data_len = usize::try_from(claimed_data_len_bytes)
            .ok()
            .filter(|len| (MIN_DATA_LEN_BYTES..=DEFAULT_DATA_LEN_BYTES).contains(len))
            .ok_or_else(|| not(format!("a data area of {claimed_data_len_bytes} bytes")))?;
        let layout = Self::with_data_len(data_len);
        if layout.data_len_bytes as u64 != claimed_data_len_bytes
            || layout.data_offset_bytes as u64 != claimed_data_offset_bytes
            || layout.extent_len_bytes as u64 != claimed_extent_len_bytes
        {
            return Err(not(format!(
                "data at {claimed_data_offset_bytes} in extents of {claimed_extent_len_bytes} bytes do not \
                 belong to {claimed_data_len_bytes} bytes"
            )));
        }
        if layout.file_len_bytes() as u64 != file_len_bytes {
            return Err(not(format!(
                "the file has {file_len_bytes} bytes, the layout needs {}",
                layout.file_len_bytes()
            )));
        }
        Ok(layout)
    }
}

/// The least power of two of which at most `MAX_EXTENTS` fit.
fn extent_len_for(data_len_bytes: usize) -> usize {
    let mut extent_len_bytes = MIN_EXTENT_LEN_BYTES;
    while data_len_bytes / extent_len_bytes > MAX_EXTENTS {
        extent_len_bytes *= 2;
    }
    extent_len_bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_default_is_a_tebibyte_of_64_mib_extents() {
        let layout = Layout::with_data_len(DEFAULT_DATA_LEN_BYTES);
        assert_eq!(layout.extent_len_bytes, 64 << 20);
        assert_eq!(layout.n_extents, 16_384);
        assert_eq!(layout.data_offset_bytes, 2 << 20);
    }

    #[test]
    fn the_smallest_has_four_extents() {
        assert_eq!(Layout::smallest().n_extents, 4);
        assert_eq!(Layout::with_data_len(0), Layout::smallest());
    }

    #[test]
    fn a_length_just_beyond_what_the_smallest_extents_hold_is_read_back() {
        let most = MAX_EXTENTS * MIN_EXTENT_LEN_BYTES;
        for len in [most - 1, most, most + 1, most + MAX_EXTENTS, most + MIN_EXTENT_LEN_BYTES, 2 * most + 7] {
            let layout = Layout::with_data_len(len);
            assert!(layout.data_len_bytes <= len && layout.n_extents <= MAX_EXTENTS);
            assert_eq!(Layout::with_data_len(layout.data_len_bytes), layout, "{len}");
        }
    }

    proptest! {
        #[test]
        fn a_layout_is_believed_only_when_it_is_one_of_ours(len in 0_usize..DEFAULT_DATA_LEN_BYTES, noise in 1_u64..u64::MAX) {
            let layout = Layout::with_data_len(len);
            let file = layout.file_len_bytes() as u64;
            let (data, offset, extent) =
                (layout.data_len_bytes as u64, layout.data_offset_bytes as u64, layout.extent_len_bytes as u64);
            prop_assert_eq!(Layout::from_claims(file, data, offset, extent).unwrap(), layout);
            prop_assert!(Layout::from_claims(file - 1, data, offset, extent).is_err());
            prop_assert!(Layout::from_claims(u64::MAX, data, offset.wrapping_add(noise), extent).is_err());
            prop_assert!(Layout::from_claims(u64::MAX, data, offset, extent.wrapping_add(noise)).is_err());
        }
    }
}
