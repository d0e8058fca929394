//! A domain as somebody sees it who has its file and is no member.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use tensorferry_os::memfd;
use tensorferry_sharing::Backing;

use crate::layout::{
    EXTENT_ENTRY_LEN_BYTES, EXTENT_TABLE_OFFSET_BYTES, MAGIC, MAX_MEMBERS, PROCESS_TABLE_OFFSET_BYTES,
    SLOT_LEN_BYTES, VERSION, extent, header, slot,
};
use crate::member::Slot;
use crate::{DomainError, ExtentOwner, ExtentRun, Layout, MemberInfo, Phase};

const WORD_BYTES: usize = size_of::<u64>();

/// The file of a domain, for reading. Nothing is mapped and nobody is told: each call copies what it wants
/// (pread(2)), and a hole of the file stays one.
///
/// The members go on meanwhile. So two numbers need not belong to the same moment, and pread(2) promises
/// nothing about one that is just being written. The memory of the domain lives at least as long as this
/// value.
#[derive(Debug)]
pub struct DomainFile {
    pub(crate) backing: Backing,
    pub(crate) layout: Layout,
    pub(crate) id: u64,
}

/// A run of extents, as the extent table describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunInfo {
    /// Where it lies.
    pub run: ExtentRun,
    /// Who owns it.
    pub owner: ExtentOwner,
    /// The memory that was populated in it, in bytes.
    pub populated_bytes: u64,
}

impl DomainFile {
    /// The domain behind this descriptor, which may be for reading only.
    ///
    /// # Errors
    /// [`DomainError::NotADomain`], [`DomainError::WrongVersion`], or the kernel's error.
    pub fn open(file: OwnedFd) -> Result<Self, DomainError> {
        let not = |what: String| DomainError::NotADomain { what };
        let backing = Backing::from_fd(file).map_err(|e| not(e.to_string()))?;
        if backing.len_bytes() < Layout::smallest().file_len_bytes() as u64 {
            return Err(not(format!("{} bytes are too few", backing.len_bytes())));
        }
        // These words do not change once the first one is there.
        let [magic, version, _, data_offset, data_len, extent_len, id] = read_words(&backing, 0)?;
        if magic != MAGIC {
            return Err(not(format!("it starts with {magic:#018x}")));
        }
        if version != VERSION {
            return Err(DomainError::WrongVersion { found: version, ours: VERSION });
        }
        let layout = Layout::from_claims(backing.len_bytes(), data_len, data_offset, extent_len)?;
        Ok(Self { backing, layout, id })
    }

    /// The number that tells this domain from every other live one on this machine.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The geometry of the file.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The memory that all members together may populate, in bytes.
    ///
    /// # Errors
    /// The kernel's error of pread(2), as of all that follow.
    pub fn limit_bytes(&self) -> Result<u64, DomainError> {
        self.header_word(header::LIMIT_BYTES)
    }

    /// How many dead members have been swept.
    ///
    /// # Errors
    /// As [`DomainFile::limit_bytes`].
    pub fn sweeps(&self) -> Result<u64, DomainError> {
        self.header_word(header::SWEEPS)
    }

    /// All members whose slot is not free.
    ///
    /// # Errors
    /// As [`DomainFile::limit_bytes`].
    pub fn members(&self) -> Result<Vec<MemberInfo>, DomainError> {
        let mut bytes = vec![0; MAX_MEMBERS * SLOT_LEN_BYTES];
        memfd::read_exact_at(&self.backing, &mut bytes, PROCESS_TABLE_OFFSET_BYTES as u64)?;
        let slots = words_of(&bytes).into_iter().map(AtomicU64::new).collect::<Vec<_>>();
        let slots = slots.as_chunks::<{ slot::N_WORDS }>().0;
        let members = (0..).zip(slots).map(|(index, words)| Slot { words }.info(index));
        Ok(members.filter(|member| member.phase != Phase::Free).collect())
    }

