//! The last few of something, the oldest forgotten first.

/// At most `N`, kept for who will probably ask for one of them next.
#[derive(Debug)]
pub(crate) struct Recent<T, const N: usize> {
    entries: [Option<T>; N],
    /// Which is forgotten next.
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
