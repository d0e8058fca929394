//! The layout inside a tensor: a pointer to an immutable layout.
//!
//! A tensor is moved and cloned for each message that it is in, and a layout has sixteen words. Most tensors
//! of a program have one of a few contiguous layouts. Those are interned: made once, and never freed. Cloning
//! one copies a pointer, without a reference count. All other layouts are reference-counted.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hint::cold_path;
use std::ops::Deref;
use std::sync::{Arc, RwLock};

use super::{Layout, LayoutError};
use crate::recent::Recent;
use crate::shape::Shape;
use crate::wire::Written;

/// A layout that several tensors have.
pub(crate) enum LayoutRef {
    /// Contiguous from element 0, and never freed.
    Interned(&'static Interned),
    Counted(Arc<Layout>),
}

/// A layout that is never freed.
#[derive(Debug)]
pub(crate) struct Interned {
    layout: Layout,
    /// The encoded numbers of the layout, unless they are long.
    written: Option<Written>,
}

/// The number of layouts that a process interns, some 250 bytes each with their entry. Later ones are
/// reference-counted.
const MAX_INTERNED: usize = 1024;
/// The number of layouts that a thread keeps, to find them without the table.
const MAX_RECENT: usize = 4;

/// The interned layouts by their shapes. The table only grows, and no thread waits for its lock.
struct Table {
    layouts: RwLock<Option<HashMap<Shape, &'static Interned>>>,
    max_layouts: usize,
}

static INTERNED: Table = Table::new(MAX_INTERNED);

thread_local! {
    static RECENT: RefCell<Recent<&'static Interned, MAX_RECENT>> = const { RefCell::new(Recent::new()) };
}

impl Clone for LayoutRef {
    #[inline]
    fn clone(&self) -> Self {
        match self {
            Self::Interned(interned) => Self::Interned(interned),
            Self::Counted(layout) => {
                cold_path();
                Self::Counted(Arc::clone(layout))
            }
        }
    }
}

impl fmt::Debug for LayoutRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl Deref for LayoutRef {
    type Target = Layout;

    #[inline]
    fn deref(&self) -> &Layout {
        match self {
            Self::Interned(interned) => &interned.layout,
            Self::Counted(layout) => layout,
        }
    }
}

impl From<Layout> for LayoutRef {
    #[inline]
    fn from(layout: Layout) -> Self {
        let recent = RECENT.try_with(|recent| find(&*recent.try_borrow().ok()?, &layout));
        match recent {
            Ok(Some(interned)) => Self::Interned(interned),
            _ => Self::of(layout, &INTERNED),
        }
    }
}

impl LayoutRef {
    /// As [`Layout::contiguous`].
    ///
    /// # Errors
    /// As [`Layout::contiguous`].
    #[inline]
    pub(crate) fn contiguous(shape: impl Into<Shape>) -> Result<Self, LayoutError> {
        let shape = shape.into();
        let is_same = |known: &&&Interned| known.layout.shape().iter().eq(shape.iter());
        let recent = RECENT.try_with(|recent| recent.try_borrow().ok()?.iter().find(is_same).copied());
        match recent {
            Ok(Some(interned)) => Ok(Self::Interned(interned)),
            _ => Ok(Self::of(Layout::contiguous(shape)?, &INTERNED)),
        }
    }

    /// The encoded numbers of the layout, if it keeps them.
    #[inline]
    pub(crate) fn written(&self) -> Option<&'static Written> {
        match self {
            Self::Interned(interned) => interned.written.as_ref(),
            Self::Counted(_) => None,
        }
    }

    /// Replaces a layout that is contiguous from element 0 by the one that [`Layout::contiguous`] makes. The
    /// two can differ in the strides of dimensions of length 1.
    pub(crate) fn with_usual_strides(self) -> Self {
        match self {
            Self::Interned(_) => self,
            Self::Counted(layout) => match Layout::contiguous(layout.shape().clone()) {
                Ok(usual) if usual != *layout => usual.into(),
                _ => Self::Counted(layout),
            },
        }
    }

    fn of(layout: Layout, table: &Table) -> Self {
        let Some(interned) = table.intern(&layout) else { return Self::Counted(Arc::new(layout)) };
        let _ = RECENT.try_with(|recent| recent.try_borrow_mut().map(|mut recent| recent.keep(interned)));
        Self::Interned(interned)
    }
}

impl Table {
    const fn new(max_layouts: usize) -> Self {
        Self { layouts: RwLock::new(None), max_layouts }
    }