    /// All runs of extents that were ever used, in ascending order. What begins inside of one is no run.
    ///
    /// # Errors
    /// As [`DomainFile::limit_bytes`].
    pub fn runs(&self) -> Result<Vec<RunInfo>, DomainError> {
        let n_extents = self.layout.n_extents;
        let used = usize::try_from(self.header_word(header::EXTENTS_HIGH_WATER)?).unwrap_or(usize::MAX);
        let mut bytes = vec![0; used.min(n_extents) * EXTENT_ENTRY_LEN_BYTES];
        memfd::read_exact_at(&self.backing, &mut bytes, EXTENT_TABLE_OFFSET_BYTES as u64)?;
        let words = words_of(&bytes);
        let entries = words.as_chunks::<{ extent::N_WORDS }>().0.iter().enumerate();
        let info = |(first, entry): (usize, &[u64; extent::N_WORDS])| {
            let owner = ExtentOwner::unpack(entry[extent::OWNER]);
            let run_len = usize::try_from(entry[extent::RUN_LEN]).unwrap_or(0).min(n_extents - first);
            let is_run = run_len > 0 && owner != ExtentOwner::Continuation;
            let run = ExtentRun { first, n_extents: run_len };
            is_run.then_some(RunInfo { run, owner, populated_bytes: entry[extent::POPULATED_BYTES] })
        };
        let mut end = 0;
        let is_apart = |info: &RunInfo| {
            let is_apart = info.run.first >= end;
            end = end.max(info.run.first + info.run.n_extents);
            is_apart
        };
        Ok(entries.filter_map(info).filter(is_apart).collect())
    }

    /// The memory that the file has allocated, in bytes. Holes do not count.
    ///
    /// # Errors
    /// The kernel's error of fstat(2).
    pub fn allocated_bytes(&self) -> Result<u64, DomainError> {
        Ok(memfd::allocated_bytes(&self.backing)?)
    }

    /// Copies words of the data area, from an offset in bytes that is a multiple of 8. `None` where it ends
    /// before they do.
    ///
    /// # Errors
    /// As [`DomainFile::limit_bytes`].
    pub fn data_words(&self, offset_bytes: usize, n_words: usize) -> Result<Option<Vec<u64>>, DomainError> {
        let end = n_words.checked_mul(WORD_BYTES).and_then(|len| len.checked_add(offset_bytes));
        if !offset_bytes.is_multiple_of(WORD_BYTES) || end.is_none_or(|end| end > self.layout.data_len_bytes)
        {
            return Ok(None);
        }
        let mut bytes = vec![0; n_words * WORD_BYTES];
        let offset = self.layout.data_offset_bytes + offset_bytes;
        memfd::read_exact_at(&self.backing, &mut bytes, offset as u64)?;
        Ok(Some(words_of(&bytes)))
    }

    fn header_word(&self, index: usize) -> Result<u64, DomainError> {
        let [word] = read_words(&self.backing, index * WORD_BYTES)?;
        Ok(word)
    }
}

impl AsFd for DomainFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.backing.as_fd()
    }
}

/// Copies words of the file.
fn read_words<const N: usize>(backing: &Backing, offset_bytes: usize) -> Result<[u64; N], DomainError> {
    let mut bytes = [[0; WORD_BYTES]; N];
    memfd::read_exact_at(backing, bytes.as_flattened_mut(), offset_bytes as u64)?;
    Ok(bytes.map(u64::from_ne_bytes))
}

fn words_of(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<WORD_BYTES>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Domain, Memory};

    #[test]
    fn the_file_says_what_the_members_say() {
        let domain = Domain::builder().address_space_bytes(64 << 20).limit_bytes(5 << 20).create().unwrap();
        let memory = Memory::over(domain.clone());
        let run = memory.claim_extents(2).unwrap();
        let file = DomainFile::open(domain.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!((file.id(), file.layout()), (domain.id(), domain.layout()));
        assert_eq!((file.limit_bytes().unwrap(), file.sweeps().unwrap()), (5 << 20, 0));
        assert_eq!(file.members().unwrap(), domain.members());
        let owner = ExtentOwner::Member(domain.me());
        assert_eq!(file.runs().unwrap(), [RunInfo { run, owner, populated_bytes: 0 }]);
    }

    #[test]
    fn words_beyond_the_data_are_none() {
        let domain = Domain::builder().address_space_bytes(16 << 20).create().unwrap();
        let file = DomainFile::open(domain.as_fd().try_clone_to_owned().unwrap()).unwrap();
        let end = file.layout().data_len_bytes;
        assert_eq!(file.data_words(end - 16, 2).unwrap(), Some(vec![0; 2]));
        for (offset, n_words) in [(end - 8, 2), (4, 1), (8, usize::MAX), (usize::MAX - 7, 1)] {
            assert_eq!(file.data_words(offset, n_words).unwrap(), None, "{offset}, {n_words}");
        }
    }
}
