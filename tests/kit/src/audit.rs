//! Reading and writing a domain's file without the library: what docs/WIRE.md says, from outside.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use tensorferry::domain::Domain;
use tensorferry_domain::Layout;

const PAGE_BYTES: u64 = 4096;
const LINE_BYTES: u64 = 64;
const EXTENT_TABLE_OFFSET_BYTES: u64 = 3 * PAGE_BYTES;
const EXTENT_ENTRY_LEN_BYTES: u64 = 32;
/// Word 8 of the header.
const EXTENTS_HIGH_WATER_OFFSET_BYTES: u64 = 64;
/// Blocks up to 32 KiB live in slabs of 63: eight classes in steps of 64 bytes up to 512, four per doubling
/// from there.
const N_SLAB_CLASSES: u64 = 8 + 4 * 6;
const SLAB_BLOCKS: u64 = 63;
/// Extents that continue a run have this owner word.
const CONTINUATION: u64 = 2;

/// A block that somebody holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// Where its header lies in the data area.
    pub header_offset_bytes: u64,
    /// Where its data lie in the file.
    pub data_file_offset_bytes: u64,
    /// The bits of its holders.
    pub holders: u64,
    /// 0 plain, 1 ring, 2 message.
    pub kind: u64,
    /// Its length.
    pub len_bytes: u64,
}

/// Every block of a domain that somebody holds, as its file says.
#[derive(Debug)]
pub struct Audit {
    live: Vec<LiveBlock>,
}

impl Audit {
    /// Reads the whole file. Holes are not filled by it.
    #[must_use]
    pub fn of(domain: &Domain) -> Self {
        let file = Scribbler::of(domain);
        let layout = domain.layout();
        let mut live = Vec::new();
        for extent in 0..file.word(EXTENTS_HIGH_WATER_OFFSET_BYTES) {
            let entry = EXTENT_TABLE_OFFSET_BYTES + extent * EXTENT_ENTRY_LEN_BYTES;
            let (owner, run_len) = (file.word(entry), file.word(entry + 24));
            if owner != CONTINUATION && run_len > 0 {
                file.add_live_of(layout, extent, &mut live);
            }
        }
        Self { live }
    }

    /// The blocks.
    #[must_use]
    pub fn live(&self) -> &[LiveBlock] {
        &self.live
    }

    /// The blocks.
    #[must_use]
    pub fn into_live(self) -> Vec<LiveBlock> {
        self.live
    }
}

/// Reads and writes anywhere in a domain's file.
#[derive(Debug)]
pub struct Scribbler {
    file: File,
}

impl Scribbler {
    /// A descriptor of its own on the file of `domain`.
    #[must_use]
    pub fn of(domain: &Domain) -> Self {
        Self { file: domain.as_fd().try_clone_to_owned().unwrap().into() }
    }

    /// The file behind this descriptor.
    #[must_use]
    pub fn over(fd: OwnedFd) -> Self {
        Self { file: fd.into() }
    }

    /// The word at this offset of the file.
    #[must_use]
    pub fn word(&self, offset_bytes: u64) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, offset_bytes).unwrap();
        u64::from_le_bytes(bytes)
    }

    /// Overwrites the word at this offset of the file.
    pub fn set_word(&self, offset_bytes: u64, word: u64) {
        self.file.write_all_at(&word.to_le_bytes(), offset_bytes).unwrap();
    }

    /// Turns over one bit of one byte.
    pub fn flip_bit(&self, offset_bytes: u64, bit: u64) {
        let mut byte = [0];
        self.file.read_exact_at(&mut byte, offset_bytes).unwrap();
        byte[0] ^= 1 << bit;
        self.file.write_all_at(&byte, offset_bytes).unwrap();
    }

    /// Reads a range of the file.
    #[must_use]
    pub fn bytes(&self, offset_bytes: u64, len_bytes: usize) -> Vec<u8> {
        let mut bytes = vec![0; len_bytes];
        self.file.read_exact_at(&mut bytes, offset_bytes).unwrap();
        bytes
    }

    /// Overwrites a range of the file.
    pub fn set_bytes(&self, offset_bytes: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, offset_bytes).unwrap();
    }

    fn add_live_of(&self, layout: &Layout, extent: u64, live: &mut Vec<LiveBlock>) {
        let extent_len = layout.extent_len_bytes as u64;
        let data_offset = layout.data_offset_bytes as u64;
        let start = data_offset + extent * extent_len;
        let n_lines = extent_len / 128 / LINE_BYTES;
        let first_line = 1 + (n_lines / 64).div_ceil(8);
        let high_water = self.word(start).min(n_lines);
        for line in first_line..high_water.max(first_line) {
            let head_line = start + line * LINE_BYTES;
            let span = self.word(head_line);
            let (class, page) = (span >> 8 & 0xffff, span >> 24);
            let span_offset = start + page * PAGE_BYTES;
            let is_slab = class < N_SLAB_CLASSES;
            for index in 0..if is_slab { SLAB_BLOCKS } else { 1 } {
                let header = if is_slab { span_offset + (1 + index) * LINE_BYTES } else { head_line };
                let holders = self.word(header + 16);
                if holders == 0 {
                    continue;
                }
                let in_slab = PAGE_BYTES + index * slab_block_len_bytes(class);
                live.push(LiveBlock {
                    header_offset_bytes: header - data_offset,
                    data_file_offset_bytes: span_offset + if is_slab { in_slab } else { 0 },
                    holders,
                    kind: self.word(header + 24) >> 32,
                    len_bytes: self.word(header + 32),
                });
            }
        }
    }
}

/// The size of a slab's blocks, by class.
fn slab_block_len_bytes(class: u64) -> u64 {
    match class.checked_sub(8) {
        None => 64 * (class + 1),
        Some(above) => {
            let base = 512 << (above / 4);
            base + base / 4 * (above % 4 + 1)
        }
    }
}