    /// The interned layout that equals `layout`, added if there is room. `None` if `layout` is not to be
    /// interned, or if the lock is not free.
    fn intern(&self, layout: &Layout) -> Option<&'static Interned> {
        if layout.offset() != 0 || !layout.is_contiguous() {
            return None;
        }
        let known = self.layouts.try_read().ok()?;
        let (found, n_known) =
            known.as_ref().map_or((None, 0), |known| (known.get(layout.shape()).copied(), known.len()));
        drop(known);
        if found.is_some() || n_known >= self.max_layouts {
            // A dimension of length 1 may have any stride, which must be kept.
            return found.filter(|found| found.layout == *layout);
        }
        let usual = Layout::contiguous(layout.shape().clone()).ok().filter(|usual| usual == layout)?;
        let mut known = self.layouts.try_write().ok()?;
        let known = known.get_or_insert_default();
        let is_full = known.len() >= self.max_layouts;
        match known.entry(usual.shape().clone()) {
            Entry::Occupied(found) => Some(found.get()),
            Entry::Vacant(_) if is_full => None,
            Entry::Vacant(room) => {
                let written = Written::of(&usual);
                Some(room.insert(Box::leak(Box::new(Interned { layout: usual, written }))))
            }
        }
    }
}

#[inline]
fn find(recent: &Recent<&'static Interned, MAX_RECENT>, layout: &Layout) -> Option<&'static Interned> {
    // Number by number, because a comparison as bytes is a call.
    let is_same = |known: &&&Interned| {
        let known = &known.layout;
        known.offset() == layout.offset()
            && known.shape().iter().eq(layout.shape().iter())
            && known.strides().iter().eq(layout.strides())
    };
    recent.iter().find(is_same).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_interned(layout: &LayoutRef) -> bool {
        matches!(layout, LayoutRef::Interned(_))
    }

    #[test]
    fn a_contiguous_layout_is_kept_once() {
        let table = Table::new(9);
        let of = || LayoutRef::of(Layout::contiguous([3, 5, 7]).unwrap(), &table);
        let (one, other) = (of(), of());
        assert!(is_interned(&one), "{one:?}");
        assert!(std::ptr::eq(&*one, &*other));
        assert_eq!(*one, Layout::contiguous([3, 5, 7]).unwrap());
        assert_eq!(format!("{one:?}"), format!("{:?}", *one));
    }

    #[test]
    fn who_finds_the_table_in_use_does_not_wait() {
        let table = Table::new(9);
        let reading = table.layouts.read().unwrap();
        let counted = LayoutRef::of(Layout::contiguous([3, 5]).unwrap(), &table);
        assert!(!is_interned(&counted));
        drop(reading);
        assert!(is_interned(&LayoutRef::of(Layout::contiguous([3, 5]).unwrap(), &table)));
    }

    #[test]
    fn what_is_not_contiguous_or_not_usual_stays_as_it_is() {
        let usual = Layout::contiguous([2, 3]).unwrap();
        let unusual = Layout::new([1, 3], &[77, 1], 0).unwrap();
        assert!(unusual.is_contiguous());
        let table = Table::new(9);
        assert!(is_interned(&LayoutRef::of(Layout::contiguous([1, 3]).unwrap(), &table)));
        for layout in [usual.transpose(0, 1).unwrap(), usual.narrow(0, 1, 1).unwrap(), unusual] {
            let same = LayoutRef::of(layout.clone(), &table);
            assert!(!is_interned(&same));
            assert_eq!(*same, layout);
        }
    }

    #[test]
    fn a_full_table_keeps_nothing_more_and_knows_what_it_has() {
        let layout = |len: usize| Layout::contiguous([11, len]).unwrap();
        let table = Table::new(2);
        let [one, two, three] = [1, 2, 3].map(|len| LayoutRef::of(layout(len), &table));
        assert!(is_interned(&one) && is_interned(&two) && !is_interned(&three));
        assert_eq!(*three, layout(3));
        assert!(is_interned(&LayoutRef::of(layout(2), &table)));
    }

    #[test]
    fn a_thread_forgets_the_oldest() {
        let table = Table::new(2 * MAX_RECENT);
        let layouts = (0..=MAX_RECENT).map(|len| Layout::contiguous([13, len]).unwrap());
        let layouts: Vec<_> = layouts.collect();
        layouts.iter().for_each(|layout| drop(LayoutRef::of(layout.clone(), &table)));
        let is_recent = |layout: &Layout| RECENT.with_borrow(|recent| find(recent, layout).is_some());
        assert!(!is_recent(&layouts[0]));
        assert!(layouts[1..].iter().all(is_recent));
    }
}
