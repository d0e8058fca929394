//! Making a domain: how large, and with what limit.

use std::sync::Arc;

use tensorferry_os::limits;
use tensorferry_sharing::{Backing, SharingStrategy, get_sharing_strategy};

use crate::layout::DEFAULT_DATA_LEN_BYTES;
use crate::{Domain, DomainError, Layout};

/// Settings of a new domain.
#[derive(Clone, Debug)]
pub struct DomainBuilder {
    strategy: SharingStrategy,
    address_space_bytes: usize,
    limit_bytes: Option<u64>,
}

impl DomainBuilder {
    pub(crate) fn new() -> Self {
        Self {
            strategy: get_sharing_strategy(),
            address_space_bytes: DEFAULT_DATA_LEN_BYTES,
            limit_bytes: None,
        }
    }

    /// The sharing strategy. The default is the current strategy of this process.
    #[must_use]
    pub fn strategy(mut self, strategy: SharingStrategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// The address space that each member maps, in bytes: 1 TiB by default and at most, 16 MiB at least. It
    /// costs no memory. The domain is made smaller where `RLIMIT_AS` or `RLIMIT_FSIZE` do not allow it: it
    /// takes at most half of `RLIMIT_AS`, and is halved until it fits. [`Domain::layout`] returns the result.
    #[must_use]
    pub fn address_space_bytes(mut self, len_bytes: usize) -> Self {
        self.address_space_bytes = len_bytes.min(DEFAULT_DATA_LEN_BYTES);
        self
    }

    /// The memory that all members together may populate, in bytes. The default is nine tenths of what
    /// `MemAvailable` and the cgroup of this process leave at the time of [`create`](Self::create), or no
    /// limit where neither can be read.
    #[must_use]
    pub fn limit_bytes(mut self, len_bytes: u64) -> Self {
        self.limit_bytes = Some(len_bytes);
        self
    }

    /// Makes the domain, with this process as its first member.
    ///
    /// # Errors
    /// [`DomainError::NoAddressSpace`] when not even the smallest layout fits; the kernel's error when it
    /// refuses the file.
    pub fn create(self) -> Result<Arc<Domain>, DomainError> {
        let limit_bytes = self.limit_bytes.unwrap_or_else(|| {
            limits::available_memory_bytes().map_or(u64::MAX, |available| available / 10 * 9)
        });
        // Leave half of the address space to the program itself.
        let address_space = limits::address_space_bytes();
        let most = address_space
            .map(|bytes| bytes / 2)
            .into_iter()
            .chain(limits::file_size_bytes())
            .min()
            .map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let mut wanted = self.address_space_bytes.min(most);
        loop {
            let layout = Layout::with_data_len(wanted);
            if layout.file_len_bytes() <= most || layout == Layout::smallest() {
                match self.try_layout(layout, limit_bytes) {
                    Ok(domain) => return Ok(domain),
                    Err(error) if layout == Layout::smallest() => return Err(refusal(error, &layout)),
                    Err(error) if !is_shortage(&error) => return Err(error),
                    Err(_) => {}
                }
            }
            wanted = layout.data_len_bytes / 2;
        }
    }

    fn try_layout(&self, layout: Layout, limit_bytes: u64) -> Result<Arc<Domain>, DomainError> {
        let len_bytes = layout.file_len_bytes() as u64;
        if limits::file_size_bytes().is_some_and(|limit| len_bytes > limit) {
            return Err(no_space(&layout));
        }
        let backing = Backing::create(self.strategy, len_bytes)?;
        Domain::format(backing, layout, limit_bytes)
    }
}

/// ENOMEM of mmap(2) means that there is no room in the address space. A smaller layout may fit.
fn is_shortage(error: &DomainError) -> bool {
    match error {
        DomainError::Os(error) => error.kind() == std::io::ErrorKind::OutOfMemory,
        DomainError::NoAddressSpace { .. } => true,
        _ => false,
    }
}

fn refusal(error: DomainError, layout: &Layout) -> DomainError {
    if is_shortage(&error) { no_space(layout) } else { error }
}

fn no_space(layout: &Layout) -> DomainError {
    DomainError::NoAddressSpace {
        needed_bytes: layout.file_len_bytes() as u64,
        address_space_bytes: limits::address_space_bytes(),
        file_size_bytes: limits::file_size_bytes(),
    }
}
