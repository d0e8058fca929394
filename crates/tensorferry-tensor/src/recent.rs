//! A small cache that replaces its oldest entry.

/// The last `N` entries that were added.
#[derive(Debug)]
pub(crate) struct Recent<T, const N: usize> {
    entries: [Option<T>; N],
    /// The index of the entry that is replaced next.
    next: usize,
}

impl<T, const N: usize> Recent<T, N> {
    pub(crate) const fn new() -> Self {
        Self { entries: [const { None }; N], next: 0 }
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().flatten()
    }

    pub(crate) fn keep(&mut self, entry: T) {
        if let Some(oldest) = self.entries.get_mut(self.next) {
            *oldest = Some(entry);
        }
        self.next = (self.next + 1) % N;
    }
}
